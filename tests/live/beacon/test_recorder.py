"""torch's recorders as different versions have them, in the place of torch."""

import json
import pickle
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from allready.live.beacon import recorder as module
from allready.live.beacon.group import GroupCounters
from allready.live.beacon.recorder import FlightRecorders, names_in_ring
from tests.cases import cases


def status(enqueued: object, completed: object = -1, started: object = -1) -> dict[str, object]:
    return {
        "last_enqueued_collective": enqueued,
        "last_started_collective": started,
        "last_completed_collective": completed,
    }


class Torch:
    """What is asked of torch: one recorder of the newest kind unless a test says otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.c10d = ModuleType("torch._C._distributed_c10d")
        groups = {object(): name for name in ("0", "7")}
        first, second = groups
        self.world = SimpleNamespace(
            pg_map=dict.fromkeys(groups),
            pg_names=groups,
            pg_group_ranks={first: {0: 0, 1: 1, 2: 2}, second: {2: 1, 0: 0}},
        )
        python = ModuleType("torch.distributed.distributed_c10d")
        python._world = self.world  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", self.c10d)
        monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", python)

    def records(self, kind: str, said: dict[str, Any], *, as_text: bool = False, only_pickle: bool = False) -> None:
        def ring(entries: bool, active: bool) -> bytes | str:
            text = json.dumps(
                said if entries else {k: v for k, v in said.items() if k != "entries"}, separators=(",", ":")
            )
            return text if as_text else text.encode()

        def dump(entries: bool, stacks: bool, active: bool) -> bytes:
            return pickle.dumps(said)

        if not only_pickle:
            setattr(self.c10d, f"_dump_{kind}_trace_json", ring)
        setattr(self.c10d, f"_dump_{kind}_trace", dump)


MEMBERS = {"0": [0, 1, 2], "7": [0, 2]}
"""As `Torch` has them; no recorder of Gloo writes them down."""


def entry(number: int, name: str, label: str = "undefined") -> dict[str, object]:
    return {"pg_id": number, "process_group": [name, label], "collective_seq_id": 1}


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return Torch(monkeypatch)


def groups_of(recorder: FlightRecorders) -> dict[str, GroupCounters]:
    recorder.sample(100.0)
    recorder.write_ring()
    return {g.name: g for g in recorder.sample(101.0)}


def written(folder: Path, name: str = "ring.json") -> Any:
    """What the recorder said, without the time and the members that the beacon adds."""
    found = json.loads((folder / name).read_bytes())
    assert 0 < found.pop("taken_ns") <= time.time_ns()
    assert found.pop("members") == MEMBERS
    return found


def dumped(folder: Path) -> Any:
    """The recorder's pickle, without the beacon's, which follows it."""
    with (folder / "dump.pickle").open("rb") as file:
        said, notes = pickle.load(file), pickle.load(file)
        assert not file.read()
    assert notes == {"members": MEMBERS}
    return said


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("kind", ["fr", "nccl"])
def test_numbers_of_groups_become_names_by_the_entries(kind: str, as_text: bool, torch: Torch, tmp_path: Path) -> None:
    said = {
        "pg_status": {"0": status("12", "11"), "3": status(5, 5, 5), "9": status(1), "x": status(1), "4": status("y")},
        "entries": [entry(0, "0", "default_pg"), entry(3, "7"), entry(0, "0", "default_pg")],
    }
    torch.records(kind, said, as_text=as_text)
    recorder = FlightRecorders(str(tmp_path))
    found = groups_of(recorder)
    assert set(found) == {"0", "7"}
    assert (found["0"].enqueued, found["0"].completed, found["0"].started) == (12, 11, None)
    assert (found["0"].label, found["0"].members, found["0"].pending_s) == ("default_pg", "0-2", 101.0)
    assert (found["7"].label, found["7"].members, found["7"].pending_s, found["7"].started) == ("", "0,2", None, 5)
    assert recorder.problems == []
    assert written(tmp_path) == said
    recorder.write_dump()
    assert dumped(tmp_path) == said


def test_a_torch_that_has_only_the_pickle_is_understood(torch: Torch, tmp_path: Path) -> None:
    said = {"pg_status": {"0": status(3, 2)}, "entries": [{"pg_id": 0, "process_group": ("0", "default_pg")}]}
    torch.records("nccl", said, only_pickle=True)
    found = groups_of(FlightRecorders(str(tmp_path)))
    assert found["0"].enqueued == 3
    assert json.loads((tmp_path / "ring.json").read_bytes())["entries"][0]["process_group"] == ["0", "default_pg"]


def test_two_recorders_of_one_process_are_kept_apart(torch: Torch, tmp_path: Path) -> None:
    torch.records("nccl", {"pg_status": {"0": status(9, 9)}, "entries": [entry(0, "0", "default_pg")]})
    torch.records(
        "fr", {"pg_status": {"0": status(2, 1), "1": status(4, 4)}, "entries": [entry(0, "0"), entry(1, "7")]}
    )
    found = groups_of(FlightRecorders(str(tmp_path)))
    assert {n: g.enqueued for n, g in found.items()} == {"0": 9, "0:cpu": 2, "7": 4}
    assert found["0:cpu"].members == "0-2"
    assert len(json.loads((tmp_path / "ring.json").read_bytes())["entries"]) == 1
    assert len(json.loads((tmp_path / "ring.cpu.json").read_bytes())["entries"]) == 2


def test_a_recorder_that_records_nothing_leaves_the_plain_names_to_the_other(torch: Torch, tmp_path: Path) -> None:
    torch.records("nccl", {"pg_config": {}, "entries": []})
    torch.records("fr", {"pg_status": {"0": status(2, 1)}, "entries": [entry(0, "0")]})
    recorder = FlightRecorders(str(tmp_path))
    groups_of(recorder)
    recorder.write_dump()
    assert {p.name for p in tmp_path.iterdir()} == {"ring.json", "dump.pickle"}
    assert b'"pg_id":0' in (tmp_path / "ring.json").read_bytes()


class Named:
    """torch 2.15: one recorder for each backend, made when it is asked for."""

    def __init__(self, torch: Torch, said: dict[str, dict[str, Any]]) -> None:
        # The NCCL backend of releases before 2.15 is still there, and records nothing.
        torch.records("nccl", {"pg_config": {}, "pg_status": {}})
        self.said, self.asked = said, set[str]()
        torch.c10d._dump_fr_trace_json = self.ring  # type: ignore[attr-defined]
        torch.c10d._dump_fr_trace = self.dump  # type: ignore[attr-defined]

    def ring(self, entries: bool, active: bool, backend: str = "gloo") -> bytes:
        self.asked.add(backend)
        said = self.said.get(backend, {"pg_config": {}, "pg_status": {}})
        return json.dumps({k: v for k, v in said.items() if entries or k != "entries"}, separators=(",", ":")).encode()

    def dump(self, entries: bool, stacks: bool, active: bool, backend: str = "gloo") -> bytes:
        return pickle.dumps(json.loads(self.ring(entries, active, backend)))


def test_each_backend_in_use_is_asked_for_its_own_recorder(torch: Torch, tmp_path: Path) -> None:
    """nccl2's counts begin with 0, and its file is that of the GPUs."""
    first, second = torch.world.pg_map
    torch.world.pg_backend_config = {first: "cpu:gloo,cuda:nccl", second: "cuda:nccl"}
    nccl2 = {"pg_status": {"0": status(8, 7), "1": status(0, -1)}, "entries": [entry(0, "0"), entry(1, "7")]}
    gloo = {"pg_status": {"0": status(4, 4)}, "entries": [entry(0, "0")]}
    named = Named(torch, {"nccl2": nccl2, "gloo": gloo})
    recorder = FlightRecorders(str(tmp_path))
    found = groups_of(recorder)
    assert {n: (g.enqueued, g.completed) for n, g in found.items()} == {"0": (9, 8), "7": (1, 0), "0:cpu": (4, 4)}
    assert named.asked == {"nccl2", "gloo", "c10d"}
    recorder.write_dump()
    assert written(tmp_path) == nccl2
    assert written(tmp_path, "ring.cpu.json") == gloo
    assert dumped(tmp_path) == nccl2
    assert pickle.loads((tmp_path / "dump.cpu.pickle").read_bytes()) == gloo
    assert recorder.problems == []


