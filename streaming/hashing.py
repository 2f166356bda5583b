"""Where Spark and Kafka put a key: their own hash functions, so that the router can choose keys and partitions itself.

    Spark    pmod(murmur3(key, seed 42), partitions)              a group of `applyInPandasWithState` by its string key
    Kafka    (murmur2(key) & 0x7fffffff) % partitions             a record by its key: `access.connection.partition_of`

Spark's Murmur3 is not the usual one: each of the last one to three bytes is mixed in as a word of its own, with sign.
"""

from __future__ import annotations

MASK = 0xFFFFFFFF
SEED = 42


def spark_partition(key: str, partitions: int) -> int:
    """Return the partition of a Spark shuffle in which a string key is.

    >>> [spark_partition(name, 2) for name in ("paris", "rome", "wien")]
    [1, 1, 1]
    """
    value = murmur3(key.encode())
    return (value - (1 << 32) if value >> 31 else value) % partitions


def murmur3(data: bytes, seed: int = SEED) -> int:
    """Return Spark's Murmur3 hash of bytes, as an unsigned number of 32 bits."""
    whole = len(data) // 4 * 4
    words = [int.from_bytes(data[k : k + 4], "little") for k in range(0, whole, 4)]
    words += [(byte - 256 if byte > 127 else byte) & MASK for byte in data[whole:]]
    h = seed
    for word in words:
        k = _rotated(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
        h = (_rotated(h ^ k, 13) * 5 + 0xE6546B64) & MASK
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & MASK
