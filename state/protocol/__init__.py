"""The protocol: everything that brokers, clients and operators say, and how it is written.

messages   names and messages                 events     clients' events in JSON, and rejects
arrivals   the order of all that arrives      commands   ticks, and what an operator asks for
ledger     which of two events is later       reasons    why a decision was made
channel    ordered, exactly-once channels     frame      the format of internal records
wire       messages as bytes                  topics     the names of the Kafka topics
"""
