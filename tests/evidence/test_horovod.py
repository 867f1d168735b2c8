"""Horovod's reports of tensors that ranks have not submitted, in the forms of all its releases."""

import io

from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret
from allready.model import Event, Role, TensorStall
from tests.cases import cases

TOLD = (
    "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for "
    "remainder of ranks for more than 60 seconds. This may indicate that different ranks are trying to submit "
    "different tensors or that only subset of ranks is submitting tensors, which will cause deadlock. "
)
STAMP = "[2021-02-02 21:19:07.345988: W /tmp/pip-install-x/horovod/horovod/common/stall_inspector.cc:107] "
NEW = f"""\
{STAMP}{TOLD}
{{title}} ranks:
1: [allreduce.conv1.weight, allreduce.conv2.weight, allreduce.conv3.weight, allreduce.a, allreduce.b, allreduce.c ...]
3!: [allreduce.conv1.weight]
One or more rank (marked by "!") is stalled for longer than 120 seconds. Will shutdown.
"""
OLD = f"""\
WARNING: {TOLD}
Stalled ops:
HorovodBroadcast_fully_connected_weights_0 [missing ranks: 0, 2]
HorovodBroadcast_fully_connected_1_weights_0 [missing ranks: 0]
"""
OLDEST = (
    f"Train Epoch     #73:  82% 1027/1252 [36:43<1:25:55, 22.91s/it, loss=0.946]WARNING: {TOLD}Stalled ops: "
    "allreduce.conv1.weight [ready ranks: 5, 1, 4], allreduce.loss [ready ranks: 3]\n"
)


def stall_in(event: Event) -> TensorStall:
    assert event.stall is not None
    return event.stall


def reports(text: str) -> list[Event]:
    found = interpret(scan(io.BytesIO(text.encode())), "out.log", mtime_s=1.0)
    return [e for e in found.events if e.signature == "launcher.horovod_stalled"]


@cases("title", ["Missing", "Stalled"])
@cases("prefix", ["", "[1,0]<stderr>:", "0: "])
def test_one_line_per_rank(title: str, prefix: str) -> None:
    text = "".join(prefix + line + "\n" for line in NEW.format(title=title).splitlines())
    [event] = reports(text)
    assert event.values["ranks"] == "1, 3"
    stall = stall_in(event)
    assert (stall.stopped, stall.cut) == ((3,), (1,))
    assert stall.missing[:2] == (("allreduce.conv1.weight", (1, 3)), ("allreduce.conv2.weight", (1,)))


def test_one_line_per_tensor() -> None:
    event = reports(OLD)[0]
    assert stall_in(event).missing == (
        ("HorovodBroadcast_fully_connected_weights_0", (0, 2)),
        ("HorovodBroadcast_fully_connected_1_weights_0", (0,)),
    )


def test_who_is_ready() -> None:
    [event] = reports(OLDEST)
    stall = stall_in(event)
    assert stall.ready == (("allreduce.conv1.weight", (1, 4, 5)), ("allreduce.loss", (3,)))
    assert not stall.missing
    assert "ranks" not in event.values


def test_a_tensors_name_keeps_its_signs() -> None:
    name = "grad:scope=encoder;layer=0/kernel"
    [event] = reports(f"WARNING: {TOLD}\nStalled ops:\n{name} [missing ranks: 2]\n{name}2 [missing ranks: 0, 2]\n")[:1]
    assert stall_in(event).missing == ((name, (2,)), (f"{name}2", (0, 2)))


def test_reports_of_the_same_ranks_and_other_tensors_are_two() -> None:
    both = (f"WARNING: {TOLD}\nStalled ops:\n{name} [missing ranks: 2]\n" for name in ("HorovodA", "HorovodB"))
    found = [e.stall.tensors for e in reports("".join(both)) if e.stall is not None]
    assert found == [("HorovodA",), ("HorovodB",)]


def test_lists_of_numbers_and_the_next_report_are_no_part_of_it() -> None:
    first = f"{STAMP}{TOLD}\nMissing ranks:\n1: [allreduce.a]\n2: [0.5, 0.25]\n"
    text = first + f"{STAMP}{TOLD}\nMissing ranks:\n4: [allreduce.b]\n"
    assert [e.values["ranks"] for e in reports(text)] == ["1", "4"]


def test_a_job_that_went_on_had_a_rank_that_was_late() -> None:
    steps = "".join(f"step {number} loss 2.3\n" for number in range(100, 104))
    text = NEW.format(title="Missing")
    assert {e.role for e in reports(steps + text)} == {Role.RECORD}
    assert {e.role for e in reports(text + steps)} == {Role.HARMLESS}
    assert {e.role for e in reports(text + steps + text)} == {Role.RECORD}
