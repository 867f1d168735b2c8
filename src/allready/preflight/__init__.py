"""The roll call before a job: nodes meet, compare facts, try the paths, run staged collectives."""
