"""Storage: state as bytes, and what is recorded about it.

store     a region: head, log and parts; the copies that a worker holds     codec   a broker to parts and back
columns   the form of stored columns     sealed  the header of stored bytes
tables    the tables and their columns   rows    the rows of an outcome
"""
