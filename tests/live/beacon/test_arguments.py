"""What the beacon notes of calls, with the torch that is here; and torches that have nothing of the kind."""

import json
import pickle
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from allready.evidence.flight.reader import read_dump
from allready.live.beacon.arguments import MAX_MEMBERS, MAX_SPLITS, MODULE, Arguments
from allready.live.beacon.exchanges import MAX_CALLS
from allready.live.beacon.group_hooks import HOOK_ID
from tests.live.beacon.helpers import plain, wrapped

pytestmark = [pytest.mark.torch, pytest.mark.newest, pytest.mark.jobs]

HAS_HOOKS = find_spec("torch") is not None and Version(version("torch")) >= Version("2.14")
HOOKED = pytest.mark.skipif(not HAS_HOOKS, reason="groups have no hooks before torch 2.14")

BEGIN = """
import sys, time
import torch, torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch._C._distributed_c10d import BroadcastOptions as plain
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
until = time.monotonic() + 20
while c10d.BroadcastOptions is plain and type(c10d._pg_map) is dict and time.monotonic() < until:
    time.sleep(0.02)
tensor = torch.ones(8)
"""
SEEN = """
import os
until = time.monotonic() + 30
while not os.path.exists("run/rank0/ring.json") and time.monotonic() < until:
    time.sleep(0.02)  # a beat that sees the groups, or nothing is written at the end
"""
CALLS = (
    """
dist.all_reduce(tensor)
dist.broadcast(tensor, 0)
dist.broadcast(tensor, group_src=0) if "group_src" in dist.broadcast.__wrapped__.__code__.co_varnames else None
dist.reduce(tensor, dst=0)
dist.gather(tensor, [torch.ones(8)], dst=0)
dist.scatter(tensor, [torch.ones(8)], src=0)
dist.all_to_all_single(torch.ones(4, 2), torch.ones(4, 2), [4], [4])
dist.all_to_all_single(torch.ones(8), torch.ones(8))
other = dist.new_group([0])
dist.broadcast(tensor, 0, group=other)
dist.broadcast_object_list(["x"], src=0)
"""
    + SEEN
)


def played(script: str, tmp_path: Path) -> tuple[str, Path]:
    """Output of a rank that runs the script, and its folder."""
    (tmp_path / "train.py").write_text(BEGIN + script)
    ended = wrapped("train.py", cwd=tmp_path, run_dir=tmp_path / "run", TORCH_FR_BUFFER_SIZE="512")
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode(), tmp_path / "run" / "rank0"


CLASSES = """
made = c10d.BroadcastOptions()
class Own(c10d.BroadcastOptions): pass
print(c10d.BroadcastOptions is not plain, type(made) is plain, isinstance(plain(), c10d.BroadcastOptions),
      isinstance(made, plain), issubclass(plain, c10d.BroadcastOptions), type(Own()) is Own,
      isinstance(made, c10d.ReduceOptions), c10d.BroadcastOptions.__name__)
"""


def test_calls_are_noted_under_the_numbers_of_the_recorder_and_classes_stay_what_they_are(tmp_path: Path) -> None:
    said, folder = played(CLASSES + CALLS, tmp_path)
    is_another, *others = said.split()
    assert others == ["True"] * 5 + ["False", "BroadcastOptions"]
    assert is_another == str(not HAS_HOOKS)  # where groups have hooks, the classes of torch are left alone
    ring = json.loads((folder / "ring.json").read_bytes())
    recorded = {(e["process_group"][0], e["collective_seq_id"]): e["profiling_name"] for e in ring["entries"]}
    rows = ring["arguments"]
    assert [row[2] for row in rows][-5:] == ["broadcast"] * 3 + ["all_to_all"] * 2
    assert {row[2] for row in rows} == {"broadcast", "reduce", "gather", "scatter", "all_to_all"}
    for group, seq, operation, root, to_each, from_each in rows:
        assert operation in recorded[group, seq]
        assert (root, to_each, from_each) == ((None, [8], [8]) if operation == "all_to_all" else (0, None, None))
    assert {row[0] for row in rows} == {"0", "1"}
    (dump,) = read_dump((folder / "ring.json").read_bytes(), "ring.json", name_hint="rank0").dumps
    assert any(shape.root == 0 for shape in dump.shapes)
    assert any(shape.splits == ((8,), (8,)) for shape in dump.shapes)


