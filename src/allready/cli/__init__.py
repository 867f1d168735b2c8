"""The command line: one file per command, imported only when chosen."""
