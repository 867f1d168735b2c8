import io
import random

import pytest

from allready.errors import UsageError
from allready.evidence.lines import streams as streams_module
from allready.evidence.lines.merge import merged
from allready.evidence.lines.model import LineLimits, Scanned
from allready.evidence.lines.scan import scan
from allready.evidence.lines.streams import thinned_step, unpacked
from allready.evidence.reading import BLOCK
from allready.model.fill import in_english
from tests.cases import cases
from tests.evidence.lines import logs, reference

pytestmark = pytest.mark.thorough

RNG = random.Random(1)


def scanned(text: str | list[str], **options: object) -> Scanned:
    text = text if isinstance(text, str) else "\n".join(text)
    return scan(io.BytesIO(text.encode()), anchors=reference.ANCHORS, **options)  # type: ignore[arg-type]


def coll(front: str = "", **options: object) -> str:
    return logs.operation(RNG, front=front, **options)  # type: ignore[arg-type]


def test_iterations_are_marked_with_the_operations_before_them() -> None:
    lines = []
    for i in range(5):
        lines += [f"iteration: {i}", *[coll() for _ in range(i)]]
    (stream,) = scanned(lines).streams
    assert stream.marks == {0: 0, 1: 0, 2: 1, 3: 3, 4: 6}


def test_a_mark_before_the_first_operation_of_a_stream_counts_none() -> None:
    found = scanned(["step 1", coll(comm="0xa"), "step 2", coll(comm="0xb"), "step 3"])
    assert [s.marks for s in found.streams] == [{1: 0, 2: 1, 3: 1}, {1: 0, 2: 0, 3: 1}]


def test_a_mark_of_one_rank_says_nothing_about_another() -> None:
    found = scanned(["0: " + coll(pid=1), "1: " + coll(pid=2), "0: step 7", "1: " + coll(pid=2), "1: step 7"])
    assert [s.marks for s in found.streams] == [{7: 1}, {7: 2}]


def test_only_the_first_of_equal_marks_counts() -> None:
    (stream,) = scanned(["step 1", coll(), "step 1", coll(), "step 2"]).streams
    assert stream.marks == {1: 0, 2: 2}


@cases(
    ("line", "iteration"),
    [
        ("iteration: 12", 12), ("Iteration 12", 12), ("iter 12/500", 12), ("iter [12/500]", 12), ("step: 12", 12),
        ("Step 12", 12), ("STEP=12", 12), ("global_step=12", 12), ("{'loss': 0.1, 'step': 12}", 12),
        ('{"step":12,"loss":1}', 12), (" iteration       12/   500 | consumed samples: 96", 12), ("| step 12 |", 12),
        ("[2025-03-01 12:00:00] INFO trainer: step 12 loss 0.5", 12), ("0: step 12", 12), ("train_step 12", 12),
        ("training step 12", 12), ("step 12.", 12), ("step 12, loss", 12), ("iter: 0012", 12),
        ("step 12.5", None), ("step 12%", None), ("step 12ms", None), ("step time: 0.5", None),
        ("max_steps: 500", None),
        ("max_step 500", None), ("total steps 500", None), ("warmup step 5", None), ("eval step 3", None),
        ("save_step=100", None), ("multistep 5", None), ("31.2it/s", None), ("step", None), ("steps 5", None),
        ("accumulation step 2/4", None), ("validation iter 7", None), ("footstep 5", None),
        ("step 1234567890123", None),
        ("sub-step 5", None), ("gradient_accumulation_step=8", None), ("iterations 5", None), ("iterable 5", None),
    ],
)  # fmt: skip
@cases("before", ["", "some line that is long enough to be looked back at\n"])
def test_recognises_the_usual_markers_and_nothing_else(line: str, iteration: int | None, before: str) -> None:
    assert scanned(before + line).iterations.first == iteration
    assert scanned(before + line + "\nnext line 77\n").iterations.last == iteration


def test_a_user_may_say_what_a_marker_is() -> None:
    found = scanned(["batch <7> done", coll(), "step 9", "batch <8> done"], iteration_marker=r"batch <(\d+)>")
    assert found.streams[0].marks == {7: 0, 8: 1}