@pytest.mark.slow
def test_compiled_code_stays_as_it_is_and_our_lines_are_in_no_traceback(tmp_path: Path) -> None:
    said, folder = played(
        "def step(x):\n    y = x * 2\n    dist.broadcast(y, 0)\n    return y + 1\n"
        "import torch._dynamo as compiler\ncounted = None\n"
        "hooks = list(c10d._pg_map) if hasattr(c10d.ProcessGroup, 'unregister_pre_hook') else []\n"
        "for kind in (c10d.BroadcastOptions, plain):\n"
        "    c10d.BroadcastOptions = kind\n"
        f"    [group.unregister_pre_hook({HOOK_ID}) for group in hooks if counted]\n"
        "    compiler.reset(); compiler.utils.counters.clear()\n"
        "    value = torch.compile(step, backend='eager')(torch.ones(8))[0].item()\n"
        "    counted = compiler.utils.counters\n"
        "    print(value, sum(counted['graph_break'].values()), counted['frames']['total'])\n"
        + SEEN
        +  # Refused by the backend, after the options were made.
        "try:\n    dist.all_to_all_single(torch.ones(4), torch.ones(4), [4], [5])\n"
        "except Exception:\n    import traceback; print('arguments.py' in traceback.format_exc())\n",
        tmp_path,
    )
    noted, unnoted, is_ours = said.splitlines()
    assert noted == unnoted
    assert is_ours == "False"
    assert ["0", 1, "broadcast", 0, None, None] in json.loads((folder / "ring.json").read_bytes())["arguments"]


@HOOKED
@pytest.mark.parametrize("is_destroyed", [True, False])
def test_groups_have_a_hook_from_their_first_call_to_their_end(is_destroyed: bool, tmp_path: Path) -> None:
    """A process that ends with groups that no rank destroyed ends as it would without hooks."""
    said, folder = played(
        "dist.destroy_process_group()\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.broadcast(tensor, 0)\n"
        "print(len(c10d._pg_map), dist.get_backend(), len(c10d._world.pg_map))\n"
        + SEEN
        + "dist.destroy_process_group(); print(len(c10d._pg_map))\n" * is_destroyed,
        tmp_path,
    )
    assert said.split() == ["1", "gloo", "1", "0"][: 4 if is_destroyed else 3]
    assert ["0", 1, "broadcast", 0, None, None] in json.loads((folder / "ring.json").read_bytes())["arguments"]


