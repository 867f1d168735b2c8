"""LIV018."""

from allready.judging.loading import load
from allready.model import CallSite, Frame, Origin, ProcessStack, RankStatus, ThreadStack
from allready.model.fill import fill, in_english
from tests.cases import cases
from tests.rules.live.made import NOW, ask, behind, waiting

C10D = "/x/site-packages/torch/distributed/distributed_c10d.py"


def half(rank: int, call: str, peer: int, *, own_group: bool = False) -> ProcessStack:
    """A main thread in a send or receive, as the beacon writes it."""
    frames = (Frame(function=call, file=C10D, line=2400), Frame(function="exchange", file="/home/u/train.py", line=7))
    main = ThreadStack(name="MainThread", is_main=True, frames=frames, peer=peer, has_peer_group=own_group)
    site = CallSite.known("train.py:7 exchange")
    return ProcessStack(
        origin=Origin(source=f"rank{rank}/evidence/stacks.txt"),
        role="rank",
        rank=rank,
        threads=(main,),
        activity="in_collective",
        site=site,
    )


def test_two_ranks_that_both_receive_first_are_shown_with_their_peers_and_nobody_is_blamed() -> None:
    """Seen over Gloo: "waited in one call; no connection has data to send", and no word on who waits for whom."""
    [hit] = ask("LIV018", stacks=(half(0, "recv", 1), half(1, "recv", 0))).hits
    assert not hit.culprits
    halves = hit.values["halves"]
    assert isinstance(halves, tuple)
    said = fill(load()["LIV018"].message, {**hit.values, "halves": in_english(halves)})
    line = " at /home/u/train.py:7 exchange"
    assert f"rank 0 in recv with rank 1{line}, rank 1 in recv with rank 0{line}" in said.replace("; ", ", ")


def test_a_circle_of_three_sends_is_one() -> None:
    [hit] = ask("LIV018", stacks=(half(1, "send", 2), half(2, "send", 3), half(3, "send", 1))).hits
    assert "rank 1" in str(hit.values["who"])
    assert "rank 0" not in str(hit.values["who"])


@cases(
    "stacks",
    [
        (half(0, "recv", 1), half(1, "send", 0)),  # they meet
        (half(0, "recv", 1), half(1, "recv", 2)),  # a chain, whose head does something else
        (half(0, "recv", 1),),
        (half(0, "recv", 1, own_group=True), half(1, "recv", 0, own_group=True)),  # numbers of another group
    ],
)
def test_halves_that_meet_and_chains_are_none(stacks: tuple[ProcessStack, ...]) -> None:
    assert ask("LIV018", stacks=stacks).state == "clear"


NEW = {"site_since_s": NOW - 1.0, "groups": ()}


@cases("ranks", [[waiting(1, **NEW)], [waiting(1, cpu_share=0.9)], [waiting(1, epoch=2)]])
def test_a_rank_that_only_just_came_or_that_works_may_go_on(ranks: list[RankStatus]) -> None:
    assert ask("LIV018", *ranks, stacks=(half(0, "recv", 1), half(1, "recv", 0))).state == "clear"


def test_a_rank_that_waits_for_both_in_a_barrier_is_not_accused() -> None:
    """Seen with torch 2.15: of three ranks the one in the barrier was the odd one (LIV008, likely)."""
    both = [behind(r, phase="communicating", site="train.py:7 exchange") for r in (0, 1)]
    others = [waiting(r) for r in (2, 3)]
    stacks = (half(0, "recv", 1), half(1, "recv", 0))
    assert ask("LIV018", *both, *others, stacks=stacks).state == "hit"
    assert ask("LIV008", *both, *others, stacks=stacks).state == "clear"
    chain = (half(0, "recv", 2), half(1, "recv", 0))
    assert ask("LIV008", *both, *others, stacks=chain).state == "hit"
