"""Readers of what a run left behind: logs, flight-recorder dumps, RAS answers, stacks.  Never trusts a byte."""
