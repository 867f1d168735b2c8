"""LIV019."""

from typing import Any

from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import CallSite, Death, ExchangeCall, Origin, RankStatus, StrayExchange, StrayProof
from allready.model.fill import fill
from tests.cases import cases
from tests.rules.live.made import NOW, ask, ended, stack, waiting

MADE = ExchangeCall(is_send=False, peer=0, site=CallSite.of("train.py:12 step"))
USUAL = ExchangeCall(is_send=True, peer=0, tag=3, site=CallSite.of("train.py:15 step"))
LOOP = StrayExchange(rank=1, proof=StrayProof.LOOP, made=MADE, usual=USUAL)
FEWER = StrayExchange(rank=1, proof=StrayProof.NUMBERS, usual=USUAL, num_made=59, num_usual=60)


@cases(
    ("stray", "words"),
    [
        (LOOP, "it called recv(src=0) (train.py:12 step) where its own loop had send(dst=0, tag=3)"),
        (
            StrayExchange(rank=1, proof=StrayProof.LOOP, usual=USUAL),
            "it called another operation where its own loop had send(dst=0, tag=3)",
        ),
        (
            StrayExchange(rank=1, proof=StrayProof.RANKS, made=MADE, usual=USUAL),
            "it called recv(src=0) (train.py:12 step) where the order of the others has send(dst=0, tag=3)",
        ),
    ],
)
def test_who_left_the_pattern_is_named_with_what_it_called_and_what_belongs_there(
    stray: StrayExchange, words: str
) -> None:
    [hit] = ask("LIV019", stray=stray).hits
    assert hit.culprits.ranks == (1,)
    assert ask("LIV018", stray=stray).state != "hit"
    assert words in fill(load()["LIV019"].message, hit.values)


@cases(
    ("ranks", "more"),
    [
        ([waiting(3, site_since_s=NOW - 1.0, groups=())], {}),  # one has only just come
        ([waiting(1, epoch=2)], {}),
        ([ended(2, 1)], {}),  # an end of its own
        ([ended(1, None, "SIGKILL")], {}),
        ([], {"stacks": (stack(0, "cpu_work"),)}),  # one computes, and may send then
        ([], {"stray": FEWER}),  # numbers differ by one while a job moves
    ],
)
def test_while_a_rank_may_go_on_nothing_is_said(ranks: list[RankStatus], more: dict[str, Any]) -> None:
    assert ask("LIV019", *ranks, **{"stray": LOOP, **more}).state == "clear"


def test_a_rank_that_was_one_send_short_is_named_when_the_last_one_loses_its_connection() -> None:
    lost = Death(kind="exception", origin=Origin(source="out.log"), rank=3, text="closed", is_collective_error=True)
    gone = [ended(0), ended(1), ended(2), ended(3, 1)]
    [hit] = ask("LIV019", *gone, stray=FEWER, deaths=(lost,)).hits
    assert hit.culprits.ranks == (1,)
    assert "it made 59 calls of send(dst=0, tag=3)" in fill(load()["LIV019"].message, hit.values)
    assert ask("LIV019", *gone, stray=FEWER).state == "clear"  # it ended of something else


def test_those_that_wait_are_counted_and_shown_where_they_stand() -> None:
    [hit] = ask("LIV019", stray=LOOP).hits
    assert hit.values["waiting"] is not None
    assert {e.source for e in hit.evidence} == {f"rank {r}" for r in range(4)}
    assert hit.fault_time is not None


def test_where_a_rank_waits_for_data_that_is_on_its_way_nothing_shows_that_the_program_is_wrong() -> None:
    """Rank 3 waits for the handle of a call whose half has been made; in a collective it would wait for the others."""
    seen = {"stray": replace(LOOP, met=(3,)), "stacks": (stack(3, "in_collective"),)}
    assert ask("LIV019", waiting(3, groups=()), **seen).state == "clear"
    assert ask("LIV019", **seen).state == "hit"
