"""Benchmarks: commands that reproduce figures and print published values beside measured ones."""
