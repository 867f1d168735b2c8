"""What the runtime library counts, writes and tells while a job runs.

`counts` counts, `recorder` takes what calls report, `courier` is the thread and the bounded queue between them and
everything that may be slow: `event_file`, `sinks`, `alerts`.  `control` is what users call.
"""
