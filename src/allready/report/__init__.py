"""Showing a report: JSON, terminal, HTML, and the live lines before it.  It knows model and text only."""
