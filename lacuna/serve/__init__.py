"""The gateway: subscribe, publish and take deliveries over HTTP, and look at the system in a browser.

    browsers,      ┌──────────── one process, one event loop ────────────┐
    any HTTP  ───▶ │ app ▶ auth ▶ api ── sender ─────────────────────────┼──▶ subscribe, unsubscribe, publish
    client         │              pages (the console)                    │
              ◀─── │ streams ◀── hub ◀── tail: one thread, one consumer ◀┼─── deliveries, control
                   │      ◀── catchup: four threads, for who was away ◀──┼─── deliveries
                   │ waits ◀── one thread, while somebody waits ◀────────┼─── notices
                   └─────────────────────────────────────────────────────┘

Any number of identical gateways may stand beside each other: they share no state and no consumer group. What a client
has received is in the id of each event of its stream, which the client sends back when it comes again (`cursor`).

A gateway reads and writes Kafka, reads the tables, and asks the job how it is. It needs nothing of Spark.
"""
