"""Who waits for whom, where the members of one group are in several of its operations."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from allready.cli.main import main
from allready.judging.waits import snapshot_of
from allready.model import Position, Recorder
from tests.evidence.flight.dialect import torch_pickle
from tests.evidence.flight.make import dump, entry
from tests.rules.runs import at, group, operation

ROOTED = [
    ([(9, None), (9, 10), (10, 11), (10, 11)], [0]),
    ([(9, None), (9, 10), (9, 10), (10, 11)], [0]),
    ([(9, None), (10, 11), (10, 11), (11, 12)], [0]),
    ([(8, 9), (9, 10), (9, 10), (9, 10)], [0]),
    ([(8, 9), (9, 10), (10, 11), (10, 11)], [0]),
    ([(9, None), (9, None), (9, 10), (10, 11)], [0, 1]),
]
"""Of each rank the last operation that it completed, and the one that it is in; who is to blame."""


@pytest.mark.parametrize("is_still", [True, False])
@pytest.mark.parametrize(("ranks", "odd"), ROOTED)
def test_who_waits_is_not_accused(ranks: Sequence[tuple[int, int | None]], odd: list[int], is_still: bool) -> None:
    positions = {rank: at(inside or done, inside) for rank, (done, inside) in enumerate(ranks)}
    found = snapshot_of(Recorder.TORCH, [group(positions)], is_still=is_still)
    assert found is not None
    assert found.roots == tuple(odd)


@pytest.mark.parametrize(("ranks", "odd"), ROOTED)
def test_dumps_of_a_rooted_operation(ranks: Sequence[tuple[int, int | None]], odd: list[int], tmp_path: Path) -> None:
    for rank, (done, inside) in enumerate(ranks):
        calls = [entry(seq, "nccl:broadcast") for seq in range(1, done + 1)]
        calls += [entry(inside, "nccl:broadcast", state="scheduled")] if inside is not None else []
        (tmp_path / f"fr_{rank}").write_bytes(torch_pickle(dump(calls, members=tuple(range(len(ranks))))))
    assert blamed(tmp_path) == ("HNG001", odd)


def test_the_one_furthest_behind_is_named_though_its_dump_is_old(tmp_path: Path) -> None:
    """Others completed an all_reduce that it had not entered by its own dump; one rank waits between the two."""
    for rank, inside in enumerate((10, 11, 12, 12)):
        calls = [*(entry(seq) for seq in range(1, inside)), entry(inside, state="scheduled")]
        (tmp_path / f"fr_{rank}").write_bytes(torch_pickle(dump(calls, members=(0, 1, 2, 3))))
    assert blamed(tmp_path) == ("HNG002", [0])


def test_of_an_operation_that_needs_all_and_that_others_went_through_nobody_is_missed() -> None:
    """Rank 3 left nothing; rank 2 shows the operation before as not complete, which the others completed."""
    positions = {0: at(12, 12), 1: at(12, 12), 2: at(11, 11)}
    found = snapshot_of(Recorder.TORCH, [group(positions)])
    assert found is not None
    assert (found.roots, found.unseen) == ((2, 3), (3,))


def test_who_completed_the_latest_operation_waits_in_it_only_where_it_needs_all() -> None:
    for name, roots in (("broadcast", (3,)), ("all_reduce", ())):
        inside = Position(enqueued=12, completed=11, stuck=operation(12, name))
        done = Position(enqueued=12, completed=12)
        other = group({0: at(3, 3), 3: at(2)}, group="1", label="tp", members=(0, 3))
        found = snapshot_of(Recorder.TORCH, [group({0: at(11), 1: inside, 2: inside, 3: done}), other])
        assert found is not None
        assert found.roots == roots, name


def blamed(folder: Path) -> tuple[str, list[int]]:
    target = folder / "report.json"
    assert main(["diagnose", "-q", "--json", str(target), str(folder)]) == 1
    verdict = json.loads(target.read_text(encoding="utf-8"))["verdict"]
    return verdict["code"], verdict["culprits"]["ranks"]
