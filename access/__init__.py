"""Access to Kafka for everything that is not Spark: connections, topics and offsets.

The package knows the names of topics (`state.protocol.topics`) and nothing about what their records mean. Clients
(`producers`) and the job (`streaming`) both use it, and do not know each other.
"""

DEADLINE = 10.0
"""Seconds that Kafka may take to answer."""
