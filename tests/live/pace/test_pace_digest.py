"""What all ranks of a group must say alike, and what may differ without a fault."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allready.live.digests import NAMES, UNKNOWN, call_of, digests_of, is_same_operation, name_of, with_root
from tests.cases import cases

pytestmark = pytest.mark.thorough


def entry(name: str = "nccl:all_reduce", **changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "collective_seq_id": 7,
        "profiling_name": name,
        "is_p2p": False,
        "input_sizes": [[4, 8]],
        "output_sizes": [[4, 8]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
    }
    return known | changes


def digest(*entries: dict[str, Any]) -> int:
    return digests_of(entries)[7]


BIG: dict[str, Any] = {"input_sizes": [[33]]}
WIDE: dict[str, Any] = {"input_dtypes": ["Double"]}


@pytest.mark.parametrize("change", [BIG, WIDE, {"profiling_name": "nccl:broadcast"}])
def test_size_dtype_and_name_of_an_all_reduce_must_agree(change: dict[str, Any]) -> None:
    assert digest(entry()) != digest(entry(**change))


def test_a_digest_tells_its_operation_whatever_its_arguments() -> None:
    for name in NAMES:
        one, other = digest(entry(f"nccl:{name}")), with_root(digest(entry(f"nccl:{name}", **BIG, **WIDE)), 3)
        assert name_of(one) == name_of(other) == name
        assert is_same_operation(one, other)
        assert 0 < call_of(one) < 1 << 32
    rare, rarer = digest(entry("nccl:all_reduce_sparse_thing")), digest(entry("nccl:something"))
    assert (name_of(rare), name_of(rarer), name_of(UNKNOWN)) == (None, None, None)
    assert not is_same_operation(rare, rarer)


def test_shape_may_differ_where_the_elements_are_as_many() -> None:
    assert digest(entry()) == digest(entry(input_sizes=[[32]]))


@cases("name", ["all_to_all", "scatter", "gather", "all_to_allv"])
def test_operations_whose_sizes_differ_by_right_compare_by_name_only(name: str) -> None:
    assert digest(entry(f"nccl:{name}")) == digest(entry(f"nccl:{name}", **BIG)) != UNKNOWN


def test_uneven_all_gather_and_reduce_scatter_agree_in_their_sum() -> None:
    gathered = [entry("nccl:all_gather", input_sizes=[[n]], output_sizes=[[3], [5]]) for n in (3, 5)]
    assert digest(gathered[0]) == digest(gathered[1])
    scattered = [entry("nccl:reduce_scatter", input_sizes=[[3], [5]], output_sizes=[[n]]) for n in (3, 5)]
    assert digest(scattered[0]) == digest(scattered[1])
    assert digest(gathered[0]) != digest(entry("nccl:all_gather", input_sizes=[[3]], output_sizes=[[4], [5]]))


def test_a_coalesced_call_is_one_operation_of_all_its_parts() -> None:
    assert digest(entry(), entry(**BIG)) not in {digest(entry()), digest(entry(), entry()), UNKNOWN}


def test_what_the_recorder_does_not_tell_is_unknown() -> None:
    assert digest(entry(input_sizes=[])) == UNKNOWN
    assert digest(entry(profiling_name=None)) == UNKNOWN
    assert digest(entry(input_sizes=[["x"]])) == UNKNOWN
    assert digest(entry("nccl:all_reduce"), entry("gloo:all_reduce")) == UNKNOWN  # two recorders, one number
    assert digests_of([entry(collective_seq_id=None), entry(is_p2p=True)]) == {}


PROGRAM = """
import json, os, sys, torch
from torch import distributed as dist
from torch._C import _distributed_c10d as c10d
rank = int(sys.argv[1])
store = dist.FileStore(sys.argv[2], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
dist.all_reduce(torch.ones(4))
dist.broadcast_object_list([{"a": 1}] if rank == 0 else [None], 0)
dist.all_gather_object([None, None], "x" * (1 + 50 * rank))
out = torch.ones(3)
dist.all_to_all_single(torch.ones(5 - rank), torch.ones(5 if rank == 0 else 4), [3, 2] if rank == 0 else [2, 2],
                       [3, 2] if rank == 0 else [2, 2])
dist.gather(torch.ones(2), [torch.ones(2), torch.ones(2)] if rank == 0 else None, 0)
dist.scatter(out, [torch.ones(3), torch.ones(3)] if rank == 0 else None, 0)
dist.barrier()
print(c10d._dump_fr_trace_json(True, False).decode())
dist.all_reduce(torch.ones(4, dtype=torch.int32 if rank == 0 else torch.float32))
dist.barrier()
print(c10d._dump_fr_trace_json(True, False).decode())
sys.stdout.flush()
os._exit(0)
"""


def test_real_operations_of_two_ranks(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), str(r), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TORCH_FR_BUFFER_SIZE": "100", "GLOO_SOCKET_IFNAME": "lo"},
        )
        for r in range(2)
    ]
    try:
        told = [process.communicate(timeout=90) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait(10)
    assert all(out for out, _ in told), [err for _, err in told]
    digests = [[digests_of(json.loads(line)["entries"]) for line in out.splitlines()] for out, _ in told]
    good, odd = zip(*digests, strict=True)
    assert len(good[0]) >= 7
    assert UNKNOWN not in {*good[0].values(), *odd[0].values()}
    assert good[0] == good[1]
    [differing] = [seq for seq in odd[0] if odd[0][seq] != odd[1][seq]]
    assert differing == max(good[0]) + 1  # another type
