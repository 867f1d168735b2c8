"""One file: versions, spellings, whose it is, what a cut leaves."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allready.evidence.flight.groups import groups_of
from allready.evidence.flight.names import operation_name, rank_in_name
from allready.evidence.flight.reader import is_dump, read_dump
from allready.evidence.flight.tracks import operation_at, tracks_of
from allready.evidence.reading import FlightDump
from allready.model import CallSite, Operation
from allready.model.fill import in_english
from tests.cases import cases
from tests.clock import timed
from tests.evidence.flight.dialect import torch_pickle
from tests.evidence.flight.make import BEGIN_NS, dump, entry, loaded, recorded
from tests.judging.joined import joined_dumps

QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def as_json(made: dict[str, Any]) -> dict[str, Any]:
    """What `_dump_fr_trace_json` makes of the same records: no frames, text in the status, 0 for no time."""
    entries = [
        {k: 0 if k.startswith("time_") and v is None else v for k, v in e.items() if k != "frames"}
        for e in made["entries"]
    ]
    status = {g: {k: str(v) for k, v in s.items()} for g, s in made["pg_status"].items()}
    return {**made, "entries": entries, "pg_status": status}


def operation_of(found: FlightDump, seq: int) -> Operation:
    """The collective `seq` of the dump's first group, as the join sees it."""
    found.rank = found.rank or 0
    (group, *_) = groups_of({found.rank: found})
    tracks, _ = tracks_of(group)
    made = operation_at(group, tracks[found.rank], seq)
    assert made is not None
    return made


def test_a_recorded_dump_is_read_whole() -> None:
    (found,) = read_dump(recorded("v2_lock")["fr_2"], "fr_2", name_hint="x/fr_2").dumps
    assert (found.rank, found.version, found.backend) == (2, "2.10", "nccl")
    assert found.groups == {"0": ("default_pg", range(4)), "2": ("TP", range(2, 4)), "3": ("DP", (0, 2))}
    # The recorder numbers groups by creation in the process: "1" there is group "2" here.
    assert found.status == {"0": (2, None, 2), "2": (26, None, 25), "3": (25, None, 25)}
    assert found.num_entries == 53
    assert found.is_whole
    assert not found.problems


def test_an_operation_has_all_its_parts() -> None:
    made = dump(
        [entry(1, "nccl:_all_gather_base", size=[[256, 4]], out=4096, dtype="BFloat16", state="scheduled", at_s=1.5)]
    )
    found = operation_of(loaded(made), 1)
    assert found == Operation(
        seq=1,
        name="all_gather",
        num_elements=1024,
        sizes=((256, 4),),
        dtype="bfloat16",
        size_bytes=2048,
        state="scheduled",
        created_s=(BEGIN_NS + 1_500_000_000) / 1e9,
        timeout_s=600.0,
        site=CallSite("/home/user/train.py", 33, "step"),
    )


def test_started_and_completed_times_are_seconds() -> None:
    made = dump([entry(1, at_s=1.0, done_s=3.0, time_discovered_started_ns=BEGIN_NS + 2 * 10**9)])
    found = operation_of(loaded(made), 1)
    assert [round(t - BEGIN_NS / 1e9) for t in (found.created_s, found.started_s, found.completed_s) if t] == [1, 2, 3]


