"""Routing: the rules between brokers.

region         brokers that work as one machine            outcome   everything that a step of a region did
broker         one broker: ledger, clients, links          subscriptions   what a broker knows, once
link           both halves of a link                       heard     what a neighbour asked for
told           what a neighbour was told, in boxes         rangetold the same in ranges of a curve
cut            cutting the overlay into regions
"""
