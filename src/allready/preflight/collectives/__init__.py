"""Stage 4 of `allready check`: staged collectives that cannot hang.

    rank process  <- pipes, progress cell ->  agent of its node  <- channel ->  hub on node 0
    rank.py, jax_rank.py, sweep.py            agent.py, process.py             hub.py, tracker.py, variants.py

Every rank is a process of its own.  It reports out of band what it is about to do, so that a rank that is stuck in C
code, stopped or dead is still located exactly; the ranks that do not come are named, and then all processes are ended.

Callers import from the modules: `spec.with_needed`, `hub.conduct`, `agent.take_part`, `variants.isolate`,
`variants.grow`.  This file imports nothing, because the rank processes pass through it.
"""
