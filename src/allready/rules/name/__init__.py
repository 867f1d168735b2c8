"""Names and what they resolve to."""
