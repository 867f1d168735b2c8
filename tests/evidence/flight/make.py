"""Dumps by hand: only what a test is about is written down."""

import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allready.evidence.flight.reader import read_dump
from allready.evidence.reading import FlightDump
from tests.evidence.flight.dialect import torch_pickle
from tests.judging.joined import Joined, joined_dumps

FIXTURES = Path(__file__).parents[2] / "fixtures" / "flight"
BEGIN_NS = 1_795_178_717_000_000_000
TRAIN = ({"name": "all_reduce", "filename": "/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py",
          "line": 3068}, {"name": "step", "filename": "/home/user/train.py", "line": 33})  # fmt: skip


def entry(
    seq: int,
    name: str = "nccl:all_reduce",
    *,
    size: int | Sequence[Sequence[int]] = 1024,
    out: int | Sequence[Sequence[int]] | None = None,
    dtype: str = "Float",
    state: str = "completed",
    group: tuple[str, str] = ("0", "default_pg"),
    line: int = 33,
    at_s: float | None = None,
    done_s: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One entry of version 2.10; `at_s`, `done_s` are seconds after the beginning of the run."""
    ins = [[size]] if isinstance(size, int) else [list(s) for s in size]
    outs = ins if out is None else [[out]] if isinstance(out, int) else [list(s) for s in out]
    made_s = 0.01 * seq if at_s is None else at_s
    ended_s = made_s + 0.005 if done_s is None else done_s
    is_p2p = ":send" in name or ":recv" in name
    completed = state == "completed"
    return {
        "frames": [TRAIN[0], {**TRAIN[1], "line": line}],
        "record_id": seq - 1,
        "pg_id": 0,
        "process_group": group,
        "collective_seq_id": 0 if is_p2p else seq,
        "p2p_seq_id": seq if is_p2p else 0,
        "op_id": seq,
        "profiling_name": name,
        "time_created_ns": BEGIN_NS + int(made_s * 1e9),
        "input_sizes": ins,
        "input_dtypes": [dtype] * len(ins),
        "output_sizes": outs,
        "output_dtypes": [dtype] * len(outs),
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": BEGIN_NS + int(ended_s * 1e9) if completed else None,
        "retired": completed,
        "timeout_ms": 600_000,
        "is_p2p": is_p2p,
    } | more


def dump(
    entries: Sequence[Mapping[str, Any]],
    *,
    members: Sequence[int] = (0, 1, 2, 3),
    groups: Mapping[tuple[str, str], Sequence[int]] | None = None,
    version: str = "2.10",
    **more: Any,
) -> dict[str, Any]:
    """A dump of version 2.10 with these entries, numbered as a recorder would."""
    config = {
        name: {"name": name, "desc": desc, "ranks": str(list(ranks))}
        for (name, desc), ranks in (groups or {("0", "default_pg"): members}).items()
    }
    numbered = [{**e, "record_id": i} for i, e in enumerate(entries)]
    return {
        "version": version,
        "pg_config": config,
        "comm_lib_version": "2.28.9",
        "pg_status": {},
        "entries": numbered,
    } | more


def loaded(made: Mapping[str, Any], name: str = "fr_0") -> FlightDump:
    """What the reader makes of it."""
    (found,) = read_dump(torch_pickle(made), name, name_hint=name).dumps
    return found


def joined(dumps: Mapping[int, Mapping[str, Any]], node_of_rank: Mapping[int, int] | None = None) -> Joined:
    """The dumps of several ranks, read and joined."""
    return joined_dumps([loaded(made, f"fr_{rank}") for rank, made in dumps.items()], node_of_rank)


def recorded(scenario: str) -> dict[str, bytes]:
    """File name -> bytes of one recorded run."""
    return {
        path.name.removesuffix(".xz"): lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        for path in sorted((FIXTURES / scenario).iterdir())
    }


def joined_recording(scenario: str) -> Joined:
    """A recorded run, read and joined."""
    return joined_dumps([d for n, data in recorded(scenario).items() for d in read_dump(data, n, name_hint=n).dumps])
