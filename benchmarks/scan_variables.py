"""Which variables released wheels read, and which of them the table does not know.

    python benchmarks/scan_variables.py WHEEL...                 the names that are new, exit code 1 when there are any
    python benchmarks/scan_variables.py --record FILE WHEEL...   also write all names to FILE, for tests/variables
    python benchmarks/scan_variables.py --flags FILE WHEEL...    write to FILE which of these releases of jaxlib have
                                                                 which flags of XLA, for the table

Names come from the read-only data of the wheels' binaries and from their Python sources; nothing is imported or run.
"""

import argparse
import json
import mmap
import re
import shutil
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec
from msgspec import Struct

from allready.variables import table
from allready.variables.versions import version

EXIT_KNOWN, EXIT_UNKNOWN = 0, 1


class Scope(Struct, frozen=True, kw_only=True):
    """Where in one project's wheel to search, and which names of its binaries are of interest."""

    families: tuple[str, ...]  # how names in binaries begin; everything else is an enum or a message
    python: str | None = None  # folder of the Python sources to read; None for none


SCOPES = {
    "nvidia_nccl": Scope(families=("NCCL", "DOCA", "NVTX", "CUDA")),
    "torch": Scope(
        families=("NCCL", "TORCH", "TORCHCOMM", "TORCHELASTIC", "PYTORCH", "GLOO", "TP", "RANK", "MASTER"),
        python="torch/distributed/",
    ),
    "jaxlib": Scope(families=("JAX", "XLA", "NCCL", "PJRT", "GLOO", "TF"), python="jaxlib/"),
    "jax_cuda": Scope(families=("JAX", "XLA", "NCCL", "PJRT", "GLOO", "TF")),
    "jax": Scope(families=("JAX",), python="jax/"),
}
"""Start of a wheel's file name -> what is read of it; the longest that fits."""

_IN_SOURCE = re.compile(
    r"""(?x)
    (?i:\w*env\w*(?:\.\w+)?)\s*[(\[]\s*f?["']([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)["']  # getenv("X"), environ["X"]
    | ["']([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)["']\s+(?:not\s+)?in\s+(?:os\.)?environ      # "X" in environ
    | env_name_default\s*=\s*["']([A-Z][A-Z0-9_]+)["']
    | ^([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\s*(?::[^=\n]*)?=\s*\(?\s*["'](?=\4["'])                # X = "X"
    """,
    re.MULTILINE,
)
_MANGLED = re.compile(rb"[A-Za-z_]\d{1,3}\Z")
_JAX_OPTION = re.compile(r"""(?:state|flag)\(\s*(?:name\s*=\s*)?["'](jax_[a-z0-9_]+)["']""")
_NOT_SHIPPED = re.compile(r"(^|/)(tests?|testing|_internal_test_util|internal_test_util)/|test_util|test_loader|/test_")
MAX_BINARY_BYTES = 4 << 30


def names_of_wheel(wheel: Path) -> set[str]:
    """All names that the wheel seems to read.

    Raises:
        ValueError: a wheel of a project that has no scope here, or not a wheel.
    """
    scope = _scope(wheel.name)
    found: set[str] = set()
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                path = PurePosixPath(member.filename)
                if ".so" in path.suffixes and member.file_size < MAX_BINARY_BYTES:
                    with archive.open(member) as file:
                        found |= _of_binary(file, scope.families)
                elif scope.python is not None and _is_source(member.filename, scope.python):
                    found |= names_of_source(archive.read(member).decode("utf-8", "replace"))
    except zipfile.BadZipFile as error:
        raise ValueError(f"{wheel}: not a wheel") from error
    return found


_FLAG = re.compile(rb"(?<![a-z0-9_])(xla_[a-z0-9]+(?:_[a-z0-9]+)+)(?=\x00)")


