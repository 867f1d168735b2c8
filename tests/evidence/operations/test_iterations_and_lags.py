"""Operations by iteration, and lateness by the times of lines."""

from allready.evidence.reading import OpShape
from allready.judging.calls import count_iterations
from tests.evidence.operations.streams import AG, AR, SMALL, process, stream, whole
from tests.judging.joined import joined_operations


def loop(extra: dict[int, list[OpShape]], num: int = 40) -> tuple[list[OpShape], dict[int, int]]:
    """`num` iterations of two operations, with more in some; the operations and the markers."""
    shapes: list[OpShape] = [AR]
    marks: dict[int, int] = {}
    for i in range(num):
        marks[i] = len(shapes)
        shapes += [AR, AG, *extra.get(i, [])]
    return shapes, marks


def test_usual_and_odd_iterations_are_told_apart_by_the_other_ranks() -> None:
    tenth = {i: [SMALL] for i in range(0, 40, 10)}
    ranks = [loop(tenth), loop(tenth), loop({**tenth, 13: [SMALL]})]
    streams = {r: [stream(s, r, marks=m)] for r, (s, m) in enumerate(ranks)}
    found = count_iterations(streams, "step")
    assert found is not None
    assert found.marker == "step"
    assert dict(found.usual) == {"all_gather": 1, "all_reduce": 1}
    assert found.odd == {2: {13: {"all_gather": 1, "all_reduce": 2}}}
    assert dict(found.num_iterations) == {0: 40, 1: 40, 2: 40}


def test_two_ranks_that_differ_accuse_nobody() -> None:
    streams = {r: [stream(s, r, marks=m)] for r, (s, m) in enumerate([loop({}), loop({5: [AR]})])}
    found = count_iterations(streams)
    assert found is not None
    assert found.odd == {}


def test_a_rank_alone_is_compared_with_itself() -> None:
    shapes, marks = loop({3: [SMALL, SMALL], **{i: [SMALL] for i in range(0, 40, 10)}})
    found = count_iterations({0: [stream(shapes, 0, marks=marks)]})
    assert found is not None
    assert found.odd == {0: {3: {"all_gather": 1, "all_reduce": 3}}}


def test_operations_of_several_communicators_add_up() -> None:
    marks = {i: 3 * i for i in range(5)}
    streams = [stream([AR] * 15, 0, marks=marks), stream([AG] * 15, 0, comm="0x2", marks=marks)]
    found = count_iterations({0: streams})
    assert found is not None
    assert dict(found.usual) == {"all_gather": 3, "all_reduce": 3}


def test_without_markers_there_are_no_iterations() -> None:
    assert count_iterations({0: [stream([AR], 0)]}) is None
    assert count_iterations({0: [stream([AR] * 9, 0, marks={0: 0, 1: 5, 2: 3})]}) is None


def test_the_rank_that_enqueues_late_is_last() -> None:
    streams, processes = [], []
    for rank, late in enumerate((0.0, 0.0, 0.3, 0.001)):
        times = [(100 * i, 1000.5 + i + late) for i in range(30)]
        streams.append(stream([AR] * 3000, rank, times=times))
        processes.append(process(rank, whole(rank)))
    (lag,) = joined_operations(streams, processes).lags
    assert round(lag.median_late_s[2], 3) == 0.3
    assert lag.last_share[2] == 1.0
    assert lag.noise_s < 0.1
    assert lag.source == "coll log"


def test_times_in_whole_seconds_are_noise_below_a_second() -> None:
    streams = [stream([AR] * 3000, r, times=[(100 * i + r, 1000.0 + i) for i in range(30)], nranks=2) for r in range(2)]
    (lag,) = joined_operations(streams, [process(r, whole(r, nranks=2)) for r in range(2)]).lags
    assert set(lag.last_share.values()) == {0.0}
    assert lag.noise_s > 1.0


def test_clocks_of_two_hosts_are_compared_by_the_start_that_they_share_or_not_at_all() -> None:
    streams, processes = [], []
    for rank, ahead in enumerate((0.0, 5.0)):
        item = stream([AR] * 3000, rank, times=[(100 * i, 1000.25 + i + ahead) for i in range(30)], nranks=2)
        item.origin = type(item.origin)(source=f"rank{rank}.log", host=f"h{rank}", pid=100 + rank)
        streams.append(item)
        comm = whole(rank, nranks=2, completed_s=990.0 + ahead)
        processes.append(process(rank, comm, host=f"h{rank}"))
    (lag,) = joined_operations(streams, processes).lags
    assert set(lag.last_share.values()) == {0.0}
    blind = [process(r, whole(r, nranks=2), host=f"h{r}") for r in range(2)]
    assert joined_operations(streams, blind).lags == ()