def test_a_backend_that_comes_later_is_asked_then_and_by_what_it_calls_itself(torch: Torch, tmp_path: Path) -> None:
    both = dict(torch.world.pg_map)
    first, _ = both
    torch.world.pg_map = {first: None}
    torch.world.pg_backend_config = {first: "cpu:gloo"}
    said = {
        "gloo": {"pg_status": {"0": status(4, 4)}, "entries": [entry(0, "0")]},
        "own": {"pg_status": {"0": status(2, -1)}, "entries": [entry(0, "7")]},
    }
    named = Named(torch, said)
    recorder = FlightRecorders(str(tmp_path))
    assert set(groups_of(recorder)) == {"0"}
    assert named.asked == {"gloo"}
    own = SimpleNamespace(name=lambda: "own")
    torch.world.pg_map = both
    torch.world.pg_backend_config[SimpleGroup(own)] = "cuda:mine"
    assert {n: g.enqueued for n, g in groups_of(recorder).items()} == {"0": 4, "7": 3}
    assert {"own", "mine"} < named.asked


class SimpleGroup:
    """A process group of one device."""

    _device_types = ("cuda",)

    def __init__(self, backend: object) -> None:
        self._get_backend = lambda _: backend


def test_of_a_name_that_was_used_again_the_newer_group_counts(torch: Torch, tmp_path: Path) -> None:
    said = {"pg_status": {"0": status(99, 99), "5": status(3, 2)}, "entries": [entry(0, "0"), entry(5, "0")]}
    torch.records("fr", said)
    assert groups_of(FlightRecorders(str(tmp_path)))["0"].enqueued == 3


