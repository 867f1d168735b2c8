"""What scripts and launchers do beside calling: forks, threads, interrupts, IPv6, a store that is used again."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from allready.errors import ExchangeError
from allready.messaging.wire import encode, read_frame
from allready.model import (
    Begun,
    CallArguments,
    CallPosition,
    FailureCause,
    GroupVoid,
    MemberState,
    RankAtFailure,
    RankProcess,
    RuntimeFailure,
)
from allready.runtime import messages as m
from allready.runtime.agreement import MAX_BEGUN_PER_RANK, VOIDS_BYTES, VOIDS_PER_RANK_BYTES, Agreement, Phase
from allready.runtime.hub import (
    MAX_FRAME_BYTES,
    MAX_STRANGERS,
    AgreementHub,
    HubAddress,
    HubPlan,
    listen,
    max_record_bytes,
    start,
)
from allready.runtime.link import HubLink, RankTaken
from tests.cases import cases
from tests.runtime.job import Job


@pytest.mark.torch
@pytest.mark.newest
@pytest.mark.jobs
def test_children_threads_interrupts_and_orphans_over_ipv6(tmp_path: Path) -> None:
    host = "[::1]" if socket.has_ipv6 else "127.0.0.1"
    child_s = 60.0
    with Job(tmp_path, 3, script="hostile_rank.py", what="all", host=host, child_s=child_s) as job:
        job.wait([0, 1])
        for rank in range(3):
            assert job.last(rank, "children") == {"event": "children", "code": 7, "total": 6.0}
            assert job.last(rank, "threads") == {"event": "threads", "total": 6.0, "refused": int(rank == 0)}
            found = job.last(rank, "interrupt")
            assert (found["code"], found["culprits"], found["total"]) == ("RTM002", [1], 6.0)
            assert found["child"][0] > 0
            assert found["child"][1] == 0, "a forked child died of, or hung in, what was left of the old group"
        for rank in range(2):
            found = job.last(rank, "orphan")
            assert (found["code"], found["total"]) == ("RTM001", 3.0)
            assert found["took_s"] < child_s / 3
            assert job.has(rank, "done")


@pytest.mark.torch
@pytest.mark.jobs
def test_a_second_attempt_in_the_same_store(tmp_path: Path) -> None:
    with Job(tmp_path, 3, script="hostile_rank.py", what="again") as job:
        job.wait([0, 1, 2])
        for rank in range(3):
            found = job.last(rank, "joined")
            assert (found["attempt"], found["total"]) == (1, 6.0), job.errors(rank)


@pytest.mark.parametrize(
    ("host", "wanted"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("192.0.2.7", "")]
)
def test_the_hub_listens_where_ranks_come_and_nowhere_else(host: str, wanted: str) -> None:
    found, place = listen(host)
    with found:
        assert place == HubAddress(port=found.getsockname()[1], host=wanted)
        assert (found.getsockname()[0] == wanted) is bool(wanted)
        with socket.create_connection(("127.0.0.1", place.port), 10), found.accept()[0] as taken:
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)  # else a decision waits 40 ms for a rank


def test_a_failure_of_thousands_of_ranks_fits_a_message() -> None:
    ranks = tuple(
        RankAtFailure(
            rank=r,
            state=MemberState.ANSWERED,
            call=CallPosition(entered=10**9, completed=10**9, operation="reduce_scatter", waited_s=123.456),
            cause=FailureCause.RAISED,
            error="\x01" * 500,
            called=CallArguments(
                operation="reduce_scatter",
                dtype="complex128",
                num_elements=10**15,
                redop="product",
                root=r,
                chunk_bytes=10**15,
                confirm=True,
            ),
        )
        for r in range(4096)
    )
    names = (f"{n} of a name that is as long as torch makes them" for n in range(MAX_BEGUN_PER_RANK))
    begun = tuple(Begun(group=name, counts=dict.fromkeys(range(4096), 10**9)) for name in names)
    failure = RuntimeFailure(epoch=1, cause=FailureCause.DIED, reporter=1, ranks=ranks, begun=begun)
    of_groups = VOIDS_BYTES + VOIDS_PER_RANK_BYTES * len(ranks)
    assert len(msgspec.json.encode(("Failed", m.Failed(failure=failure)))) + of_groups < max_record_bytes(len(ranks))


def test_of_very_many_groups_those_are_in_the_record_that_fit() -> None:
    """Else it would reach no rank."""
    voids = voids_of_many(200)
    assert len(msgspec.json.encode(voids)) < VOIDS_BYTES + VOIDS_PER_RANK_BYTES * 200


def voids_of_many(num_ranks: int) -> tuple[GroupVoid, ...]:
    """What the hub says of so many groups that they do not all fit, with numbers as long as they get."""
    hub = Agreement(range(num_ranks), answer_s=1.0)
    for rank in range(num_ranks):
        hub.take(rank, m.Ready(epoch=0, timeout_s=5.0, min_ranks=num_ranks), 0.0)
    assert hub.phase is Phase.RUNNING, hub.phase
    everyone = tuple(range(num_ranks))
    groups = [m.twin(everyone, n) for n in range(600)] + [m.twin((n,), 1) for n in everyone]
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE, group=groups[500]), 1.0)
    subgroups = tuple(m.SubgroupPosition(group=g, call=CallPosition(entered=10**12, completed=10**12)) for g in groups)
    hub.take(0, m.FrozenPosition(epoch=1, call=CallPosition(), subgroups=subgroups), 1.0)
    (failure,) = {id(f): f for _, f in hub.tick(100.0) if isinstance(f, m.Failed)}.values()
    found = failure.failure.voids
    assert 100 < len(found) < len(groups)  # so there is something that was left out
    assert {(), everyone} <= {v.group for v in found}
    assert any(v.twin == 500 for v in found)  # the one that failed
    return found


@contextmanager
def a_hub() -> Iterator[HubAddress]:
    """With a rank that keeps it alive, which leaves at the end."""
    place = start(HubPlan(num_ranks=2, secret="right", answer_s=1.0, host="127.0.0.1"))
    with socket.create_connection((place.host, place.port), 10) as rank:
        process = RankProcess(host="gpu00", pid=70)
        rank.sendall(encode("Hello", m.RankHello(rank=0, secret="right", process=process)))
        assert rank.recv(100)
        yield place


async def answer(place: HubAddress, frame: bytes) -> str:
    reader, writer = await asyncio.open_connection(place.host, place.port)
    try:
        writer.write(frame)
        async with asyncio.timeout(20):
            return (await read_frame(reader))[0]
    except (ExchangeError, OSError) as error:
        return type(error).__name__
    finally:
        writer.close()


async def strangers_beside(place: HubAddress) -> tuple[int, str]:
    """How many of far too many silent connections the hub keeps, and what a rank gets meanwhile."""
    many = [await asyncio.open_connection(place.host, place.port) for _ in range(3 * MAX_STRANGERS)]
    try:
        said = await answer(place, encode("Hello", m.RankHello(rank=1, secret="right")))
        ended = [asyncio.ensure_future(reader.read(1)) for reader, _ in many]
        done, waiting = await asyncio.wait(ended, timeout=1)
        for one in waiting:
            one.cancel()
        for one in done:
            one.exception()
        return len(waiting), said
    finally:
        for _, writer in many:
            writer.close()


@cases("pause_s", [0.8, 0.95, 5.0])
def test_time_in_which_the_hub_does_not_run_is_held_against_no_rank(
    pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads what the ranks have said meanwhile one after the other: the first one must not find the rest silent."""
    clock = [10.0]
    monkeypatch.setattr("allready.runtime.hub.time", SimpleNamespace(monotonic=lambda: clock[0]))
    hub = AgreementHub(HubPlan(num_ranks=3, secret="s", answer_s=1.0))

    def take(rank: int, message: m.FromRank) -> set[int]:
        out = hub._agreement.take(rank, message, hub._now_s())
        return {r for r, sent in out if isinstance(sent, m.Formed | m.Failed)}

    for rank in range(3):
        take(rank, m.Ready(epoch=0, timeout_s=60.0, min_ranks=3))
    clock[0] += 0.25  # the next signs of life are on their way
    take(0, m.Fail(epoch=1, cause=FailureCause.RAISED))
    clock[0] += pause_s
    answer = m.FrozenPosition(epoch=1, call=CallPosition())
    assert [take(rank, answer) for rank in range(3)] == [set(), set(), {0, 1, 2}]
    clock[0] += pause_s
    ready = m.Ready(epoch=1, timeout_s=60.0, min_ranks=1)
    assert [take(rank, ready) for rank in range(3)] == [set(), set(), {0, 1, 2}]


