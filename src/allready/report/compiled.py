"""The compiled templates beside their sources, as Python keeps compiled modules in `__pycache__`.

To compile them takes longer than everything else that a short job's end asks of the processor.  A file that cannot be
read or written, or is damaged, costs that time again and nothing else.  They are trusted as Python's own are: who may
write there may change the modules beside them as well.
"""

import hashlib
import secrets
import sys
from pathlib import Path

_FOLDER = Path(__file__).parent / "templates" / "__pycache__"


class TemplateCache:
    """What the template engine's cache of code asks of a store; it catches every error of one.

    `made_by` are the files that a template's code depends on besides its source: the engine and its options.
    """

    def __init__(self, *made_by: str, folder: Path = _FOLDER) -> None:
        self._folder = folder
        seen = [(file, found.st_size, found.st_mtime_ns) for file in made_by for found in (Path(file).stat(),)]
        self._made_by = repr(seen).encode()

    def get(self, key: str) -> bytes:
        """The code kept for `key`, if it is whole and of the same makers; the engine compares the source.

        Raises:
            OSError: there is none.
            ValueError: it is not that.
        """
        kept = self._file(key).read_bytes()
        seal, code = kept[: hashlib.sha256().digest_size], kept[hashlib.sha256().digest_size :]
        if seal != self._seal(code):
            raise ValueError(key)
        return code

    def set(self, key: str, value: bytes, timeout: int | None = None) -> None:  # noqa: ARG002 - what the engine passes
        """Keep it, in one step: other processes read and write the same file."""
        if sys.dont_write_bytecode:
            return
        self._folder.mkdir(exist_ok=True)
        part = self._folder / f"{key}.{secrets.token_hex(8)}"
        try:
            part.write_bytes(self._seal(value) + value)
            part.replace(self._file(key))
        finally:
            part.unlink(missing_ok=True)

    def _seal(self, code: bytes) -> bytes:
        return hashlib.sha256(self._made_by + code).digest()

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.{sys.implementation.cache_tag}.pyc"
