"""Pickles: torch's are read fast, others are read, hostile ones do nothing."""

import contextlib
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allready.evidence.flight.machine import PickleMachine, RefusedError
from allready.evidence.flight.unpickle import dialect_end, load
from allready.model.fill import in_english
from tests.cases import cases
from tests.evidence.flight.dialect import torch_pickle
from tests.evidence.flight.make import dump, entry, recorded

SCENARIOS = ("dataloader_stall", "eval_branch", "exception", "link_down", "sigkill", "sigstop", "v2_lock")
QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Evil:
    """What an attacker's pickle would do when loaded."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call, self.arguments


@pytest.fixture(params=SCENARIOS)
def files(request: pytest.FixtureRequest) -> dict[str, bytes]:
    return recorded(request.param)


def test_every_dump_that_torch_wrote_takes_the_fast_way(files: dict[str, bytes]) -> None:
    for data in files.values():
        assert dialect_end(data) == len(data)


@pytest.mark.thorough
def test_both_ways_read_the_same(files: dict[str, bytes]) -> None:
    for data in files.values():
        expected = pickle.loads(data)  # our own recording
        assert load(data).value == expected
        machine = PickleMachine(data)
        assert machine.run() == expected
        assert machine.problem is None


def test_the_tests_write_what_torch_writes() -> None:
    data = recorded("dataloader_stall")["fr_0"]
    assert torch_pickle(pickle.loads(data)) == data


@cases("protocol", range(6))
def test_every_protocol_is_read(protocol: int) -> None:
    expected = pickle.loads(recorded("v2_lock")["fr_0"])
    data = pickle.dumps(expected, protocol)
    found = load(data)
    assert (found.value, found.end, found.problem) == (expected, len(data), None)


def test_a_call_is_refused_and_not_made(tmp_path: Any) -> None:
    witness = tmp_path / "was here"
    for protocol in range(6):
        for evil in (
            Evil(os.system, f"touch '{witness}'"),
            Evil(eval, "1/0"),
            Evil(exec, f"open({str(witness)!r}, 'w')"),
        ):
            hidden = dump([entry(1)]) | {"comm_lib_version": evil}
            data = pickle.dumps(hidden, protocol)
            with pytest.raises(RefusedError, match="nothing of it was executed"):
                load(data)
    assert not witness.exists()


@cases(
    ("token", "name"),
    [
        (b"cos\nsystem\n", "GLOBAL os.system"), (b"\x8c\x02os\x8c\x06system\x93", "STACK_GLOBAL"),
        (b"X\x02\x00\x00\x00os)R", "REDUCE"), (b"}}b", "BUILD"), (b"(ios\nsystem\n", "INST os.system"),
        (b"(No", "OBJ"), (b"N)\x81", "NEWOBJ"), (b"N)}\x92", "NEWOBJ_EX"), (b"\x82\x01", "EXT1"),
        (b"\x83\x01\x00", "EXT2"), (b"\x84\x01\x00\x00\x00", "EXT4"), (b"Pname\n", "PERSID"), (b"NQ", "BINPERSID"),
        (b"\x97", "NEXT_BUFFER"), (b"\x98", "READONLY_BUFFER"), (b"\x8f", "EMPTY_SET"), (b"(\x91", "FROZENSET"),
    ],
)  # fmt: skip
def test_every_token_that_is_more_than_data_is_refused_by_name(token: bytes, name: str) -> None:
    for around in (b"%b.", b"\x80\x02%b.", b"\x80\x02}(X\x07\x00\x00\x00versionq\x00%bu."):
        with pytest.raises(RefusedError, match=name):
            load(around % token)


def _bomb_of_lists(levels: int) -> bytes:
    """Each list holds the one before it ten times: 10 ** levels leaves."""
    body = b"]q\x00"
    for level in range(1, levels):
        body += b"](" + b"h" + bytes([level - 1])
        body += (b"h" + bytes([level - 1])) * 9 + b"e" + b"q" + bytes([level])
    return body


def _bomb_of_tuples(levels: int, token: bytes = b"\x86") -> bytes:
    """Hashing the last one takes 2 ** levels steps."""
    body = b"K\x01K\x01" + token + b"q\x00"
    for level in range(1, levels):
        body += b"h" + bytes([level - 1]) + b"h" + bytes([level - 1]) + token + b"q" + bytes([level])
    return body


def _hostile() -> Iterator[tuple[str, bytes]]:
    deep = 300_000
    yield "lists in lists", b"\x80\x02" + b"](" * deep + b"e" * deep + b"."
    yield "dicts in dicts", b"\x80\x02" + b"}(K\x01" * deep + b"N" + b"u" * deep + b"."
    yield "tuples in tuples as a key", b"\x80\x02}(N" + b"\x85" * deep + b"K\x01u."
    yield "pairs in pairs as a key", b"\x80\x02}(N" + b"h\x00\x86" * deep + b"K\x01u."
    yield "a billion laughs", b"\x80\x02" + _bomb_of_lists(60) + b"."
    yield "a billion laughs as a key", b"\x80\x02}(" + _bomb_of_tuples(60) + b"K\x01u."
    yield (
        "a hidden billion laughs as a key",
        (b"\x80\x02}(X\x01\x00\x00\x00aq\x00h\x00h\x00\x86" + b"q\x01h\x01h\x01\x86" * 60 + b"K\x01u."),
    )
    yield "text of 4 GiB", b"\x80\x02X\xff\xff\xff\xffabc."
    yield "text of 2**63 bytes", b"\x80\x04\x8d" + struct.pack("<Q", 1 << 63) + b"abc."
    yield "bytes of 2**40", b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"abc."
    yield "a number of 2 GiB", b"\x80\x02\x8b" + struct.pack("<i", (1 << 31) - 1) + b"abc."
    yield "a number of a million digits", b"I" + b"9" * 1_000_000 + b"\n."
    yield "memo number 2**31", b"\x80\x02]r\xff\xff\xff\x7f."
    yield "memo number of twenty digits", b"]p99999999999999999999\n."
    yield "a frame of 2**60 bytes", b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N."
    yield "millions of containers", b"\x80\x02](" + b"}]" * 4_000_000 + b"e."
    yield "millions of marks", b"\x80\x02" + b"(" * 3_000_000
    yield (
        "keys that collide",
        b"\x80\x02}("
        + b"".join(b"\x8a\x09" + ((i << 61) - i).to_bytes(9, "little", signed=True) + b"N" for i in range(1, 1000))
        * 100
        + b"u.",
    )
    yield "a container of itself", b"\x80\x02]q\x00(h\x00e."
    yield "a dict of itself", b"\x80\x02}q\x00(X\x07\x00\x00\x00entriesh\x00u."


MAX_CPU_S = 60.0  # seconds on a quiet machine: a bomb that went off would need hours
MEASURE = """
import resource, sys, time
sys.path.insert(0, sys.argv[1])
from tests.evidence.flight.test_unpickle import RefusedError, _hostile, load
from allready.model.fill import in_english
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, data in _hostile():
    began_s = time.process_time()
    try:
        load(data)
    except RefusedError:
        pass
    took_s = time.process_time() - began_s
    print(name, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, f"{took_s:.1f}")
