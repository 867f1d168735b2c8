"""Edits of recorded runs: files left out, put together, shifted, with lines of others between."""

import functools
import gzip
import random
import re
import tarfile
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"

Files = dict[str, bytes]
Edit = Callable[[Files], Files]


@functools.cache
def _load(name: str) -> Mapping[str, bytes]:
    archive = next(p for f in ("runs", "runs_cpu") if (p := FIXTURES / f / f"{name}.tar.xz").is_file())
    with tarfile.open(archive) as tar:
        members = ((m.name.partition("/")[2], tar.extractfile(m)) for m in tar if m.isfile())
        return {name: stream.read() for name, stream in members if stream is not None}


def load(name: str) -> Files:
    """The files of a recorded run by name."""
    return dict(_load(name))


def without(*parts: str) -> Edit:
    """Leave out files whose names contain one of `parts`."""
    return lambda files: {n: b for n, b in files.items() if not any(p in n for p in parts)}


def only(*parts: str) -> Edit:
    """Keep only files whose names contain one of `parts`."""
    return lambda files: {n: b for n, b in files.items() if any(p in n for p in parts)}


def into(name: str, text: str, *, at_start: bool = False) -> Edit:
    """Put lines into the one file whose name contains `name`."""

    def edit(files: Files) -> Files:
        [file] = [n for n in files if name in n]
        added = text.encode() + b"\n"
        return files | {file: added + files[file] if at_start else files[file].rstrip(b"\n") + b"\n" + added}

    return edit


def beside(name: str, text: str) -> Edit:
    """One more file."""
    return lambda files: files | {name: text.encode()}


def cut(share: float, *parts: str) -> Edit:
    """Only the first part of each log, as of a job that is still running."""

    def edit(files: Files) -> Files:
        return {
            n: b[: int(len(b) * share)] if n.endswith(".log") and (not parts or any(p in n for p in parts)) else b
            for n, b in files.items()
        }

    return edit


def zipped(files: Files) -> Files:
    """Every other file compressed."""
    return {(f"{n}.gz" if i % 2 else n): (gzip.compress(b) if i % 2 else b) for i, (n, b) in enumerate(files.items())}


def twice(files: Files) -> Files:
    """Everything copied a second time, as when a folder is collected from two places."""
    return files | {f"copy/{n}": b for n, b in files.items()}


def renamed(pattern: str, by: str) -> Edit:
    return lambda files: {re.sub(pattern, by, n): b for n, b in files.items()}


def replaced(pattern: str, by: str, *parts: str) -> Edit:
    """Another text in every log, or in those whose names contain one of `parts`."""

    def edit(files: Files) -> Files:
        return {
            n: re.sub(pattern.encode(), by.encode(), b)
            if n.endswith((".log", ".txt")) and (not parts or any(p in n for p in parts))
            else b
            for n, b in files.items()
        }

    return edit


_GLOG = re.compile(rb"\b([IWEF])(\d{4}) (\d\d:\d\d:\d\d)")
_TABLE = re.compile(rb"(\d{4}-\d\d-\d\d)([_ ])(\d\d:\d\d:\d\d)")


def shifted(hours: float, *parts: str) -> Edit:
    """The clock of the process that wrote these logs is wrong by so many hours."""

    def moved(day: str, time: str, form: str) -> datetime:
        return datetime.strptime(f"{day} {time} +0000", f"{form} %z") + timedelta(hours=hours)

    def glog(match: re.Match[bytes]) -> bytes:
        when = moved(f"2026{match[2].decode()}", match[3].decode(), "%Y%m%d %H:%M:%S")
        return match[1] + f"{when:%m%d %H:%M:%S}".encode()

    def table(match: re.Match[bytes]) -> bytes:
        when = moved(match[1].decode(), match[3].decode(), "%Y-%m-%d %H:%M:%S")
        return f"{when:%Y-%m-%d}{match[2].decode()}{when:%H:%M:%S}".encode()

    def edit(files: Files) -> Files:
        return {
            n: _TABLE.sub(table, _GLOG.sub(glog, b)) if n.endswith(".log") and any(p in n for p in parts) else b
            for n, b in files.items()
        }

    return edit


def in_one_log(style: Callable[[str, str], str]) -> Edit:
    """All logs in one file, some lines of one after some lines of another; `style` gets a file's name and a line."""

    def edit(files: Files) -> Files:
        logs = [(n, b.decode("utf-8", "replace").splitlines()) for n, b in files.items() if n.endswith(".log")]
        rest = {n: b for n, b in files.items() if not n.endswith(".log")}
        dice, places, lines = random.Random(7), [0] * len(logs), []
        while live := [k for k, (_, text) in enumerate(logs) if places[k] < len(text)]:
            k = dice.choice(live)
            number = dice.randint(1, 12)
            lines += [style(logs[k][0], line) for line in logs[k][1][places[k] : places[k] + number]]
            places[k] += number
        return rest | {"job.out": "\n".join(lines).encode()}

    return edit


def srun(name: str, line: str) -> str:
    """`1: line`, the number of the node's task."""
    match = re.search(r"node(\d)", name)
    return f"{match[1] if match else 0}: {line}"


def pods(name: str, line: str) -> str:
    """`[pod/train-1/main] line`, as kubectl logs --prefix writes."""
    match = re.search(r"node(\d)", name)
    return f"[pod/train-{match[1] if match else 0}/main] {line}"


def both(*edits: Edit) -> Edit:
    """One edit after the other."""

    def edit(files: Files) -> Files:
        for one in edits:
            files = one(files)
        return files

    return edit


def write(files: Files, folder: Path) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder
