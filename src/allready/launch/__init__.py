"""How a job is laid out over nodes: flags, and the variables of every scheduler we know."""
