"""`python -m allready` is `allready`."""

from allready.cli.main import entry

entry()