@HOOKED
def test_groups_that_were_there_before_get_a_hook_from_the_main_thread(tmp_path: Path) -> None:
    script = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "from allready.live.beacon.arguments import Arguments\n"
        "from threading import Thread, main_thread, current_thread\n"
        "import torch.distributed.distributed_c10d as c10d\n"
        "noted, before = Arguments(), c10d._pg_map\n"
        "thread = Thread(target=noted.attach); thread.start(); thread.join()\n"
        "dist.reduce(torch.ones(8), dst=0)\n"
        "second = dist.new_group([0])\n"
        "print(noted.attached, noted.noted(), repr(noted.problem), before == c10d._pg_map, len(before))\n"
        "dist.destroy_process_group(second); print(len(before), len(c10d._pg_map))\n"
        "group = next(iter(before)); del c10d._pg_map[group]; print(len(before), len(c10d._pg_map))\n"
        "before[group] = ('gloo', None); noted.attach(); print(len(before), len(c10d._pg_map))\n"
    )
    (tmp_path / "late.py").write_text(script)
    ended = plain("late.py", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr.decode()
    assert ended.stdout.decode().splitlines() == [
        "('hooks',) [('0', 1, 'reduce', 0, None, None)] '' True 2", "1 1", "0 0", "1 1",
    ]  # fmt: skip


OWN_BACKEND = (
    """
from torch._C._distributed_c10d import Backend, Work
class Done(Work):
    def wait(self, timeout=None): return True
    def is_completed(self): return True
class Own(Backend):
    def getBackendName(self): return "own"
    def allreduce(self, tensors, options): return Done()
    def broadcast(self, tensors, options): return Done()
dist.Backend.register_backend("mine", lambda store, rank, size, timeout: Own(rank, size), devices=["cpu"])
dist.destroy_process_group()
dist.init_process_group("mine", store=dist.HashStore(), rank=0, world_size=1)
for _ in range(3):
    dist.all_reduce(tensor)
dist.broadcast(tensor, 0)
"""
    + SEEN
)


@HOOKED
def test_the_recorder_of_a_backend_that_a_hook_of_torch_records_is_read(tmp_path: Path) -> None:
    """As nccl2's: under a name of its own, numbered by the hook's count of all operations."""
    _, folder = played(OWN_BACKEND, tmp_path)
    data = (folder / "ring.json").read_bytes()
    ring = json.loads(data)
    assert [(e["profiling_name"], e["collective_seq_id"]) for e in ring["entries"]] == [
        ("own:all_reduce", 1), ("own:all_reduce", 2), ("own:all_reduce", 3), ("own:broadcast", 4),
    ]  # fmt: skip
    assert ring["arguments"] == [["0", 3, "broadcast", 0, None, None]]  # by op_id
    (dump,) = read_dump(data, "ring.json", name_hint="rank0").dumps
    assert dump.status["0"][0] == 4
    assert [shape.root for shape in dump.shapes if shape.name == "broadcast"] == [0]


def with_module(monkeypatch: pytest.MonkeyPatch, **names: Any) -> ModuleType:
    made = ModuleType(MODULE)
    vars(made).update({"all_to_all_single": lambda: None} | names)
    monkeypatch.setitem(sys.modules, MODULE, made)
    return made


def test_a_torch_without_these_classes_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Final(type):
        def __call__(cls, *args: object) -> object:
            return super().__call__(*args)

    def refuse(*_: object, **__: object) -> None:
        raise TypeError("no class below me")

    plain = Final("ReduceOptions", (), {"__init_subclass__": refuse})
    made = with_module(monkeypatch, BroadcastOptions=lambda: "made", ReduceOptions=plain)
    before = dict(vars(made))
    noted = Arguments()
    noted.attach()
    assert (noted.attached, noted.noted(), vars(made)) == ((), [], before)


def test_not_before_torch_distributed_is_there_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    first, second = Arguments(), Arguments()
    first.attach()
    made = with_module(monkeypatch, BroadcastOptions=type("BroadcastOptions", (), {}))
    half = made.all_to_all_single
    del made.all_to_all_single
    first.attach()
    assert not first.attached
    made.all_to_all_single = half  # type: ignore[attr-defined]
    first.attach()
    replaced = made.BroadcastOptions
    first.attach()
    second.attach()
    assert [a.attached for a in (first, second)] == [("BroadcastOptions",), ()]
    assert made.BroadcastOptions is replaced


def test_other_arguments_than_expected_hurt_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = type("BroadcastOptions", (), {})
    made = with_module(monkeypatch, BroadcastOptions=plain)
    noted = Arguments()
    noted.attach()
    exec("def broadcast(what):\n    return BroadcastOptions()\n", vars(made))
    assert type(made.broadcast(1)) is plain
    assert type(made.BroadcastOptions()) is plain  # from elsewhere
    assert noted.noted() == []
    assert noted.problem == "arguments of a call cannot be read: KeyError: 'group'"


def test_of_too_many_splits_the_newest_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    number = MAX_MEMBERS
    numbers = iter(range(2000))
    group = SimpleNamespace(size=lambda: number, group_name="g", _get_sequence_number_for_group=lambda: next(numbers))
    made = with_module(
        monkeypatch,
        AllToAllOptions=type("AllToAllOptions", (), {}),
        _get_default_group=lambda: group,
        BroadcastOptions=type("BroadcastOptions", (), {}),
        get_global_rank=lambda _, rank: rank + 7,
    )
    noted = Arguments()
    noted.attach()
    text = (
        "def all_to_all(output_tensor_list, input_tensor_list, group=None):\n    return AllToAllOptions()\n"
        "def broadcast(tensor, src, group, group_src):\n    return BroadcastOptions()\n"
    )
    exec(text, vars(made))
    parts = [SimpleNamespace(numel=lambda: 3)] * number
    made.broadcast(None, None, group, 2)
    num_kept = MAX_SPLITS // number // 2
    for _ in range(num_kept + 3):
        made.all_to_all(parts, parts)
    made.all_to_all(parts[1:], parts)  # torch will refuse it
    told = noted.noted()
    assert told[0] == ("g", 1, "broadcast", 9, None, None)
    assert [row[1] for row in told[1:]] == list(range(5, 5 + num_kept))
    assert told[-1][4] == (3,) * number
    group.size = lambda: 1
    for _ in range(MAX_CALLS + 5):
        made.all_to_all(parts[:1], parts[:1])
    told = noted.noted()
    assert len(told) == 1 + MAX_CALLS
    assert noted._num_splits == 2 * MAX_CALLS
    group.size = lambda: MAX_MEMBERS + 1
    made.all_to_all([*parts, parts[0]], [*parts, parts[0]])
    assert noted.noted() == told


def test_a_dump_stays_a_pickle_for_others() -> None:
    """Who loads one object sees what torch wrote; ours reads what follows."""
    from allready.live.beacon.recorder import _pickled

    plain = {"version": "2.10", "entries": [], "pg_config": {}}
    data = pickle.dumps(plain, protocol=2) + _pickled({"arguments": [["0", 3, "broadcast", 1, None, None]]})
    assert pickle.loads(data) == plain
    assert _pickled({}) == b""
    reading = read_dump(data, "dump.pickle", name_hint="rank0")
    assert len(reading.dumps) == 1
    assert reading.source.problem is None
