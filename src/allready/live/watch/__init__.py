"""Watch a job that runs: attach to the agent of `allready run` on this node, or find ranks that others started."""