@cases(
    ("recorded_name", "expected"),
    [
        ("nccl:all_reduce", ("all_reduce", "nccl", None, None)),
        ("nccl:_all_gather_base", ("all_gather", "nccl", None, None)),
        ("nccl:all_gather_into_tensor_coalesced", ("all_gather", "nccl", None, None)),
        ("nccl:_reduce_scatter_base", ("reduce_scatter", "nccl", None, None)),
        ("nccl:reduce_scatter_tensor_coalesced", ("reduce_scatter", "nccl", None, None)),
        ("nccl:allreduce_coalesced", ("all_reduce", "nccl", None, None)),
        ("nccl:ALLGATHER_coalesced", ("all_gather", "nccl", None, None)),
        ("nccl:REDUCE_SCATTER_coalesced", ("reduce_scatter", "nccl", None, None)),
        ("nccl:all_to_all", ("all_to_all", "nccl", None, None)),
        ("xccl:all_to_all_v_single", ("all_to_all", "xccl", None, None)),
        ("nccl:all_reduce_barrier", ("barrier", "nccl", None, None)),
        ("gloo:barrier", ("barrier", "gloo", None, None)),
        ("nccl:_broadcast_oop", ("broadcast", "nccl", None, None)),
        ("nccl:coalesced", ("coalesced", "nccl", None, None)),
        ("nccl:send 1->2", ("send", "nccl", 1, 2)),
        ("nccl:recv 3<-0", ("recv", "nccl", 0, 3)),
        ("all_reduce", ("all_reduce", "", None, None)),
        ("odd thing", ("odd", "", None, None)),
    ],
)
def test_operations_have_one_name(recorded_name: str, expected: tuple[object, ...]) -> None:
    assert operation_name(recorded_name) == expected


