"""Storage: state as bytes, and what is recorded about it.

codec   state to bytes and back      memory   a snapshot and the log since      rows   rows of the tables
"""
