"""One pass over a log, however big it is."""