"""


@pytest.mark.thorough
def test_hostile_pickles_take_little_memory_and_time() -> None:
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, root], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    taken = [line.rsplit(" ", 2) for line in done.stdout.splitlines()]
    assert len(taken) == len(list(_hostile()))
    assert max(int(mib) for _, mib, _ in taken) < 300, taken
    assert max(float(cpu_s) for _, _, cpu_s in taken) < MAX_CPU_S, taken


@pytest.mark.thorough
def test_a_cut_pickle_gives_what_stands_before_the_cut() -> None:
    data = recorded("link_down")["fr_0"]
    whole = load(data).value["entries"]
    numbers = []
    for size in (*range(0, len(data), 997), len(data) - 1):
        if 20_000 < size < len(data) - 1 and size % 15:
            continue  # some of the long ones are enough
        found = load(data[:size])
        assert found.is_cut
        assert "the file ends after" in in_english(found.problem)
        entries = (found.value or {}).get("entries", [])
        assert entries[:-1] == whole[: max(len(entries) - 1, 0)]
        numbers.append(len(entries))
    assert numbers == sorted(numbers)
    assert numbers[-1] == len(whole)


@cases("protocol", range(6))
def test_a_cut_pickle_of_any_protocol_is_read_up_to_the_cut(protocol: int) -> None:
    data = pickle.dumps(pickle.loads(recorded("v2_lock")["fr_3"]), protocol)
    found = load(data[: len(data) * 3 // 4])
    assert found.value["version"] == "2.10"
    assert 30 <= len(found.value["entries"]) <= 52


@QUICK
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    for begin in (b"", b"\x80\x02", b"\x80\x04", b"\x80\x02}("):
        with contextlib.suppress(RefusedError):
            load(begin + data)


TOKENS = st.lists(
    st.sampled_from(
        [
            b"(",
            b"]",
            b"}",
            b")",
            b"a",
            b"e",
            b"s",
            b"u",
            b"t",
            b"l",
            b"d",
            b"0",
            b"1",
            b"2",
            b"N",
            b"\x88",
            b"K\x01",
            b"q\x00",
            b"h\x00",
            b"\x85",
            b"\x86",
            b"\x87",
            b"X\x01\x00\x00\x00a",
            b"X\x01\x00\x00\x00bq\x01",
            b"h\x01",
            b".",
            b"\x8a\x01\x05",
            b"\x94",
            b"\x8c\x01c",
            b"I5\n",
            b"j\x00\x00\x00\x00",
            b"r\x02\x00\x00\x00",
            b"G????????",
        ]
    ),
    max_size=80,
)


@pytest.mark.thorough
@settings(QUICK, max_examples=400)
@given(TOKENS)
def test_any_order_of_harmless_tokens_is_survived(tokens: list[bytes]) -> None:
    found = load(b"\x80\x02" + b"".join(tokens))
    assert found.problem is None or found.is_cut


@QUICK
@given(st.data())
def test_a_dump_with_changed_bytes_is_survived(data: st.DataObject) -> None:
    original = bytearray(recorded("v2_lock")["fr_3"])
    for place in data.draw(st.lists(st.integers(0, len(original) - 1), min_size=1, max_size=12)):
        original[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RefusedError):
        load(bytes(original))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 62), 1 << 62) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=30,
)


@pytest.mark.thorough
@QUICK
@given(VALUES, st.integers(0, 5))
def test_plain_data_is_read_as_it_is(value: Any, protocol: int) -> None:
    assert load(pickle.dumps(value, protocol)).value == value
