"""Dumps that real processes make now: Gloo on this machine's CPU, pickle and JSON."""

import subprocess
import sys
from pathlib import Path

import pytest

from allready.evidence.flight.reader import read_dump
from tests.judging.joined import Joined, joined_dumps

pytestmark = [pytest.mark.torch, pytest.mark.newest, pytest.mark.jobs]

RANKS = 3
RANK_PROGRAM = """
import json, os, sys, time
import torch, torch.distributed as dist
import torch._C._distributed_c10d as c10d
if not hasattr(c10d, "_dump_fr_trace"):
    sys.exit(77)
folder, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
pair = dist.new_group([0, 1], group_desc="TP")
tensor = torch.ones(8)

def reduce_mean():
    dist.all_reduce(tensor)

for _ in range(3):
    reduce_mean()
    dist.all_gather([torch.zeros(8) for _ in range(ranks)], tensor)
dist.broadcast(tensor, 1)
dist.gather(tensor, [torch.zeros(8) for _ in range(ranks)] if rank == 0 else None, dst=0)
if rank < 2:
    dist.all_reduce(tensor.bfloat16(), group=pair)
dist.barrier()
if rank != 1:  # rank 1 leaves this out
    work = dist.all_reduce(torch.ones(5, dtype=torch.int64), async_op=True)
deadline = time.monotonic() + 60
open(f"{folder}/ready_{rank}", "w").close()
while not all(os.path.exists(f"{folder}/ready_{r}") for r in range(ranks)) and time.monotonic() < deadline:
    time.sleep(0.02)

def num_open():  # the recorder retires an operation a moment after it ended
    entries = json.loads(bytes(c10d._dump_fr_trace_json(True, False))).get("entries", [])
    return sum(not entry["retired"] for entry in entries)

while num_open() > (rank != 1) and time.monotonic() < deadline:
    time.sleep(0.02)
with open(f"{folder}/pickle/comm_lib_trace_rank_{rank}", "wb") as file:
    file.write(c10d._dump_fr_trace(True, True, False))
with open(f"{folder}/json/fr_{rank}.json", "wb") as file:
    file.write(bytes(c10d._dump_fr_trace_json(True, False)))
open(f"{folder}/dumped_{rank}", "w").close()
while not all(os.path.exists(f"{folder}/dumped_{r}") for r in range(ranks)) and time.monotonic() < deadline:
    time.sleep(0.02)
os._exit(0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where three real ranks left their dumps."""
    path = tmp_path_factory.mktemp("live")
    for kind in ("pickle", "json"):
        (path / kind).mkdir()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK_PROGRAM, str(path), str(rank), str(RANKS)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={
                "PATH": "/usr/bin:/bin",
                "TORCH_FR_BUFFER_SIZE": "2000",
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
                "HOME": str(path),
            },
        )
        for rank in range(RANKS)
    ]
    errors = []
    try:
        errors += [rank.communicate(timeout=90)[1] for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
            rank.communicate()
    codes = {rank.returncode for rank in ranks}
    if 77 in codes or any("No module named 'torch'" in e for e in errors):
        pytest.skip("NOT TESTED: no torch with torch._C._distributed_c10d._dump_fr_trace here, so no real Gloo dumps")
    assert codes == {0}, "\n".join(errors)
    return path


def joined(folder: Path) -> Joined:
    """All dumps of a folder, read and joined."""
    readings = [read_dump(p.read_bytes(), str(p), name_hint=str(p)) for p in sorted(folder.iterdir())]
    assert [r.source.problem for r in readings] == [None] * RANKS
    return joined_dumps([d for r in readings for d in r.dumps])


@pytest.mark.parametrize("kind", ["pickle", "json"])
def test_the_rank_that_left_an_operation_out_is_found(folder: Path, kind: str) -> None:
    found = joined(folder / kind)
    assert found.roots == (1,)
    assert found.mismatches == []
    world, pair = found.progress
    assert (world.label, world.members, world.absent) == ("default_pg", (0, 1, 2), {})
    assert {r: (p.enqueued, p.completed) for r, p in world.positions.items()} == {0: (10, 9), 1: (9, 9), 2: (10, 9)}
    assert (pair.label, {r: p.enqueued for r, p in pair.positions.items()}) == ("TP", {0: 1, 1: 1})
    assert {r: p.last.dtype for r, p in pair.positions.items() if p.last} == {0: "bfloat16", 1: "bfloat16"}


def test_the_stuck_operation_is_told_with_its_place(folder: Path) -> None:
    stuck = joined(folder / "pickle").progress[0].positions[0].stuck
    assert stuck is not None
    assert (stuck.name, stuck.num_elements, stuck.dtype, stuck.size_bytes) == ("all_reduce", 5, "int64", 40)
    assert stuck.timeout_s == 1800.0
    assert stuck.site is not None
    assert str(stuck.site).startswith("<string>:")
    assert joined(folder / "json").progress[0].positions[0].stuck is not None


def test_helpers_are_on_the_stack(folder: Path) -> None:
    (dump,) = read_dump((folder / "pickle" / "comm_lib_trace_rank_0").read_bytes(), "a", name_hint="rank0").dumps
    assert any("reduce_mean" in str(frame) for stack in dump.stacks for frame in stack)
    assert dump.backend == "gloo"
    assert dump.is_whole
