"""What a sentence says is done."""

from allready.evidence.log.subjects import is_of_an_act
from tests.cases import cases

OF_ALL = [
    "Training finished.", "Training completed successfully in 12.1 s", "All done", "Done.", "Finished training",
    "2026-02-01 10:00:00 - INFO - main - Training complete", "Process 1646253 exits successfully.",
    "All ranks finished", "Training of resnet50 completed", "finished in 31 secs", "pre-training done",
    "Fine-tuning is done!",
    "exit code 0", "All epochs completed", "[done] training", "训练完成 successfully", "Benchmark run finished",
]  # fmt: skip
OF_AN_ACT = [
    "Autosave completed successfully", "Rollout collection took 81.2 s", "Garbage collection done, took 0.8 s",
    "upload finished in 12.1 s", "Learning rate finder finished: suggested lr 0.0012", "all ranks finished saving",
    "Finished collecting rollouts", "2026-02-01 10:00:00 - INFO - main - Graph capturing finished in 31 secs",
]  # fmt: skip


@cases("text", OF_ALL)
def test_the_run_itself_or_nothing_is_named(text: str) -> None:
    assert not is_of_an_act(text)


@cases("text", OF_AN_ACT)
def test_something_else_is_named(text: str) -> None:
    assert is_of_an_act(text)
