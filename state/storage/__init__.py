"""Storage: state as bytes, and what is recorded about it.

codec     a broker to parts and back     store   parts, the log since, the head; what a worker holds
columns   how columns are stored         sealed  the envelope of stored bytes        rows   rows of the tables
"""
