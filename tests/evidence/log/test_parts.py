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


OPEN_FOR_CERTAIN = [
    ["Round 3/50"], ["Runde 2 von 3", "Runde 2/3"], ["阶段 1/3: 监督微调"], ["Running task 1 of 8: cola"],
    ["[1/4] Training model resnet18"], ["trial 1 of 5", "loss 0.3"], ["trial 2 of 5", "loss 0.3", "trial 3 of 5"],
    ["a setting", "another", "one more", "trial 3 of 5"],
    ["Starting 5-fold cross-validation", "--- Fold 1 ---", "--- Fold 3 ---"],
]  # fmt: skip
CLOSED_FOR_CERTAIN = [
    ["Round 49/50", "Round 50/50"], ["round 12 done"], ["[1/3] Training model a", "[2/3] Saving it", "[3/3] Uploading"],
    ["[9/100] Training loss: 0.3"], ["Beginning trial 3 of 5", "loss 0.3"],
    ["5-fold cross-validation", *(f"--- Fold {n} ---" for n in range(1, 6))],
    ["5-fold cross-validation", *(f"--- Fold {n} ---" for n in range(5))],
]  # fmt: skip


@cases("lines", OPEN_FOR_CERTAIN)
def test_their_number_is_said_and_not_reached(lines: list[str]) -> None:
    assert is_of_a_part(lines, for_certain=True)


@cases("lines", CLOSED_FOR_CERTAIN)
def test_their_number_is_reached_or_is_none_of_parts(lines: list[str]) -> None:
    assert not is_of_a_part(lines, for_certain=True)


NAMED_AND_OPEN = [
    ["Grid search over lr: 0.1, 0.01, 0.001", "lr=0.1", "Epoch 1/10 loss 1.0000", "Finished run lr=0.1: acc 0.71"],
    ["Models to train: bert-base, roberta-base", "=== bert-base ==="],
    ["datasets: [cifar10, cifar100, svhn]", "cifar10 test accuracy 0.93", "cifar100 test accuracy 0.71"],
    ["Pipeline: tokenize -> train -> export", "[train] done"],
    ["Running seeds: 0, 1, 2", "seed 0 done", "seed 1 done"],
]
NAMED_AND_CLOSED = [
    ["Sweep over lr: 0.1, 0.01", "lr=0.1", "lr=0.01"],
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
