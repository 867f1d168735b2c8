"""Log lines of any mixture of programs -> one `Reading`: events, processes, deaths.

`interpret` takes what the scanner kept of a file, `read_lines` takes lines as they are.
"""

from allready.evidence.log.interpret import interpret, read_lines

__all__ = ["interpret", "read_lines"]