def flags_of_wheel(wheel: Path) -> set[str]:
    """All names of the wheel's binaries that may be flags of XLA: C strings that begin with xla_.

    Raises:
        ValueError: not a wheel.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            binaries = [m for m in archive.infolist() if ".so" in PurePosixPath(m.filename).suffixes]
            return {f"--{found[1].decode()}" for member in binaries for found in _FLAG.finditer(archive.read(member))}
    except zipfile.BadZipFile as error:
        raise ValueError(f"{wheel}: not a wheel") from error


def flags_seen(of_releases: Mapping[str, set[str]]) -> table.FlagsSeen:
    """Each flag with the first and the last release that has it."""
    releases = sorted(of_releases, key=version)
    names = sorted(set().union(*of_releases.values()))
    with_it = {name: [release for release in releases if name in of_releases[release]] for name in names}
    return table.FlagsSeen(
        about="Names that the libraries of these releases of jaxlib have, each with the first and the last release"
        " that has it: benchmarks/scan_variables.py --flags. Some are no flags; what is not here is none.",
        releases=tuple(releases),
        flags={name: f"{have[0]} {have[-1]}" for name, have in with_it.items()},
    )


INSTALLED = {"torch": "torch", "nvidia/nccl": "nvidia_nccl"}
"""Folder of an installed project -> its scope."""


def names_of_installed(packages: Path) -> dict[str, set[str]]:
    """The same of what is installed in a `site-packages`: by folder, of those that are there."""
    found: dict[str, set[str]] = {}
    for folder, project in INSTALLED.items():
        scope = SCOPES[project]
        if not (packages / folder).is_dir():
            continue
        names = found[folder] = set[str]()
        for path in sorted((packages / folder).rglob("*")):
            inside = path.relative_to(packages).as_posix()
            if ".so" in path.suffixes and path.is_file() and path.stat().st_size < MAX_BINARY_BYTES:
                with path.open("rb") as file:
                    names |= _of_binary(file, scope.families)
            elif scope.python is not None and _is_source(inside, scope.python):
                names |= names_of_source(path.read_text(encoding="utf-8", errors="replace"))
    return found


def names_of_data(data: bytes, families: Sequence[str]) -> set[str]:
    """Names in C strings: of one of the families, ended by a zero byte.

    What stands in front may be anything: compilers put constants without an end directly before a string.  A number
    after a letter is none of these, it is the length in front of a mangled name.
    """
    pattern = re.compile(rb"(?<![A-Z_])(?:" + "|".join(families).encode() + rb")(?:_[A-Z0-9]+)+(?=\x00)")
    return {
        match[0].decode()
        for match in pattern.finditer(data)
        if len(match[0]) < 100 and not _MANGLED.search(data[max(0, match.start() - 4) : match.start()])
    }


def names_of_source(source: str) -> set[str]:
    """Names in Python: arguments of getenv and its like, keys of environ, JAX's options, constants that name them.

    The text is searched, not parsed: wheels are written for newer Pythons than the one that reads them.
    """
    found = {next(filter(None, match.groups())) for match in _IN_SOURCE.finditer(source)}
    return found | {option.upper() for option in _JAX_OPTION.findall(source)}


def unknown(names: set[str]) -> list[str]:
    """Those that neither the table nor its lists of other names have."""
    others = {name for entry in table.not_variables() for name in entry.names}
    prefixes = tuple(p for entry in table.not_variables() for p in entry.prefixes)
    return sorted(
        name
        for name in names
        if name not in table.load()
        and name not in others
        and not (prefixes and name.startswith(prefixes))
        and table.is_elsewhere(name) is None
    )


def _scope(file_name: str) -> Scope:
    fitting = [start for start in SCOPES if file_name.startswith(start)]
    if not fitting:
        raise ValueError(f"{file_name}: only wheels of {', '.join(SCOPES)} can be read")
    return SCOPES[max(fitting, key=len)]


def _is_source(name: str, folder: str) -> bool:
    return name.endswith(".py") and name.startswith(folder) and not _NOT_SHIPPED.search(name)


def _of_binary(stream: IO[bytes], families: Sequence[str]) -> set[str]:
    with tempfile.TemporaryFile() as file:
        shutil.copyfileobj(stream, file, 1 << 22)
        file.flush()
        if not file.tell():
            return set()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found: set[str] = set()
            for start, end in _read_only_parts(data):
                found |= names_of_data(data[start:end], families)
            return found


def _read_only_parts(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Places of the constants in a 64-bit ELF file; nothing for other files.

    Debug sections are left out: they hold the names of all enums.
    """
    if data[:5] != b"\x7fELF\x02":
        return
    (table_at,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", data, table_at + i * size) for i in range(count)]
    names_at = sections[names_index][4]
    for name_at, kind, _, _, start, length in sections:
        name = data[names_at + name_at : data.find(b"\0", names_at + name_at)]
        if kind == 1 and name.startswith((b".rodata", b".lrodata", b".data")):
            yield start, start + length


def main(argv: Sequence[str] | None = None) -> int:
    """Read the wheels named, and report what the table lacks."""
    parser = argparse.ArgumentParser(description="variables in wheels")
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the names of each wheel there, as JSON")
    parser.add_argument("--flags", type=Path, metavar="FILE", help="write the flags of these wheels of jaxlib there")
    arguments = parser.parse_args(argv)
    if arguments.flags:
        seen = flags_seen({wheel.name.split("-")[1]: flags_of_wheel(wheel) for wheel in arguments.wheels})
        arguments.flags.write_bytes(msgspec.json.format(msgspec.json.encode(seen), indent=1) + b"\n")
        return EXIT_KNOWN
    recorded: dict[str, list[str]] = {}
    lacking = 0
    for wheel in arguments.wheels:
        names = names_of_wheel(wheel)
        project, version = wheel.name.split("-")[:2]
        recorded[f"{project} {version}"] = sorted(names)
        missing = unknown(names)
        lacking += len(missing)
        sys.stdout.write(f"{project} {version}: {len(names)} names, {len(missing)} unknown\n")
        sys.stdout.writelines(f"  {name}\n" for name in missing)
    if arguments.record:
        arguments.record.write_text(json.dumps(recorded, indent=0) + "\n", encoding="utf-8")
    return EXIT_UNKNOWN if lacking else EXIT_KNOWN


if __name__ == "__main__":
    sys.exit(main())
