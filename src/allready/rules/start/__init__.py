"""Ranks that never took part."""