def test_the_hubs_clock_never_stands_still() -> None:
    """Else it would decide nothing on a machine that gives it little time all along."""
    clock = [10.0]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("allready.runtime.hub.time", SimpleNamespace(monotonic=lambda: clock[0]))
        hub = AgreementHub(HubPlan(num_ranks=3, secret="s", answer_s=1.0))
        seen = [hub._now_s()]
        for _ in range(8):
            clock[0] += 1.5
            seen.append(hub._now_s())
    assert seen[-1] - seen[0] == pytest.approx(4.0)


def test_the_deadlines_of_ranks_go_on_while_the_hub_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait no longer than that for its answer, and leave the job without one."""
    clock = [10.0]
    monkeypatch.setattr("allready.runtime.hub.time", SimpleNamespace(monotonic=lambda: clock[0]))
    hub = AgreementHub(HubPlan(num_ranks=2, secret="s", answer_s=1.0))
    hub._agreement.take(1, m.Heartbeat(), hub._now_s())
    hub._agreement.take(0, m.Ready(epoch=0, timeout_s=5.0, min_ranks=2), hub._now_s())
    clock[0] += 4.0
    assert hub._agreement.tick(hub._now_s()) == []
    hub._catch_up(hub._looked_s - hub._ran_s)
    assert hub._agreement.tick(hub._now_s()) == []
    assert hub._agreement._silent == set()
    clock[0] += 0.5
    hub._agreement.take(0, m.Heartbeat(), hub._now_s())
    clock[0] += 0.5
    assert [type(sent) for _, sent in hub._agreement.tick(hub._now_s())] == [m.Refused]


@pytest.mark.jobs
def test_strangers_at_the_hub_get_nothing_and_keep_nobody_out() -> None:
    with a_hub() as place:
        for frame in (
            encode("Hello", m.RankHello(rank=1, secret="wrong")),
            encode("Hello", m.RankHello(rank=2, secret="right")),
            encode("Vote", m.Vote(epoch=0, number=0)),
            (MAX_FRAME_BYTES * 2).to_bytes(4, "big") + b"\0" + b"x" * 100,
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            refused = asyncio.run(answer(place, frame))
            assert refused in {"PeerClosedError", "ExchangeError", "ConnectionResetError"}, frame[:40]
        # There already: who comes second learns it, with the right word only.
        assert asyncio.run(answer(place, encode("Hello", m.RankHello(rank=0, secret="right")))) == "Taken"
        assert asyncio.run(answer(place, encode("Hello", m.RankHello(rank=0, secret="wrong")))) != "Taken"
        kept, said = asyncio.run(strangers_beside(place))
        assert said == "Hello"
        assert kept <= MAX_STRANGERS + 2


@pytest.mark.jobs
def test_a_second_process_of_a_rank_says_which_one_is_there_already() -> None:
    with a_hub() as place:
        hello = m.RankHello(rank=0, secret="right", process=RankProcess(host="gpu01", pid=7))
        link = HubLink(
            [(place.host, place.port)], hello, take=lambda _: None, lost=lambda _: None, beat_s=1.0, limit_bytes=1000
        )
        with pytest.raises(RankTaken, match="rank 0 is there already, as process 70 on gpu00"):
            link.start(20.0)