def test_a_users_marker_does_not_reach_over_lines() -> None:
    found = scanned(["batch", "5", "batch 6", "batch", "7"], iteration_marker=r"batch\s+(\d+)")
    assert (found.iterations.num_lines, found.iterations.first) == (1, 6)


@pytest.mark.parametrize("pattern", ["(", "no group"])
def test_a_marker_that_cannot_work_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="iteration-marker"):
        scanned("", iteration_marker=pattern)


def test_many_marks_are_thinned_evenly_and_alike_in_parts() -> None:
    lines = []
    for i in range(300):
        lines += [f"step {i}", coll()]
    data = "\n".join(lines).encode()
    limits = LineLimits(marks=50)
    whole = scan(io.BytesIO(data), limits=limits, anchors=())
    assert whole.streams[0].marks == {i: i for i in range(0, 300, 8)}
    half = len(data) // 2
    parts = [
        scan(io.BytesIO(data), limits=limits, anchors=(), first_byte=a, last_byte=b)
        for a, b in ((0, half), (half, len(data)))
    ]
    assert merged(parts, limits).streams[0].marks == whole.streams[0].marks
    assert whole.iterations.num_lines == merged(parts, limits).iterations.num_lines == 300


def test_times_are_sampled_once_a_second() -> None:
    lines = [coll(f"[2025-03-01 00:00:{s:02d}.{t}00] ") for s in range(3) for t in range(4)]
    (stream,) = scanned(lines).streams
    midnight = 1740787200.0
    assert stream.times == [(0, midnight), (4, midnight + 1), (8, midnight + 2)]
    assert scanned([coll()]).streams[0].times == []


def test_a_date_that_is_none_gives_no_time() -> None:
    lines = [coll(f"[2025-{date} 00:00:00] ") for date in ("02-30", "13-01", "00-10", "02-28")]
    assert scanned(lines).streams[0].times == [(3, 1740700800.0)]


def test_leap_days_are_days() -> None:
    assert scanned([coll("[2024-02-29 12:00:00] ")]).streams[0].times == [(0, 1709208000.0)]


def test_blocks_hold_so_many_operations_each() -> None:
    line = logs.operation(RNG, name="AllReduce", count=1) + "\n"
    found = scan(io.BytesIO(line.encode() * (2 * BLOCK + 10)), anchors=())
    (stream,) = found.streams
    assert [len(unpacked(block)) for block in stream.blocks] == [BLOCK, BLOCK, 10]
    assert stream.counts == [2 * BLOCK + 10]


def test_too_many_shapes_are_counted_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "MAX_SHAPES", 10)
    lines = [coll(name=name, count=i) for i in range(30) for name in ("Send", "Recv")]
    (stream,) = scanned(lines).streams
    assert sum(stream.counts) == stream.num_operations == 60
    assert len(stream.shapes) == 12
    by_name = {"send": 0, "recv": 0}
    for shape, count in zip(stream.shapes, stream.counts, strict=True):
        by_name[shape.name] += count
    assert by_name == {"send": 30, "recv": 30}
    rest = sum(n for s, n in zip(stream.shapes, stream.counts, strict=True) if s.count == -1)
    assert rest == 50


def test_too_many_streams_are_counted_and_said() -> None:
    lines = [coll(comm=f"0x{i:x}") for i in range(1, 21)]
    found = scanned(lines, limits=LineLimits(streams=5))
    assert (len(found.streams), found.num_coll, found.num_coll_apart) == (5, 20, 15)
    assert any("15 operations" in in_english(problem) for problem in found.problems)


def test_forgetting_templates_changes_nothing() -> None:
    lines = [coll(pid=pid, count=count) for pid in range(1, 40) for count in range(1, 20)]
    data = "\n".join(lines).encode()
    limits = LineLimits(line_bytes=2048, clip_bytes=256, templates=10)
    reference.check(scan(io.BytesIO(data), limits=limits, anchors=reference.ANCHORS, chunk_bytes=1), data)


def test_the_step_of_thinning_depends_on_the_set_only() -> None:
    assert [thinned_step(range(n), 10) for n in (5, 10, 11, 20, 21, 1000)] == [1, 1, 2, 2, 4, 128]
