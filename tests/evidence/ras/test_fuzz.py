"""Whatever the bytes: no crash, no endless loop, and a result that travels between processes."""

import json
import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from allready.evidence.ras import is_ras, read_ras
from allready.evidence.ras.tolerant import parse_object
from allready.model.fill import in_english
from tests.evidence.ras.test_answers import RECORDED, report

PIECES = st.sampled_from(
    rb"""
{"nccl_version": "2.28.9",
"communicators": [
{"hash": "0x1", "size": 3,
"ranks": [
{"rank": 1,
"collective_counts": {"AllReduce": 3}
}
]
,
"
"missing_ranks": [{"rank": 2 "status": {
NCCL version 2.27.5 compiled with CUDA 12.9
    0  1  1  4  4  4  RUNNING  MISMATCH
#0-0 (cf264af53edbe986) MISMATCH
#0-0 (cf264af53edbe986) INCOMPLETE
  3 ranks have launched up to operation 4
  2 ranks reported x
  Rank 3 -- GPU 3 managed by process 4 on node n
  Communicator ranks have different AllReduce operation counts
DEAD
  Process 1 on node n managing GPU 0
[2026-11-20 12:00:00] PEER_DEAD: x
""".splitlines(keepends=True)
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=3),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(PIECES | st.binary(max_size=20), max_size=40).map(b"".join))
def test_pieces_in_any_order_are_survived(data: bytes) -> None:
    is_ras(data)
    reading = read_ras(data, "fuzz")
    pickle.loads(pickle.dumps(reading))
    for answer in reading.ras:
        for group in answer.groups:
            assert not set(group.positions) & set(group.absent)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(RECORDED.glob("*.json"))), st.data())
def test_recorded_answers_with_bytes_changed_are_survived(path: object, data: st.DataObject) -> None:
    raw = bytearray(path.read_bytes())  # type: ignore[attr-defined]
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert read_ras(bytes(raw), "fuzz").source.size_bytes == len(raw)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_one_comma_may_be_missing(data: st.DataObject) -> None:
    text = json.dumps(report(), indent=1)
    commas = [i for i, c in enumerate(text) if c == ","]
    at = data.draw(st.sampled_from(commas))
    value, _, problem = parse_object(text[:at] + text[at + 1 :])
    assert in_english(problem) == "broken JSON, repaired"
    assert value == report()


@settings(max_examples=40, deadline=None)
@given(TREES)
def test_good_json_is_read_as_the_standard_library_reads_it(value: object) -> None:
    text = json.dumps({"a": value})
    assert parse_object(text) == ({"a": value}, len(text), None)
