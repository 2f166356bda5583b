"""Routing: the rules between brokers.

told, rangetold   what a neighbour was told, in boxes or in ranges of a curve
link              one link of a broker             overlay   all brokers and the channels between them
"""
