"""Reading one machine: `collect_<area>(host)`.  A collector never judges; what it cannot read it says why."""