@cases(
    ("name", "rank"),
    [
        ("fr_0", 0), ("/tmp/nccl_trace_rank_12", 12), ("comm_lib_trace_rank_3", 3), ("rank3.pkl", 3), ("fr_7.json", 7),
        ("dumps.tar.gz!run/nccl_trace_rank_15.pickle.gz", 15), ("rank_3/dump.pkl", 3), ("trace_2_of_8.json", 2),
        ("node1_rank_9_20260101.pkl", 9), ("global_rank5.bin", 5), ("job42_r3.dump", 3), ("nccl-trace-rank-31", 31),
        ("dump.pkl", None), ("", None), ("-", None), ("rank", None), ("fr_12345678901", None),
    ],
)  # fmt: skip
def test_the_rank_in_a_name(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


def test_a_name_that_no_group_knows_is_not_believed() -> None:
    (found,) = read_dump(torch_pickle(dump([entry(1)])), "fr_7", name_hint="fr_7").dumps
    assert found.rank is None
    assert "7" in in_english(found.problems)


def test_the_content_tells_the_rank_where_the_name_does_not() -> None:
    for rank in range(4):
        (found,) = read_dump(recorded("v2_lock")[f"fr_{rank}"], "-", name_hint="-").dumps
        assert found.rank == rank  # of the mesh, only this rank is in both of its groups


def test_the_content_wins_over_the_name() -> None:
    (found,) = read_dump(recorded("v2_lock")["fr_2"], "fr_3", name_hint="fr_3").dumps
    assert found.rank == 2
    assert "the name says 3" in in_english(found.problems)


def test_who_sends_tells_its_rank() -> None:
    made = dump([entry(1, "nccl:send 2->3")], members=(10, 11, 12, 13))
    assert loaded(made, "dump.pkl").rank == 12
    made = dump([entry(1, "nccl:recv 2<-3")], members=(10, 11, 12, 13))
    assert loaded(made, "dump.pkl").rank == 12


def test_nothing_tells_the_rank() -> None:
    found = loaded(dump([entry(1)]), "dump.pkl")
    assert found.rank is None
    assert "neither" in in_english(found.problems)


OLD_KEYS = {
    "1.1": {"pg_config", "pg_status", "comm_lib_version"},
    "1.2": {"pg_status", "comm_lib_version"},
    "2.0": {"pg_status", "comm_lib_version"},
    "2.1": {"comm_lib_version"},
    "2.4": {"comm_lib_version"},
    "2.10": set(),
    "2.99": set(),
}


@cases("version", OLD_KEYS)
def test_every_version_is_read(version: str) -> None:
    entries: list[dict[str, Any]] = [entry(1), entry(2, "nccl:broadcast", state="scheduled")]
    major, minor = (int(p) for p in version.split("."))
    for e in entries:
        if major < 2:
            e["seq_id"] = e.pop("collective_seq_id")
            for key in ("p2p_seq_id", "op_id", "is_p2p", "timeout_ms", "input_dtypes", "output_dtypes"):
                del e[key]
        if (major, minor) < (2, 1):
            e["process_group"] = "0"
        if (major, minor) > (2, 10):
            e["something_new"] = {"a": [1]}
    made = dump(
        entries,
        version=version,
        pg_status={"0": {"last_enqueued_collective": 2, "last_started_collective": -1, "last_completed_collective": 1}},
    )
    made = {k: v for k, v in made.items() if k not in OLD_KEYS[version]}
    found = loaded(made, "nccl_trace_rank_1")
    assert (found.rank, found.version, found.num_entries, found.problems) == (1, version, 2, ())
    assert operation_of(found, 2).name == "broadcast"
    assert operation_of(found, 2).state == "scheduled"
    if "pg_status" in made:
        assert found.status == {"0": (2, None, 1)}


def test_a_bare_list_of_entries_is_read() -> None:
    found = read_dump(pickle.dumps([entry(1), entry(2)]), "fr_0", name_hint="fr_0").dumps[0]
    assert found.num_entries == 2


def test_groups_are_named_by_text_list_or_number() -> None:
    entries = [
        entry(1, process_group="a"),
        entry(1, process_group=["b", "undefined"]),
        entry(1, process_group=None, pg_id=7),
    ]
    assert set(loaded(dump(entries)).rings) == {"a", "b", "7"}


def test_members_may_be_text_or_numbers() -> None:
    for ranks in ("[0, 1]", [0, 1], (0, 1), "0,1"):
        made = dump([entry(1)]) | {"pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}}
        (found,) = read_dump(pickle.dumps(made), "fr_1", name_hint="fr_1").dumps
        assert found.groups == {"0": ("default_pg", range(2))}


def test_json_says_the_same_as_the_pickle() -> None:
    made = dump(
        [entry(1), entry(2, state="scheduled")],
        pg_status={"0": {"last_enqueued_collective": 2, "last_started_collective": -1, "last_completed_collective": 1}},
    )
    (found,) = read_dump(json.dumps(as_json(made)).encode(), "fr_1", name_hint="fr_1").dumps
    expected = loaded(made, "fr_1")
    assert (found.groups, found.status, found.rank) == (expected.groups, expected.status, 1)
    assert found.rings["0"].completed_ns == expected.rings["0"].completed_ns
    assert found.rings["0"].state == expected.rings["0"].state
    assert found.sites == [None]


def test_json_without_entries_is_read() -> None:
    made = dump([]) | {"pg_status": {"0": {"last_enqueued_collective": "5", "last_completed_collective": "4"}}}
    del made["entries"]
    (found,) = read_dump(json.dumps(made).encode(), "fr_1", name_hint="fr_1").dumps
    assert found.status == {"0": (5, None, 4)}
    assert found.num_entries == 0


def test_dumps_in_a_row_are_all_read() -> None:
    texts = [json.dumps(as_json(dump([entry(1)], members=(0, 1)))) for _ in range(2)]
    for between in ("", "\n", "\r\n\r\n", "\n--- next ---\n"):
        reading = read_dump(between.join(texts).encode(), "all.json", name_hint="all.json")
        assert [d.rank for d in reading.dumps] == [None, None]
        assert "do not tell their rank" in str(reading.source.problem)
    named = f"Rank 0: http://a:1\n{texts[0]}\nRank 1: http://b:1\n{texts[1]}\n"
    assert [d.rank for d in read_dump(named.encode(), "all.json", name_hint="all.json").dumps] == [0, 1]


def test_dumps_by_rank_in_one_object_are_read() -> None:
    made = {str(r): as_json(dump([entry(1)])) for r in (0, 2)}
    assert [d.rank for d in read_dump(json.dumps(made).encode(), "a", name_hint="a").dumps] == [0, 2]
    assert [
        d.rank for d in read_dump(pickle.dumps({f"rank_{r}": d for r, d in made.items()}), "a", name_hint="a").dumps
    ] == [0, 2]


def test_pickles_in_a_row_are_all_read() -> None:
    files = recorded("v2_lock")
    reading = read_dump(files["fr_1"] + files["fr_3"] + b"\0" * 500, "all", name_hint="all")
    assert [d.rank for d in reading.dumps] == [1, 3]


def test_cut_json_gives_the_entries_before_the_cut() -> None:
    text = json.dumps(as_json(dump([entry(i) for i in range(1, 30)])), sort_keys=True)
    numbers = []
    for size in range(0, len(text), 97):
        reading = read_dump(text[:size].encode(), "fr_0", name_hint="fr_0")
        numbers.append(sum(d.num_entries for d in reading.dumps))
        assert reading.source.problem
        assert all(d.is_cut for d in reading.dumps)
    assert numbers == sorted(numbers)
    assert numbers[-1] == 29


def test_a_cut_dump_says_so_and_keeps_its_status() -> None:
    data = recorded("v2_lock")["fr_0"]
    reading = read_dump(data[: len(data) // 2], "fr_0", name_hint="fr_0")
    (found,) = reading.dumps
    assert found.is_cut
    assert not found.is_whole
    assert f"after {found.num_entries} entries" in in_english(found.problems)
    assert in_english(found.problems) in str(reading.source.problem)
    assert found.status["3"] == (26, None, 25)


def test_the_status_of_groups_without_entries_goes_by_creation_or_is_left_out() -> None:
    status = {str(i): {"last_enqueued_collective": 10 + i, "last_completed_collective": 10 + i} for i in range(3)}
    groups = {("0", "default_pg"): range(4), ("2", "TP"): (2, 3), ("4", "DP"): (1, 3)}
    found = loaded(dump([], groups=groups, pg_status=status), "fr_3")
    assert found.status == {"0": (10, None, 10), "2": (11, None, 11), "4": (12, None, 12)}
    del groups["2", "TP"]  # which of the three numbers is which is not to be known any more, but for the first
    found = loaded(dump([], groups=groups, pg_status=status), "fr_3")
    assert found.status == {"0": (10, None, 10)}


def test_the_site_is_the_innermost_frame_of_ones_own() -> None:
    def site(*files: str) -> str | None:
        frames = [{"name": f"f{i}", "filename": name, "line": i} for i, name in enumerate(files)]
        found = loaded(dump([entry(1, frames=frames)])).sites[1]
        return None if found is None else str(found)

    torch = "/opt/conda/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    assert site(torch, "/home/u/train.py", "/home/u/main.py") == "/home/u/train.py:1 f1"
    assert site(torch, "/x/site-packages/accelerate/a.py", "/home/u/t.py") == "/home/u/t.py:2 f2"
    assert site("../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp", torch, "train.py") == "train.py:2 f2"
    assert site("<frozen runpy>", torch, "<stdin>") == "<stdin>:2 f2"
    assert site(torch, "/x/site-packages/accelerate/a.py") == "/x/site-packages/accelerate/a.py:1 f1"
    assert site(torch) is None


def test_sizes_that_never_repeat_keep_their_numbers() -> None:
    made = dump([entry(i, "nccl:all_to_all", size=i, out=i + 1) for i in range(1, 2001)])
    found = loaded(made)
    assert len(found.shapes) < 600
    assert [operation_of(found, i).num_elements for i in (1, 700, 2000)] == [1, 700, 2000]
    assert operation_of(found, 2000).sizes == ((2000,),)
    assert operation_of(found, 700).sizes == ()


@cases(
    "entries",
    [
        None, 5, "text", {"a": 1}, [None, 5, "x", [], {}], [{"profiling_name": 5}], [{"profiling_name": "nccl:x"}],
        [entry(1) | {"collective_seq_id": -7}], [entry(1) | {"collective_seq_id": 1 << 60}],
    ],
)  # fmt: skip
def test_entries_that_are_none_are_counted_not_believed(entries: Any) -> None:
    reading = read_dump(pickle.dumps(dump([]) | {"entries": entries}), "fr_0", name_hint="fr_0")
    (found,) = reading.dumps
    assert found.num_entries == 0
    assert reading.source.num_unknown == (len(entries) if isinstance(entries, list) else 0)


@cases(
    "change",
    [
        {"input_sizes": [["a"]]}, {"input_sizes": [[1 << 70]]}, {"input_sizes": [[-1]]}, {"input_sizes": 7},
        {"input_sizes": [[[1]]]}, {"input_sizes": [[1.5, None]]}, {"input_dtypes": [5]}, {"time_created_ns": "soon"},
        {"time_created_ns": 1 << 80}, {"state": 5}, {"state": "melted"}, {"frames": [5, {}, {"line": "x"}]},
        {"process_group": (5, 6)}, {"process_group": ()}, {"p2p_seq_id": None}, {"timeout_ms": "many"},
        {"retired": "yes"}, {"is_p2p": 3}, {"record_id": None}, {"profiling_name": "x" * 100_000},
        {"profiling_name": "nccl:send 99999999->1"}, {"profiling_name": ""}, {"op_id": -5},
    ],
)  # fmt: skip
def test_nonsense_in_one_field_spoils_no_other(change: dict[str, Any]) -> None:
    reading = read_dump(pickle.dumps(dump([entry(1), entry(2) | change, entry(3)])), "fr_0", name_hint="fr_0")
    assert reading.dumps[0].num_entries == 3
    assert len(pickle.dumps(reading)) < 20_000


def test_a_call_in_the_pickle_is_told_and_not_made(capfd: pytest.CaptureFixture[str]) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return print, ("executed",)

    reading = read_dump(pickle.dumps(dump([]) | {"entries": Evil()}), "fr_0", name_hint="fr_0")
    assert not reading.dumps
    assert "nothing of it was executed" in str(reading.source.problem)
    assert capfd.readouterr().out == ""


def test_is_dump_knows_dumps_and_nothing_else() -> None:
    made = dump([entry(1)])
    for protocol in range(6):
        assert is_dump(pickle.dumps(made, protocol)[:4096])
    assert is_dump(json.dumps(as_json(made)).encode()[:4096])
    assert is_dump(recorded("sigkill")["fr_0"][:4096])
    for other in (b"", b"\x80\x02}q\x00.", b"vm:1:2 NCCL INFO entries", b'{"version": 1}', b'{"entries": 5', b"\x80"):
        assert not is_dump(other)


def test_what_is_no_dump_is_said_not_raised() -> None:
    for data in (
        b"",
        b"\x80\x02N.",
        b"{}",
        b"[]",
        b"null",
        b"\0" * 50,
        b"\xff\xfe",
        b"{" * 100_000,
        b"N." * 50_000,
        b'{"a":' * 50_000,
        b'{"entries": [' * 2_000,
    ):
        reading = read_dump(data, "x", name_hint="x")
        assert reading.source.problem
        assert sum(d.num_entries for d in reading.dumps) == 0


@pytest.mark.thorough
def test_groups_of_absurd_sizes_take_little_time_and_memory() -> None:
    ranks = str(list(range(0, 400_000, 2)))
    groups = {str(i): {"name": str(i), "desc": "", "ranks": ranks} for i in range(4000)}
    data = torch_pickle(dump([entry(1)]) | {"pg_config": groups})
    joined, took_s = timed(lambda: joined_dumps(read_dump(data, "fr_0", name_hint="fr_0").dumps), enough_s=10)
    assert took_s < 10
    assert sum(len(g.members) + len(g.absent) for g in joined.progress) < 3_000_000


@QUICK
@given(st.binary(max_size=400))
def test_any_bytes_give_a_reading(data: bytes) -> None:
    for begin in (b"", b"{", b'{"entries":[', b"\x80\x02}("):
        assert read_dump(begin + data, "x", name_hint="x").source.kind == "flight recorder"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
TOP = st.sampled_from(["pg_config", "pg_status", "version", "comm_lib_version"])
FIELDS = st.sampled_from(sorted(entry(1)))


@pytest.mark.thorough
@QUICK
@given(st.lists(st.dictionaries(FIELDS, JUNK, max_size=6), max_size=5), st.dictionaries(TOP, JUNK, max_size=3))
def test_any_content_gives_a_reading(changes: list[dict[str, Any]], top: dict[str, Any]) -> None:
    made = dump([entry(i) | change for i, change in enumerate(changes, 1)]) | top
    try:
        forms = [pickle.dumps(made, 2), json.dumps(made).encode()]
    except (ValueError, UnicodeEncodeError):
        return
    for data in forms:
        reading = read_dump(data, "fr_0", name_hint="fr_0")
        assert pickle.loads(pickle.dumps(reading)).source == reading.source


def test_of_a_group_that_was_destroyed_and_made_again_only_the_last_one_counts() -> None:
    """Its name is the same, and its numbers begin again: `destroy_process_group()`, `init_process_group()`."""
    first = [entry(seq, name="gloo:broadcast", size=3) for seq in (1, 2, 3)]
    second = [entry(seq, name="gloo:all_reduce", size=8) | {"pg_id": 1} for seq in (1, 2)]
    ring = loaded(dump([*first, *second])).rings["0"]
    assert list(ring.seq) == [1, 2]
    # Back-ends of one group count on their own, and a group whose numbers go on is the same one.
    mixed = [entry(1, name="nccl:all_reduce"), entry(1, name="gloo:all_reduce") | {"pg_id": 1}, entry(2)]
    assert list(loaded(dump(mixed)).rings["0"].seq) == [1, 1, 2]
    on = [entry(1), entry(2) | {"pg_id": 1}]
    assert list(loaded(dump(on)).rings["0"].seq) == [1, 2]


def test_of_a_group_that_was_formed_again_in_place_only_the_last_one_counts() -> None:
    """torch 2.15's `_reconfigure` keeps its name and number, and begins to count again."""
    before = [entry(seq, name="gloo:all_reduce") for seq in (52, 53)]
    after = [entry(1, name="gloo:broadcast"), entry(2, name="gloo:broadcast"), entry(3, name="gloo:all_reduce")]
    assert list(loaded(dump([*before, *after])).rings["0"].seq) == [1, 2, 3]
    # A coalesced call has one number, and sends do not count.
    assert list(loaded(dump([entry(1), entry(1), entry(1)])).rings["0"].seq) == [1, 1, 1]


def test_torch_2_15_writes_one_nameless_group_with_numbers_inside_of_a_group() -> None:
    """Seen in a 2-D mesh over Gloo: `[0, 1]` stood there on all four ranks, and ranks 2 and 3 seemed to be others'."""
    said = dump([entry(1, "gloo:all_reduce", group=("4", "mesh_tp"))])
    said |= {"pg_config": {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}, "members": {"4": [2, 3], "9": [1]}}
    data = json.dumps(said).encode()
    [found] = read_dump(data, "rank2/ring.json", name_hint="rank2/ring.json").dumps
    assert (found.rank, found.problems) == (2, ())
    assert found.groups["4"] == ("mesh_tp", range(2, 4))


def test_the_beacon_s_members_count_where_the_recorder_tells_none() -> None:
    said = dump([entry(1)], members=(0, 1))
    for noted in ({"0": [0, 1, 2]}, {"0": "[7"}, ["0"], {"0": [True, -1]}, {}):
        [found] = read_dump(json.dumps(said | {"members": noted}).encode(), "fr_1", name_hint="fr_1").dumps
        assert found.groups == {"0": ("default_pg", range(2))}
    said["pg_config"] = {}
    data = torch_pickle(said) + pickle.dumps({"members": {"0": [0, 2]}}, protocol=2)
    [found] = read_dump(data, "fr_2", name_hint="fr_2").dumps
    assert found.groups == {"0": ("default_pg", (0, 2))}
