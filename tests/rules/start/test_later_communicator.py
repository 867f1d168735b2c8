from allready.judging.loading import load
from allready.model import CommRecord, Confidence, FaultClass
from allready.model.fill import in_english
from tests.rules.runs import ask, death, event, process

FIRST = "0xaaa"
LATER = "0xbbb"


def comm(rank: int, name: str, *, completed: bool, nranks: int = 4, started: bool = True) -> CommRecord:
    return CommRecord(
        comm=f"{name}{rank}", rank=rank, nranks=nranks, comm_id=name, init_started=started, init_completed=completed
    )


def ranks(later: dict[int, bool], nranks: int = 4) -> tuple[object, ...]:
    """Four ranks that completed the first communicator; those in `later` began another one (and completed it)."""
    return tuple(
        process(
            r,
            comms=(
                comm(r, FIRST, completed=True),
                *([comm(r, LATER, completed=later[r], nranks=nranks)] if r in later else []),
            ),
        )
        for r in range(4)
    )


def test_names_who_did_not_begin_a_communicator_that_the_others_wait_in() -> None:
    [hit] = ask("STA002", processes=ranks({0: False, 1: False, 3: False})).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.POSSIBLE)
    assert (hit.values["comm"], hit.values["nranks"]) == (LATER, 4)
    assert load()["STA002"].fault_class is FaultClass.DESYNC_FLOW


def test_who_waits_itself_for_another_group_is_not_accused() -> None:
    wait = event("torch.store_get_failed", 2, values={"rank": "2", "from_rank": "0", "key": "0"})
    [hit] = ask("STA002", processes=ranks({0: False, 1: False, 3: False}), events=(wait,)).hits
    assert (bool(hit.culprits), hit.confidence) == (False, Confidence.LIKELY)
    assert any(e.text == "a line" for e in hit.evidence)


def test_of_a_group_of_some_ranks_the_names_are_not_known() -> None:
    [hit] = ask("STA002", processes=ranks({0: False}, nranks=2)).hits
    assert not hit.culprits
    assert in_english(hit.values["absent"]) == "1 of them"


def test_a_communicator_that_somebody_completed_misses_nobody() -> None:
    assert ask("STA002", processes=ranks({0: True, 1: False})).state == "clear"
    assert ask("STA002", processes=ranks(dict.fromkeys(range(4), False))).state == "clear"
    assert ask("STA002", processes=ranks({})).state == "clear"


def test_the_start_of_the_job_is_another_matter() -> None:
    processes = tuple(process(r, comms=(comm(r, LATER, completed=False),)) for r in range(3))
    assert ask("STA002", processes=processes).state == "clear"


def test_a_death_explains_it() -> None:
    assert ask("STA002", processes=ranks({0: False}), deaths=(death(1),)).state == "clear"
