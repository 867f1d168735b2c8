"""LIV017."""

from typing import Any

from allready.judging.loading import load
from allready.model import Confidence, RankStatus
from allready.model.fill import fill
from tests.cases import cases
from tests.rules.live.made import NOW, ask, waiting

HERE, PORT = "10.0.0.1", 29500
ADDRESSES = {"addresses": {0: ("127.0.0.1", HERE), 1: ("127.0.0.1", "10.0.0.2")}}


def joining(rank: int, host: str = HERE, port: int = PORT, *, given: bool = True, **changes: Any) -> RankStatus:
    known: dict[str, Any] = {"groups": (), "num_operations": 0, "phase": "joining", "site": "train.py:4 <module>"}
    return waiting(rank, **(known | {"joins_at": (host, port, given)} | changes))


def sentence(values: Any) -> str:
    return fill(load()["LIV017"].message, values)


def test_names_the_rank_with_another_port_its_value_and_that_of_the_others() -> None:
    [hit] = ask("LIV017", joining(0), joining(1, port=29507, given=False), joining(2), joining(3), live=ADDRESSES).hits
    assert (hit.culprits.ranks, hit.confidence) == ((1,), Confidence.LIKELY)
    said = sentence(hit.values)
    assert said.startswith("rank 1 (gpu0, pid 101) looks for the store at 10.0.0.1:29507, rank 0 (gpu0, pid 100), ")
    assert "at 10.0.0.1:29500: MASTER_PORT, or init_method, differs; after 10 s no rank has joined" in said


def test_on_a_tie_those_are_named_that_look_where_their_launcher_did_not_send_them() -> None:
    ranks = [joining(r, port=29507 if r > 1 else PORT, given=r < 2) for r in range(4)]
    [hit] = ask("LIV017", *ranks, live=ADDRESSES).hits
    assert hit.culprits.ranks == (2, 3)
    [hit] = ask("LIV017", *(joining(r, port=29507 if r > 1 else PORT) for r in range(4)), live=ADDRESSES).hits
    assert not hit.culprits
    assert "ranks look for the store at different places: rank 0 (gpu0, pid 100) 10.0.0.1:29500" in sentence(hit.values)


@cases(
    ("host", "confidence"),
    [("10.0.9.9", Confidence.LIKELY), ("gpu0", Confidence.POSSIBLE), ("localhost", Confidence.POSSIBLE)],
)
def test_another_address_may_be_another_name_of_the_same_machine(host: str, confidence: Confidence) -> None:
    [hit] = ask("LIV017", joining(0), joining(1, host), joining(2), joining(3), live=ADDRESSES).hits
    assert (hit.culprits.ranks, hit.confidence) == ((1,), confidence)
    assert "MASTER_ADDR" in sentence(hit.values)


NEW: dict[str, Any] = {"site_since_s": NOW - 2.0}


@cases(
    "ranks",
    [
        [joining(r) for r in range(4)],  # they wait for something else
        [joining(r, port=PORT + (r == 1), **NEW) for r in range(4)],  # a moment ago
        [joining(0), joining(1, port=29507), joining(2), joining(3, phase="importing")],  # one has yet to come
        [joining(0), joining(1, port=29507), *(joining(r, phase="computing", num_operations=4) for r in (2, 3))],
    ],
)
def test_ranks_that_look_at_one_place_or_that_are_not_all_there_are_not_told_of(ranks: list[RankStatus]) -> None:
    assert ask("LIV017", *ranks, live=ADDRESSES).state == "clear"
