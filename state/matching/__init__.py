"""Matching: named subscriptions in an index that answers which of them hold a point.

boxlist     subscriptions as boxes, in order of arrival      clients   what a broker's own clients asked for
predicates  subscriptions as trees among their predicates    pruned    what a neighbour asked for, generalised
extents     how large filters are
"""
