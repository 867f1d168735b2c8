"""Hugging Face's Trainer and Lightning's, each with its own callback class around the same three steps."""

import contextlib
import importlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from allready.errors import UsageError
from allready.runtime.failures import CollectiveFailed
from allready.runtime.recovery import agreed_failure
from allready.runtime.starting import joined
from allready.runtime.stopping import StopSignals

log = logging.getLogger(__name__)


class TrainerSteps:
    """What a callback does around the steps of any trainer.

    Args:
        every: after so many steps the ranks agree.
    """

    def __init__(self, every: int) -> None:
        if every < 1:
            raise UsageError("every must be at least 1 step")
        self._every = every
        self._num_steps = 0
        self._signals: StopSignals | None = None
        self._stack = contextlib.ExitStack()
        self.signal = 0
        """That all ranks have stopped for."""

    @property
    def exit_code(self) -> int:
        """As that of a `LoopEnd`: 143 after SIGTERM, 130 after SIGINT, else 0."""
        return 128 + self.signal if self.signal else 0

    def begin(self) -> None:
        """Take the signals; a group that torch has made is taken over.  Collective.

        Outside of the main thread Python takes none; those that come to other ranks stop this one all the same.
        """
        joined()
        if self._signals is None:
            self._signals = StopSignals()
            if threading.current_thread() is threading.main_thread():
                self._stack.enter_context(self._signals)
            _begun.append(self)

    def done(self) -> int:
        """A step is done here; the signal to stop for that came to any rank, 0 without one.

        Raises:
            CollectiveFailed: on every surviving rank, with the verdict.
        """
        self._num_steps += 1
        if self._signals is None or self._num_steps % self._every:
            return 0
        self.signal = self._signals.agreed()
        if self.signal:
            log.warning("signal %d: all ranks stop after this step", self.signal)
        return self.signal

    def end(self) -> None:
        """Handle signals as before."""
        if self._signals is not None:
            self._signals = None
            self._stack.close()
            _begun.remove(self)


_begun: list[TrainerSteps] = []
"""Those that have the signals now; a trainer that fails does not always tell its callbacks that training has ended."""


def _base(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise UsageError("{module} is not installed", module=module) from error


@contextlib.contextmanager
def agreed_failures() -> Iterator[None]:
    """Around `trainer.train()` or `trainer.fit(...)`: every exception becomes the failure that all ranks agree upon.

    What torch raises in DDP's backward when another rank died then names that rank; the other ranks learn of an
    exception of this one at once.

    Raises:
        CollectiveFailed: in place of any other exception, which is its cause.
    """
    try:
        yield
    except CollectiveFailed:
        raise
    except Exception as error:
        raise agreed_failure(error) from error
    finally:
        while _begun:
            _begun[-1].end()


def _callback(base: Any, steps: TrainerSteps, hooks: dict[str, Any]) -> Any:
    return type("AllreadyCallback", (base,), {**hooks, "exit_code": property(lambda _: steps.exit_code)})()


def hugging_face_callback(*, every: int = 1) -> Any:
    """A `transformers.TrainerCallback`; call `allready.init_process_group` before `TrainingArguments` are made, or
    let torch make the group (Gloo), which is taken over then.

    A rank that does not come makes `trainer.train()` raise `CollectiveFailed` on all others, with the verdict.  After
    SIGTERM or SIGINT to any rank all ranks stop after the same step, with a checkpoint; `exit_code` of the callback is
    143 or 130 then, else 0.

    Args:
        every: after so many steps the ranks agree.
    """
    base = _base("transformers", "TrainerCallback")
    steps = TrainerSteps(every)

    def on_train_begin(*_: Any, **__: Any) -> None:
        steps.begin()

    def on_step_end(_: Any, __: Any, ___: Any, control: Any, **____: Any) -> None:
        if steps.done():
            control.should_save = control.should_training_stop = True

    def on_train_end(*_: Any, **__: Any) -> None:
        steps.end()

    hooks = {"on_train_begin": on_train_begin, "on_step_end": on_step_end, "on_train_end": on_train_end}
    return _callback(base, steps, hooks)


def lightning_callback(*, every: int = 1) -> Any:
    """A `lightning.pytorch.Callback`; call `allready.init_process_group` before `trainer.fit`, or let torch make the
    group (Gloo), which is taken over then.

    As `hugging_face_callback`, with `exit_code` too; `trainer.should_stop` is set after a signal, and checkpoints are
    Lightning's own.

    Args:
        every: after so many batches the ranks agree.
    """
    base = _base("lightning.pytorch", "Callback")
    steps = TrainerSteps(every)

    def begin(*_: Any) -> None:
        steps.begin()

    def done(_: Any, trainer: Any, *__: Any) -> None:
        if steps.done():
            trainer.should_stop = True

    def end(*_: Any) -> None:
        steps.end()

    hooks = {"on_train_start": begin, "on_train_batch_end": done, "on_train_end": end, "on_exception": end}
    return _callback(base, steps, hooks)
