"""Analysis: what can be found out from decisions, filters and events without a running system.

    lake            the tables for readers without Spark, and what is added to them
    decision_log    the decisions in the lake or of a simulation, and what a neighbour was told at any moment
    certificates    the subscriptions that cover a withheld one, when that was decided and now
    explain         why a subscription was or was not forwarded, link by link
    mirror          a copy of the overlay, made from the tables by the core's own code
    trial           what the router would do with an event or a filter
    history         the stories of subscriptions and events that happened
    event           an event on its way, beside what subscriptions ask for, in words
    drawing         a decision as a picture
    explain_filter  a filter: tree, boxes, selectivity, ranges
    redundancy      the subscriptions of a set that the others make redundant
    lint            the subscriptions of a file that would be refused or are redundant
    fit             cells for strategy `mics`, learned from publications
    views           views over the tables, as text for each engine
    duck            tables and views in DuckDB, and which statements it may answer
    spark_lake      tables and views in Spark SQL
    chain           the probability that strategy `probabilistic` finds a publication along a path

Every module takes and returns values. Options, progress and output are the business of `lacuna.cli`.
"""
