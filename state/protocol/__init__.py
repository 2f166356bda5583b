"""The protocol: everything that brokers, clients and operators say, and how it is written.

messages   names and messages                 events     clients' events in JSON, and rejects
ledger     which of two events is later       commands   what an operator asks for
channel    ordered, exactly-once channels     wire       messages as bytes
topics     the names of the Kafka topics
"""
