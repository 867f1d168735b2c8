"""From what the user names (files, folders, globs, archives, standard input) to streams of bytes.

`find` walks and never opens anything; `unpack` opens one found file and gives its content, an archive's members one
after the other, without ever writing to the disk.  What cannot or must not be read becomes a note.
"""

from allready.evidence.inputs.find import STDIN, Found, find, waits_for_ever
from allready.evidence.inputs.limits import LIMITS, InputLimits
from allready.evidence.inputs.source import Source
from allready.evidence.inputs.unpack import open_plain, unpack

__all__ = ["LIMITS", "STDIN", "Found", "InputLimits", "Source", "find", "open_plain", "unpack", "waits_for_ever"]
