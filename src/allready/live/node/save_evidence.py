"""One node's evidence as files that `allready diagnose` reads: whole or not at all, secrets masked."""

import base64
import binascii
import contextlib
import json
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from allready.live.beacon.names import AGREED
from allready.model.live import NodeEvidence, RankEvidence
from allready.redaction import masked

EVIDENCE = "evidence"
_IN_FILES = dict.fromkeys(("stack", "ring", "dump", "log_tail", "nccl_log_tail", "nccl_record", "agreed"), "")
"""Of a rank's evidence what stands in files of its own, or is read from one that is kept."""
STACKS = "stacks.txt"


def keep(evidence: NodeEvidence, folder: Path, *, whole_logs: Collection[int] = ()) -> None:
    """Put one node's evidence into its folder of the attempt, in place of that of an earlier question.

    `rank<r>/evidence/` is replaced as a whole, but for the last stacks of a rank that has ended since; `kernel.log`,
    `ras.*`, `sockets.json` and `status.json` file by file; nothing else in the folder is touched.  Everything is
    written before the first of it is put in place.

    Args:
        whole_logs: ranks whose whole logs are kept anyway: the ends of them would be read twice.

    Raises:
        OSError: it could not be written; what was there before is still there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".evidence.", dir=folder))
    try:
        for rank in evidence.ranks:
            (made / f"rank{rank.rank}" / EVIDENCE).mkdir(parents=True)
        for name, content in files_of(evidence, whole_logs):
            path = made / name
            path.write_bytes(content)
        for rank in evidence.ranks:
            if rank.status.is_gone:
                _take_over(folder / f"rank{rank.rank}" / EVIDENCE, made / f"rank{rank.rank}" / EVIDENCE)
        for path in sorted(made.iterdir()):
            if path.is_dir():
                (folder / path.name).mkdir(exist_ok=True)
                place = folder / path.name / EVIDENCE
                _replace_folder(path / EVIDENCE, place, made / f"{path.name}.old")
                with contextlib.suppress(OSError):  # not empty, as it mostly is
                    place.rmdir()
                    place.parent.rmdir()
            else:
                path.replace(folder / path.name)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _take_over(old: Path, new: Path) -> None:
    """The last stacks of a rank, which has ended since and cannot write them again."""
    if (old / STACKS).is_file() and not (new / STACKS).exists():
        shutil.copyfile(old / STACKS, new / STACKS)


def _replace_folder(new: Path, place: Path, aside: Path) -> None:
    """By two renames: a folder that has files cannot be renamed over."""
    try:
        place.rename(aside)
    except FileNotFoundError:
        new.rename(place)
        return
    try:
        new.rename(place)
    except OSError:
        aside.rename(place)
        raise


def files_of(evidence: NodeEvidence, whole_logs: Collection[int] = ()) -> Iterator[tuple[str, bytes]]:
    """Names below the folder, and what is in them."""
    for rank in evidence.ranks:
        name = f"rank{rank.rank}"
        for file, content in _of_rank(rank, with_logs=rank.rank not in whole_logs):
            yield f"{name}/{EVIDENCE}/{file}", content
    if evidence.kernel_lines:
        yield "kernel.log", _text("\n".join(evidence.kernel_lines) + "\n")
    if evidence.ras:
        yield f"ras.{'json' if evidence.ras.lstrip().startswith('{') else 'txt'}", _text(evidence.ras)
    rows = [asdict(row) for row in evidence.sockets]
    yield "sockets.json", _json({"node_rank": evidence.node_rank, "time_s": evidence.time_s, "sockets": rows})
    yield "status.json", _json(_summary(evidence))


def _of_rank(rank: RankEvidence, *, with_logs: bool) -> Iterator[tuple[str, bytes]]:
    if rank.stack:
        yield STACKS, _text(rank.stack)
    dump = _decoded(rank.dump)
    if dump:
        yield "dump.pickle", dump
    elif rank.ring:  # the dump has all that the ring has
        yield "ring.json", _text(rank.ring)
    if rank.agreed:
        yield AGREED, _text(rank.agreed)
    if rank.log_tail and with_logs:
        yield "out.tail.log", _text(rank.log_tail)
    if rank.nccl_log_tail and with_logs:
        yield "nccl.tail.log", _text(rank.nccl_log_tail)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


def _summary(evidence: NodeEvidence) -> dict[str, object]:
    """Everything that is in no other file."""
    bare = replace(
        evidence,
        ranks=tuple(replace(r, **_IN_FILES) for r in evidence.ranks),
        sockets=(),
        kernel_lines=(),
        ras="",
        status=replace(evidence.status, sockets=(), links=()),
    )
    plain: dict[str, object] = msgspec.to_builtins(bare)
    return plain


def _json(value: object) -> bytes:
    return _text(json.dumps(value) + "\n")


def _text(text: str) -> bytes:
    # Not through the cache of `masked`: it would keep every text.
    return masked.__wrapped__(text).encode("utf-8", errors="replace")
