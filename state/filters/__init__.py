"""Filters: what a subscription asks for, before it becomes boxes.

trees        Boolean trees over the attributes, and their way into boxes
where        the language of `where`: JSON objects, lists of alternatives, text
selectivity  how many publications fulfil a predicate, learned from those seen
pruning      making a filter smaller by making it more general, and in which order
"""
