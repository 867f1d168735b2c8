"""What tests read through `find` and `unpack`."""

import io
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from allready.evidence.inputs import LIMITS, InputLimits, find, unpack
from allready.model import SourceRecord
from allready.model.fill import in_english


@dataclass
class Contents:
    """Everything found: label -> bytes, label -> why a source ended early, label -> record."""

    data: dict[str, bytes] = field(default_factory=dict)
    problems: dict[str, str | None] = field(default_factory=dict)
    records: dict[str, SourceRecord] = field(default_factory=dict)

    def why(self, label: object) -> str:
        """The problem of a source or a record; "" when it has none."""
        record = self.records.get(str(label))
        return self.problems.get(str(label)) or (record.problem if record else "") or ""


def contents(*arguments: object, limits: InputLimits = LIMITS) -> Contents:
    found = Contents()
    for item in find([str(a) for a in arguments]):
        if isinstance(item, SourceRecord):
            found.records[item.path] = item
            continue
        for source in unpack(item, limits=limits):
            if isinstance(source, SourceRecord):
                found.records[source.path] = source
                continue
            with source.open() as stream:
                assert source.label not in found.data, f"{source.label} twice"
                found.data[source.label] = stream.read()
            found.problems[source.label] = None if source.problem is None else in_english(source.problem)
    return found


class Unseekable(io.RawIOBase):
    """A pipe to write to: zipfile then puts the sizes behind the members."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        return self._file.write(data)  # type: ignore[arg-type]


def make_tar(path: Path, files: Sequence[tuple[str, bytes]], mode: str = "w", **options: int) -> Path:
    with tarfile.open(path, mode, **options) as archive:  # type: ignore[call-overload]
        for name, data in files:
            header = tarfile.TarInfo(name)
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return path


def make_zip(path: Path, files: Sequence[tuple[str, bytes]], method: int, *, seekable: bool = True) -> Path:
    with path.open("wb") as file, zipfile.ZipFile(file if seekable else Unseekable(file), "w", method) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return path
