"""Log lines of any mixture of programs -> one `Reading`: events, processes, deaths.

`interpret` takes what the scanner kept of a file, `read_lines` takes lines as they are.
"""

from allready.evidence.log.interpret import LogMemory, interpret, read_lines

__all__ = ["LogMemory", "interpret", "read_lines"]
