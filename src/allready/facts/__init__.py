"""Reading one machine: `collect_<area>(host)`.  A collector never judges; FactUnavailable says why it cannot read."""
