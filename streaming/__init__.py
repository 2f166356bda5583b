"""The Spark shell around the core: sources, the stateful step, sinks. Thin on purpose."""