def test_a_group_that_is_made_anew_is_known_before_its_first_entry_is_read(torch: Torch, tmp_path: Path) -> None:
    """The one before is gone; torch's recorder still tells of it, and of what was pending in it."""
    said: dict[str, Any] = {"pg_status": {"0": status(9, 8)}, "entries": [entry(0, "0", "default_pg")]}
    torch.world.pg_map = torch.world.pg_names = {object(): "0"}
    torch.records("fr", said)
    recorder = FlightRecorders(str(tmp_path))
    assert groups_of(recorder)["0"].pending_s is not None
    torch.world.pg_map = torch.world.pg_names = {object(): "2"}
    said["pg_status"]["1"] = status(3, 2)
    [group] = recorder.sample(102.0)
    assert (group.name, group.label, group.enqueued, group.pending_s) == ("2", "default_pg", 3, 102.0)


def test_without_groups_nothing_is_asked(torch: Torch, tmp_path: Path) -> None:
    torch.records("fr", {"pg_status": {"0": status(1)}})
    torch.world.pg_map = {}
    recorder = FlightRecorders(str(tmp_path))
    assert recorder.sample(1.0) == []
    assert not recorder.has_sources()
    assert not recorder.is_ring_due()


def test_a_torch_without_a_recorder_says_so(torch: Torch, tmp_path: Path) -> None:
    recorder = FlightRecorders(str(tmp_path))
    assert recorder.sample(1.0) == []
    assert not recorder.has_sources()
    recorder.write_ring()
    recorder.write_dump()
    assert list(tmp_path.iterdir()) == []


@cases("answer", [b"{", b"[]", b'{"pg_status":7}', b'{"pg_status":{"0":[]}}', b"\xff", b"{}"])
def test_a_recorder_that_talks_nonsense_is_told_or_passed_over(answer: bytes, torch: Torch, tmp_path: Path) -> None:
    torch.c10d._dump_fr_trace_json = lambda entries, active: answer  # type: ignore[attr-defined]
    recorder = FlightRecorders(str(tmp_path))
    assert recorder.sample(1.0) == []
    assert recorder.sample(2.0) == []
    assert len(recorder.problems) == (1 if answer in {b"{", b"\xff"} else 0)


def test_a_recorder_that_fails_is_told_once_and_not_asked_again(torch: Torch, tmp_path: Path) -> None:
    calls: list[int] = []

    def fail(entries: bool, active: bool) -> bytes:
        calls.append(1)
        raise RuntimeError("the device is gone")

    torch.c10d._dump_nccl_trace_json = fail  # type: ignore[attr-defined]
    torch.records("fr", {"pg_status": {"0": status(1)}, "entries": [entry(0, "0")]})
    recorder = FlightRecorders(str(tmp_path))
    assert set(groups_of(recorder)) == {"0"}
    assert len(calls) == 1
    assert recorder.problems == ["the flight recorder does not answer: RuntimeError: the device is gone"]


