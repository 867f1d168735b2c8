"""Runs that went on, too slowly."""
