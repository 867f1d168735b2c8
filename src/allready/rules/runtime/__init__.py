"""Collectives of the runtime library that failed: dead, silent or absent ranks, by what all ranks reported."""
