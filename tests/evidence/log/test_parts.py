"""Parts of a job that a log announces."""

from allready.evidence.log.parts import is_of_a_list, is_of_a_part
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


NAMED_AND_OPEN = [
    ["Models to train: bert-base, roberta-base", "=== bert-base ==="],
    ["datasets: [cifar10, cifar100, svhn]", "cifar10 test accuracy 0.93", "cifar100 test accuracy 0.71"],
    ["Pipeline: tokenize -> train -> export", "[train] done"],
    ["Running seeds: 0, 1, 2", "seed 0 done", "seed 1 done"],
]
NAMED_AND_CLOSED = [
    ["Models to train: bert-base, roberta-base", "=== bert-base ===", "=== roberta-base ==="],
    ["seeds: 0, 1", "seed 0 done", "seed 1 done"], ["tasks: hellaswag, piqa", "loss 0.3"],
    ["tasks: 45 total, 2 running"],
    ["target modules: q_proj, v_proj", "q_proj replaced"], ["dataset: squad, 87599 rows", "squad loaded"],
]  # fmt: skip


@cases("lines", NAMED_AND_OPEN)
def test_some_of_the_parts_that_were_named_have_not_begun(lines: list[str]) -> None:
    assert is_of_a_list(lines)


@cases("lines", NAMED_AND_CLOSED)
def test_nothing_is_open_where_all_were_named_again_or_the_list_is_of_something_else(lines: list[str]) -> None:
    assert not is_of_a_list(lines)
