"""The pure core of Lacuna: messages in, decisions out. No Spark, no Kafka, no clock, no randomness."""
