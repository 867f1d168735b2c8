from msgspec.structs import replace

from allready.model import Confidence, FaultClass, Severity
from tests.cases import cases
from tests.rules.desync.test_other_call import mismatch
from tests.rules.runs import ask, at, death, event, group, one_missing, operation


def test_one_dump_of_four_accuses_nobody() -> None:
    alone = group({0: at(65, 64)}, absent={1: "no dump", 2: "no dump", 3: "no dump"})
    [hit] = ask("HNG009", progress=(alone,)).hits
    assert (hit.values["missing"], hit.confidence) == ("1-3", Confidence.POSSIBLE)
    assert not hit.culprits
    assert ask("HNG002", progress=(alone,)).state == "clear"


def test_half_of_the_dumps_is_a_tie() -> None:
    half = group({0: at(65, 64), 1: at(65, 64)}, absent={2: "no dump", 3: "no dump"}, members=(0, 1, 2, 3))
    assert ask("HNG009", progress=(half,), node_of_rank={}).state == "hit"


def test_where_nothing_tells_how_many_ranks_there_are_nobody_can_say_that_all_entered() -> None:
    seen = group({0: at(65, 64), 1: at(65, 64)}, "watchdog", members=(0, 1), size=0)
    assert ask("HNG009", progress=(seen,)).state == "hit"
    assert ask("HNG005", progress=(seen,)).state == "clear"


def test_a_majority_that_waits_accuses_the_one_that_is_missing() -> None:
    assert ask("HNG009", progress=(one_missing(2),)).state == "clear"


def test_a_death_or_a_mismatch_explains_it() -> None:
    alone = group({0: at(65, 64)}, absent={1: "no dump", 2: "no dump", 3: "no dump"})
    assert ask("HNG009", progress=(alone,), deaths=(death(2),)).state == "clear"
    assert ask("HNG009", progress=(alone,), mismatches=(mismatch((1,), operation(64, "broadcast")),)).state == "clear"


def test_half_of_a_moving_job_is_no_fault() -> None:
    alone = group({0: at(65, 64)}, absent={1: "no dump", 2: "no dump", 3: "no dump"})
    [hit] = ask("HNG009", progress=(alone,)).hits
    assert hit.severity is Severity.WARNING


def test_who_lost_a_peer_waited_for_the_dead() -> None:
    alone = group({0: at(65, 64)}, absent={1: "no dump", 2: "no dump", 3: "no dump"})
    closed = event("torch.async_exception", 0, values={"last_error": "Connection closed by remote peer"})
    [hit] = ask("HNG009", progress=(alone,), events=(closed,)).hits
    assert (hit.fault_class, hit.severity) == (FaultClass.DEAD, None)


@cases(
    ("later", "through", "seq", "who"),
    [
        (67, None, 64, "rank 0,1 (node 0)"),  # of rank 1 only the last line is there
        (67, 63, 64, "rank 0,1 (node 0)"),
        (67, 64, 67, "rank 1 (node 0)"),  # it came out of 64
        (9_000, None, 9_000, "rank 1 (node 0)"),  # rather another group, that no line names
    ],
)
def test_all_wait_in_the_first_operation_that_nobody_came_through(
    later: int, through: int | None, seq: int, who: str
) -> None:
    first = replace(at(66, 64), completed=None, gave_up=True)
    last = replace(at(later + 2, later), completed=through, gave_up=True)
    [hit] = ask("HNG009", progress=(group({0: first, 1: last}, "watchdog"),)).hits
    assert (hit.values["operation"], hit.values["who"]) == (f"all_reduce [1024] float32 #{seq}", who)


def test_an_operation_that_nobody_gave_up_is_no_first_one() -> None:
    first, last = replace(at(66, 64), completed=None), replace(at(70, 67), completed=None, gave_up=True)
    assert ask("HNG009", progress=(group({0: first, 1: last}, "watchdog"),)).state == "clear"


def test_where_most_gave_up_in_an_operation_that_one_is_far_beyond_both_are_named() -> None:
    early = replace(at(66, 64), stuck=operation(64, "broadcast"), gave_up=True)
    late = replace(at(9_000, 9_000), gave_up=True)
    seen = group({0: late, 1: early, 2: early}, "watchdog", members=tuple(range(6)), size=6)
    [hit] = ask("HNG009", progress=(seen,)).hits
    assert str(hit.values["operation"]) == ("broadcast [1024] float32 #64 (1,2) / all_reduce [1024] float32 #9000 (0)")
    assert str(hit.values["who"]).startswith("rank 0-2")
    assert not hit.culprits
