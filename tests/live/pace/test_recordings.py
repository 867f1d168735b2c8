"""The rules about paces and paths over what agents really saw of a Gloo loop in the laboratory (see `make_recordings`).

A recording is the words of four (or two, three) agents, from four seconds before the fault on.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cases import cases

from .replay import FIXTURES, Judged, Recording, load_recording, told_again

pytestmark = pytest.mark.thorough

LATEST_S = 8.0
Accused = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]

FAULTS: dict[str, tuple[str, Accused]] = {
    "half": ("SLOW-COMM", ((2,), (), ())),
    "slow1": ("SLOW-COMM", ((2,), (), ())),
    "slow10": ("SLOW-COMM", ((2,), (), ())),
    "slow10out": ("SLOW-COMM", ((1,), (), ())),
    "slow10in": ("SLOW-COMM", ((1,), (), ())),
    "slow3": ("SLOW-COMM", ((1,), (), ())),
    "slow2out": ("SLOW-COMM", ((), (), ((1, 0),))),
    "loss1": ("SLOW-COMM", ((2,), (), ())),
    "loss5": ("SLOW-COMM", ((2,), (), ())),
    "quota50": ("SLOW-COMP", ((), (1,), ())),
    "quota20": ("SLOW-COMP", ((), (1,), ())),
    "pulses": ("SLOW-COMP", ((), (1,), ())),
    "loader": ("SLOW-COMP", ((), (3,), ())),
    "mixed": ("SLOW-MIXED", ((2,), (0,), ())),
    "down": ("NET-BROKEN", ((2,), (), ())),
    "black": ("NET-BROKEN", ((2,), (), ())),
    "black0": ("NET-BROKEN", ((0,), (), ())),
    "mtu": ("NET-BROKEN", ((2,), (), ())),
    "oneway": ("NET-BROKEN", ((), (), ((1, 2),))),
}
"""Recording -> class, and (nodes, ranks, links)."""

SILENT = {"down": {2}, "black": {2}, "mtu": {2}, "black0": {1, 2, 3}}
"""Nodes that node 0 does not hear any more: the side channel goes over the same path."""

HARMLESS = ("healthy", "heavy", "k3", "rotate", "uniform", "slowall", "slow2", "stopbig")


def recording(name: str) -> Recording:
    return load_recording(FIXTURES / f"{name}.json.xz")


def answers(name: str) -> list[Judged]:
    return list(told_again(recording(name), silent=frozenset(SILENT.get(name, ()))))


def accused(judged: Judged) -> tuple[str, Accused] | None:
    verdict = judged.verdict
    if verdict is None:
        return None
    culprits = verdict.culprits
    return str(verdict.fault_class), (culprits.nodes, culprits.ranks, culprits.links)


@cases("name", FAULTS)
def test_names_class_and_culprit_within_seconds_and_nobody_else_ever(name: str) -> None:
    found = [(judged.after_s, accused(judged)) for judged in answers(name)]
    first = next((after_s for after_s, answer in found if answer == FAULTS[name]), None)
    assert first is not None, found
    assert first <= LATEST_S + 1
    assert found[-1][1] == FAULTS[name]
    others = {answer for _, answer in found if answer not in {None, FAULTS[name]}}
    allowed = {("SLOW-COMM", ((2,), (), ()))} if name == "mixed" else set()
    assert others <= allowed


@cases("name", HARMLESS)
def test_accuses_nobody_of_what_is_no_fault(name: str) -> None:
    assert {accused(judged) for judged in answers(name)} == {None}


def test_a_link_that_flaps_is_named_with_its_node() -> None:
    found = {accused(judged) for judged in answers("flap")} - {None}
    assert found == {("NET-BROKEN", ((2,), (), ()))}


def test_a_pair_is_named_without_its_nodes() -> None:
    found = accused(answers("pair")[-1])
    assert found is not None
    assert found[0] == "NET-BROKEN"
    assert found[1][:2] == ((), ())
    assert {n for link in found[1][2] for n in link} == {1, 2}


@cases("skew_s", [-5.0, 5.0])
@cases("name", ["healthy", "loader", "slow10"])
def test_clocks_that_are_apart_change_nothing_when_the_offset_is_known(name: str, skew_s: float) -> None:
    found = [accused(judged) for judged in told_again(skewed(recording(name), skew_s, known=True))]
    assert set(found) - {None} == ({FAULTS[name]} if name in FAULTS else set())


@pytest.mark.parametrize("skew_s", [-5.0, 5.0])
def test_a_clock_that_is_wrong_by_an_unknown_amount_accuses_nobody(skew_s: float) -> None:
    assert {accused(judged) for judged in told_again(skewed(recording("healthy"), skew_s, known=False))} == {None}


def skewed(told: Recording, skew_s: float, *, known: bool) -> Recording:
    """Node 2's clock is ahead by so much; whether its agent knows."""

    def shift(time_s: float | None) -> float | None:
        return None if time_s is None else time_s + skew_s

    words = []
    for word in told.statuses[2]:
        ranks = tuple(
            replace(rank, groups=tuple(replace(g, moved_s=shift(g.moved_s)) for g in rank.groups))
            for rank in word.ranks
        )
        pace = tuple(replace(p, created_s=tuple(t + skew_s for t in p.created_s)) for p in word.pace)
        offset_s = skew_s if known else 0.0
        words.append(
            replace(
                word,
                time_s=word.time_s + skew_s,
                clock_offset_s=offset_s,
                clock_uncertainty_s=0.001,
                ranks=ranks,
                pace=pace,
            )
        )
    return Recording(name=told.name, fault_s=told.fault_s, statuses={**told.statuses, 2: tuple(words)})


def test_every_recording_is_judged_by_a_test() -> None:
    there = {Path(path.name).name.removesuffix(".json.xz") for path in FIXTURES.glob("*.json.xz")}
    assert there == {*FAULTS, *HARMLESS, "flap", "pair"}
