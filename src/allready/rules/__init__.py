"""Judging: facts and evidence in, hits out.  No file, no network, no clock, no torch below this package."""
