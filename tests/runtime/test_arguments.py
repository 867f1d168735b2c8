"""What a script gives is looked at before anything begins, not where it would be a failure of the job."""

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from allready.errors import UsageError
from allready.runtime import recovery, session
from allready.runtime.arguments import functions, number, whole
from allready.runtime.evaluation import resilient_evaluation
from allready.runtime.loop import TrainLoop
from allready.runtime.metrics import control, tuning
from allready.runtime.metrics.alerts import Command, Webhook
from allready.runtime.pace import AdaptiveTimeout
from allready.runtime.stopping import StopSignals


def test_whole_numbers_are_those_of_any_kind() -> None:
    class Index:
        def __index__(self) -> int:
            return 7

    assert whole(Index(), "step") == whole(7, "step", least=0, most=7) == 7
    for wrong in (True, "7", 7.0, None, 1 << 63, [7]):
        with pytest.raises(UsageError, match="step: a whole number, not"):
            whole(wrong, "step")
    with pytest.raises(UsageError, match="step: a whole number from 0 to 6, not 7"):
        whole(7, "step", least=0, most=6)


def test_numbers_are_those_of_any_kind_and_a_nan_is_none() -> None:
    for good in (1, 1.5, np.float32(1.5), np.int64(2)):
        number(good, "margin", least=1, most=2)
    for wrong in (True, "1", None, 0.5, np.float32(3), float("nan"), 1j):
        with pytest.raises(UsageError, match="margin: a number from 1 to 2, not"):
            number(wrong, "margin", least=1, most=2)


def test_a_function_that_may_lack_is_none_or_a_function() -> None:
    functions({"on_recovery": print}, {"save": None})
    with pytest.raises(UsageError, match="on_recovery: a function is needed, not None"):
        functions({"on_recovery": None})
    with pytest.raises(UsageError, match="save: a function is needed, not 3"):
        functions({}, {"save": 3})


def nothing(*_: Any) -> dict[str, float]:
    return {}


WRONG: dict[str, tuple[str, Callable[[], object]]] = {
    "min_ranks of text": ("min_ranks", lambda: recovery.recover(ValueError(), min_ranks="2")),  # type: ignore[arg-type]
    "more ranks than there ever were": ("from 1 to 3, not 9", lambda: recovery.recover(ValueError(), min_ranks=9)),
    "no step": ("step", lambda: recovery.recover(ValueError(), step=None)),  # type: ignore[arg-type]
    "a loop without recovery": ("on_recovery", lambda: TrainLoop(3, on_recovery=None)),  # type: ignore[arg-type]
    "steps below 0": ("num_steps", lambda: TrainLoop(-1, on_recovery=nothing)),
    "failures below 0": ("max_failures", lambda: TrainLoop(3, on_recovery=nothing, max_failures=-1)),
    "no time to recover": ("recover_timeout", lambda: TrainLoop(3, on_recovery=nothing, recover_timeout="60")),  # type: ignore[arg-type]
    "too many for the loop": ("min_ranks", lambda: TrainLoop(3, on_recovery=nothing, min_ranks=4).run(nothing)),
    "no step of training": ("train_step", lambda: TrainLoop(3, on_recovery=nothing).run(3)),  # type: ignore[arg-type]
    "retries below 0": ("retries", lambda: resilient_evaluation(nothing, [1], step=1, retries=-1)),
    "more than all": ("min_coverage", lambda: resilient_evaluation(nothing, [1], step=1, min_coverage=2)),
    "a record that is none": ("record", lambda: resilient_evaluation(nothing, [1], step=1, record=3)),
    "a time to meet": ("sync_timeout", lambda: resilient_evaluation(nothing, [1], step=1, sync_timeout=-1)),
    "no function": ("fn", lambda: resilient_evaluation(3, [1], step=1)),  # type: ignore[call-overload]
    "no batches": ("batches", lambda: resilient_evaluation(nothing, None, step=1)),  # type: ignore[call-overload]
    "an evaluation without a step": ("step", lambda: resilient_evaluation(nothing, [1], step="a")),  # type: ignore[call-overload]
    "margin of text": ("margin", lambda: AdaptiveTimeout(margin="5")),  # type: ignore[arg-type]
    "after no call": ("after", lambda: AdaptiveTimeout(after=0)),
    "of no calls": ("last", lambda: control.lateness(-1)),
    "a hook that is no function": ("alerts", lambda: control.start(alerts=["curl x"])),  # type: ignore[list-item]
    "hooks that are no list": ("alerts", lambda: control.start(alerts=nothing)),  # type: ignore[arg-type]
    "a sink that is none": ("int.open", lambda: control.start(sinks=[3])),  # type: ignore[list-item]
    "no room for a log": ("max_bytes", lambda: control.start(max_bytes=0)),
    "time of a command": ("timeout_s", lambda: Command(["true"], timeout_s="30")),  # type: ignore[arg-type]
    "time of a webhook": ("timeout_s", lambda: Webhook("http://a", timeout_s=-1)),
    "a signal by its name": ("signals", lambda: StopSignals(("SIGTERM",))),  # type: ignore[arg-type]
    "a signal that none handles": ("signals", lambda: StopSignals((9,))),
    "no time-out": ("adaptive", lambda: tuning.tune(3)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_are_refused_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a link: what is sent to the hub would end with an AttributeError."""
    monkeypatch.setattr(session, "_current", [SimpleNamespace(num_started=3, is_shut=False)])
    text, use = WRONG[name]
    with pytest.raises(UsageError, match=text):
        use()


@pytest.mark.torch
def test_signs_of_life_leave_the_hub_time_for_its_work() -> None:
    with pytest.raises(UsageError, match=r"answer_within: at least 0\.1 s"):
        recovery.init_process_group(answer_within=0)


@pytest.mark.torch
def test_a_rank_beyond_the_last_is_no_rank() -> None:
    with pytest.raises(UsageError, match="rank 3 is not one of 3 ranks"):
        recovery.init_process_group(store=object(), rank=3, world_size=3, start_timeout=timedelta(seconds=1))
