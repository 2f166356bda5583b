"""Storage: state as bytes, and what is recorded about it.

store     a region: head, log and parts; the copies that a worker holds     codec   a broker to parts and back
columns   the form of stored columns     sealed  the header of stored bytes
sliced    pieces in a map of values      ends    boxes by the predicates of their trees
tables    the tables and their columns   rows    the rows of an outcome
"""
