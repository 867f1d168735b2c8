"""Ranks that did not do the same."""
