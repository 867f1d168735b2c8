"""Parts of a job that a log announces."""

from allready.evidence.log.parts import is_of_a_part
from tests.cases import cases

OPEN = [
    ["=== Fold 1 ==="], ["Config 1/12: lr=0.1"], ["Run 1 of sweep: lr=0.1"], ["Stage: teacher"], ["Inference shard 0"],
    ["Running inference on shard 0 of 8"], ["Starting 5-fold cross validation"], ["Fold 2/2", "Fold 1/2"],
    ["seed 1/3", "fold 5/5"],
]  # fmt: skip
CLOSED = [
    [], ["Fold 1/2", "Fold 2/2"], ["seed 0/2", "seed 1/2"], ["cross-validation, fold 5/5"], ["seed: 42"], ["stage: 2"],
    ["job 1234567 on gpu-012"], ["device /job:localhost/replica:0/task:0/device:GPU:0"], ["cross_validation: false"],
    ["Loading checkpoint shards: 100%|##########| 2/2"],
]  # fmt: skip


@cases("lines", OPEN)
def test_more_parts_may_be_to_come(lines: list[str]) -> None:
    assert is_of_a_part(lines)


@cases("lines", CLOSED)
def test_settings_and_the_last_part_are_none(lines: list[str]) -> None:
    assert not is_of_a_part(lines)


def test_words_that_are_certain_are_overruled_only_by_a_number_of_parts() -> None:
    assert is_of_a_part(["Config 1/12"], for_certain=True)
    assert not is_of_a_part(["=== Fold 1 ===", "5-fold cross validation"], for_certain=True)
    assert not is_of_a_part(["loading shard 8/8", "loading shard 3/8"], for_certain=True)