class Clock:
    """In the place of `time`."""

    def __init__(self) -> None:
        self.now = self.cpu = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now

    def thread_time(self) -> float:
        return self.cpu


def test_the_ring_is_read_when_something_moved_and_never_too_often(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    said: dict[str, Any] = {"pg_status": {"0": status(1)}, "entries": [entry(0, "0")]}
    torch.records("fr", said)
    recorder = FlightRecorders(str(tmp_path))

    def move() -> None:
        said["pg_status"]["0"] = status(said["pg_status"]["0"]["last_enqueued_collective"] + 1)
        recorder.sample(clock.now)

    recorder.sample(0.0)
    assert recorder.is_ring_due()  # the name is not known yet
    recorder.write_ring()
    move()
    assert not recorder.is_ring_due()
    clock.now = 2.1
    assert recorder.is_ring_due()
    source = (recorder._sources or [])[0]
    real = source.ring
    assert real is not None

    def slow(entries: bool, active: bool) -> Any:
        clock.cpu += 0.045
        return real(entries, active)

    source.ring = slow
    recorder.write_ring()
    clock.now = 10.0
    assert not recorder.is_ring_due()  # nothing moved
    move()
    assert not recorder.is_ring_due()  # 45 ms are 0.25 % of 18 s
    clock.now = 15.9
    assert not recorder.is_ring_due()
    clock.now = 16.1  # when all ranks read theirs, be it every 2, 4, 8 or 16 s
    assert recorder.is_ring_due()
    recorder.write_ring()
    move()
    clock.now = 31.9
    assert not recorder.is_ring_due()
    clock.now = 32.0
    assert recorder.is_ring_due()


@pytest.mark.parametrize(("per_s", "every_s"), [(6, 8.0), (20, 8.0), (60, 4.0), (90, 2.0)])
def test_the_ring_of_a_job_that_goes_on_as_before_is_read_less_often(
    per_s: int, every_s: float, torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only as far as the ring holds all that was done meanwhile; and as often as ever once the speed is another."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    said: dict[str, Any] = {"pg_status": {"0": status(1)}, "entries": [entry(0, "0")] * 320}
    torch.records("fr", said)
    recorder = FlightRecorders(str(tmp_path))

    def read_at(begin_s: float, end_s: float, speed: float) -> list[int]:
        before = said["pg_status"]["0"]["last_enqueued_collective"]
        read: list[int] = []
        for look in range(1, round((end_s - begin_s) / 0.2) + 1):
            clock.now = begin_s + look * 0.2 + 0.001
            said["pg_status"]["0"] = status(before + int(look * 0.2 * speed))
            recorder.sample(clock.now)
            if recorder.is_ring_due():
                recorder.write_ring()
                read.append(round(clock.now))
        return read

    assert len(read_at(0.0, 10.0, per_s)) >= 5
    assert {b - a for a, b in pairwise(read_at(10.0, 64.0, per_s)[2:])} == {every_s}
    assert [read for read in read_at(64.0, 72.0, per_s / 2) if read > 66] == [68, 70, 72]


def done(seq: int, *, retired: bool = True, p2p: bool = False, number: int = 0) -> dict[str, object]:
    return entry(number, "0") | {"collective_seq_id": seq, "retired": retired, "is_p2p": p2p}


@pytest.mark.parametrize(
    ("kind", "entries", "completed"),
    [
        ("fr", [done(1), done(2), done(3), done(4)], 4),
        ("fr", [done(1), done(2), done(3), done(4, retired=False)], 3),
        ("fr", [done(2), done(3, retired=False), done(4, retired=False), done(9, number=5)], 2),
        ("fr", [done(3, retired=False), done(4)], 2),
        ("fr", [done(2), done(3)], 2),  # of another moment
        ("fr", [done(3), done(4), done(4, retired=False, p2p=True)], 2),  # these are counted otherwise
        ("fr", [done(3), done(4), done(4, p2p=True)], 4),
        ("fr", [], 2),
        ("nccl", [done(1), done(2), done(3), done(4)], 2),  # one thread notes them in their order
    ],
)
def test_a_counter_that_stays_behind_is_set_right_by_the_ring(
    kind: str,
    entries: list[dict[str, object]],
    completed: int,
    torch: Torch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two operations of Gloo completed at one moment, and the earlier one was noted last."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    said: dict[str, Any] = {"pg_status": {"0": status(2, 2)}, "entries": [entry(0, "0")]}
    torch.records(kind, said)
    recorder = FlightRecorders(str(tmp_path))
    recorder.sample(0.0)
    recorder.write_ring()
    said |= {"pg_status": {"0": status(4, 2)}, "entries": entries}
    clock.now = 0.1
    (group,) = recorder.sample(0.1)
    assert (group.completed, group.pending_s, recorder.is_ring_due()) == (2, 0.1, False)
    clock.now = 0.8
    recorder.sample(0.8)
    assert recorder.is_ring_due() is (kind == "fr")
    clock.now = 9.0
    recorder.write_ring()
    recorder.sample(9.0)
    (group,) = recorder.sample(9.1)
    assert (group.completed, group.pending_s is None) == (completed, completed == 4)
    clock.now = 20.0
    if completed == 2:
        assert not recorder.is_ring_due()  # it has been looked up
    said["pg_status"] = {"0": status(5, 5)}
    (group,) = recorder.sample(20.0)
    assert group.completed == 5


@cases(
    ("numbers", "pending_s", "moved_s"),
    [
        ([(4, 4)], None, 1.0),
        ([(4, 4), (5, 4)], 2.0, 2.0),
        ([(4, 4), (5, 4), (5, 4)], 2.0, 2.0),
        ([(4, 4), (5, 4), (5, 4), (6, 5)], 4.0, 4.0),
        ([(5, 4), (6, 4), (6, 5)], 2.0, 3.0),
        ([(5, 4), (6, 5), (6, 6)], None, 3.0),
        ([(1, None)], 1.0, 1.0),
    ],
)
def test_waiting_begins_with_the_newest_operation(
    numbers: list[tuple[int, int | None]], pending_s: float | None, moved_s: float
) -> None:
    group = GroupCounters("0")
    for at, (enqueued, completed) in enumerate(numbers):
        group.update(at + 1.0, enqueued, None, completed)
    assert (group.pending_s, group.moved_s) == (pending_s, moved_s)


@cases("name", ["0", 'a "b"', "x]y", "组", "a\\b", "mesh[0, 1]"])
def test_odd_names_are_found(name: str) -> None:
    for ascii_only in (True, False):
        ring = json.dumps({"entries": [entry(4, name, "TP")]}, separators=(",", ":"), ensure_ascii=ascii_only).encode()
        assert names_in_ring(ring) == {"4": (name, "TP")}
    other_order = json.dumps({"entries": [{"process_group": [name, "TP"], "pg_id": 4}]}, separators=(",", ":")).encode()
    assert names_in_ring(other_order) == {"4": (name, "TP")}


def test_a_ring_without_entries_has_no_names() -> None:
    assert names_in_ring(b"{}") == {}
    assert names_in_ring(b'{"entries":[{"pg_id":0}]}') == {}


def test_a_disk_that_is_full_leaves_the_old_ring(torch: Torch, tmp_path: Path) -> None:
    torch.records("fr", {"pg_status": {"0": status(1)}, "entries": [entry(0, "0")]})
    recorder = FlightRecorders(str(tmp_path))
    groups_of(recorder)
    before = (tmp_path / "ring.json").read_bytes()
    (tmp_path / "ring.json.part").mkdir()
    with pytest.raises(OSError):
        recorder.write_ring()
    recorder.failed(OSError("no space"))
    assert (tmp_path / "ring.json").read_bytes() == before
    assert "cannot be written" in recorder.problems[0]


def test_collectives_of_a_whole_script_are_counted_by_group_with_its_members(torch: Torch, tmp_path: Path) -> None:
    calls = [entry(0, "0", "default_pg"), entry(0, "0", "default_pg") | {"collective_seq_id": 2}, entry(1, "7")]
    torch.records("fr", {"pg_status": {"0": status(2, 2)}, "entries": calls})
    recorder = FlightRecorders(str(tmp_path))
    assert recorder.made() == []
    recorder.sample(100.0)
    made = [(g.name, g.enqueued, g.label, g.members) for g in recorder.made()]
    assert made == [("0", 2, "default_pg", "0-2"), ("7", 1, "", "0,2")]
