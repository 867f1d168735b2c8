"""Lines that mean something: one table per family of logs, read by `evidence` (patterns) and by `rules` (texts)."""

from allready.signatures.table import FAMILIES, LinePattern, Signature, load, of_line

__all__ = ["FAMILIES", "LinePattern", "Signature", "load", "of_line"]
