"""What Lacuna runs on: pinned jars, Java, a local Kafka. Run as `python -m infra.NAME`; nothing imports it."""
