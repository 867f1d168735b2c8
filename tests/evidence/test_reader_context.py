"""What a reader learns from files changes how long the next ones take, never what they give."""

import random
from pathlib import Path

import pytest

from allready.evidence.inputs import find
from allready.evidence.readers import NO_LANE, ReaderContext, ReadOptions, read_found
from allready.evidence.reading import Reading
from tests.evidence.lines.test_lane import rank_log

LINES = Path(__file__).parents[1] / "fixtures" / "lines"


def readings(paths: list[Path], context: ReaderContext) -> dict[str, Reading]:
    found = (found for path in paths for found in find([str(path)]))
    return {r.source.path: r for one in found for r in read_found(one, context)}  # type: ignore[arg-type]


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    for rank in range(4):
        (tmp_path / f"nccl.{rank}.log").write_bytes(rank_log(rank, comms=2, rounds=200, seam=9))
    return [*sorted(tmp_path.iterdir()), *sorted(LINES.glob("*.log"))]


@pytest.mark.thorough
def test_every_log_gives_the_same_after_all_others(logs: list[Path]) -> None:
    alone: dict[str, Reading] = {}
    for path in logs:
        alone |= readings([path], ReaderContext())
    for seed in range(2):
        random.Random(seed).shuffle(logs)
        assert readings(logs, ReaderContext()) == alone


@pytest.mark.thorough
def test_the_lane_can_be_switched_off_and_changes_nothing(logs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with_lane, without = ReaderContext(), ReaderContext(ReadOptions(use_lane=False))
    assert readings(logs, with_lane) == readings(logs, without)
    monkeypatch.setenv(NO_LANE, "1")
    by_environment = ReaderContext()
    assert readings(logs, by_environment) == readings(logs, without)
    learnt = [len(one._scan_memory.loops.loops) for one in (with_lane, without, by_environment)]
    assert learnt[0] > 0
    assert learnt[1:] == [0, 0]
