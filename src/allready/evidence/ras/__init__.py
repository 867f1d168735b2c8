"""Answers of NCCL's RAS port: JSON, text reports and MONITOR streams, as a client saved them."""

from allready.evidence.ras.read import is_ras, read_ras

__all__ = ["is_ras", "read_ras"]
