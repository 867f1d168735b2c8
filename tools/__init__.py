"""For developers, in a checkout; not in the wheel."""
