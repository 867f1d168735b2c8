"""Ranks that died."""
