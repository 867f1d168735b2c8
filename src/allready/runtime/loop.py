"""A training loop that recovers, evaluates and stops on all ranks alike."""

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from allready.model import FailureCause
from allready.runtime.arguments import functions, whole
from allready.runtime.calls import safe_all_reduce, safe_barrier
from allready.runtime.durations import Duration, duration
from allready.runtime.evaluation import Batches, Evaluation, resilient_evaluation
from allready.runtime.exchange import small_device
from allready.runtime.failures import CollectiveFailed, HubLost, RankExcluded, RecoveryRefused
from allready.runtime.forming import Recovery, Wish
from allready.runtime.recovery import RECOVER, agreed_failure, cause_of, late_s_of, least_ranks, recover_as
from allready.runtime.session import Session, collect_failed, current
from allready.runtime.starting import joined
from allready.runtime.stopping import StopSignals

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoopEnd:
    """How a loop ended, the same on every rank: at which step, and by which signal (0: all steps are done)."""

    step: int
    signal: int

    @property
    def exit_code(self) -> int:
        """0 when all steps are done, else 128 + the signal: 143 after SIGTERM, 130 after SIGINT."""
        return 128 + self.signal if self.signal else 0


class TrainLoop:
    """Runs steps; after a failure it agrees with the other ranks, forms the group again and goes on.

    Args:
        num_steps: to be done in all.
        step: to begin with, for example of a checkpoint; the same on all ranks.
        on_recovery: called with the `Recovery` (new rank, number of ranks, `source`, `is_same_group`) and the step to
            go on from: takes the state of `source`, makes DDP anew where the group is another one.
        save: called with the step on every rank when the loop ends, all steps done or stopped by a signal.
        after_step: called with the number of steps done, after each that all ranks have done; the place of `evaluate`.
            Left out once a signal has come.
        min_ranks, recover_timeout, late_timeout: for `recover`.
        max_failures: so many failures one after the other, without a step in between that all ranks have done without
            one, end the loop with the last error.
        rejoin: a rank without which the others went on, or that was started again, asks them to take it in.  They do so
            between two steps, by `on_recovery`.
    """

    def __init__(
        self,
        num_steps: int,
        *,
        on_recovery: Callable[[Recovery, int], object],
        step: int = 0,
        save: Callable[[int], object] | None = None,
        after_step: Callable[[int], object] | None = None,
        min_ranks: int = 1,
        recover_timeout: Duration = RECOVER,
        late_timeout: Duration | None = None,
        max_failures: int = 5,
        rejoin: bool = True,
    ) -> None:
        functions({"on_recovery": on_recovery}, {"save": save, "after_step": after_step})
        self.num_steps, self.step = whole(num_steps, "num_steps", least=0), whole(step, "step", least=0)
        self._on_recovery, self._save, self._after_step = on_recovery, save, after_step
        self._min_ranks, self._recover_timeout = min_ranks, duration(recover_timeout, "recover_timeout")
        self._late_s = late_s_of(late_timeout, rejoins=rejoin)
        self._max_failures, self._num_failures = whole(max_failures, "max_failures", least=0), 0
        self._agreed = self.step
        self._rejoin = rejoin
        self._has_knocked = False
        self._is_new = self._has_new = False
        """Whether this rank, or any, has joined and does not know yet how far the others are."""
        self._signals = StopSignals()

    def run(self, train_step: Callable[[int], object]) -> LoopEnd:
        """Call `train_step` with each step's number until all are done or a signal came to any rank.

        SIGTERM and SIGINT let all ranks finish the same step; then `save` is called.  One more than a second
        later ends the process at once.

        Raises:
            HubLost, RankExcluded, RecoveryRefused: this rank is out of the job, or it has too few.
            Exception: what failed last, after `max_failures`.
        """
        functions({"train_step": train_step})
        found = 0
        session = joined()
        self._min_ranks = least_ranks(session, self._min_ranks)
        has_recovered = session.recovers
        with self._signals, session.shut():
            if session.is_outside:
                self._recover(RankExcluded(None, operation="recover", text="the others go on without this rank"))
            while self.step < self.num_steps and not found:
                session.recovers = self._may_fail(session)
                try:
                    found = self._one(train_step)
                except (HubLost, RecoveryRefused):
                    raise
                except Exception as error:  # noqa: BLE001 - the script's own, and what follows from other ranks'
                    self._recover(error)
                    error.__traceback__ = None
                    collect_failed()
            session.recovers = has_recovered  # what `save` raises ends the job
            if self._save is not None:
                self._save(self.step)
        return LoopEnd(step=self.step, signal=found if self.step < self.num_steps else 0)

    def evaluate(self, fn: Callable[[Any], Any], batches: Batches, **options: Any) -> Evaluation:
        """`resilient_evaluation` at this step, with what this loop does after a failure; call it in `after_step`."""
        own = {"min_ranks": self._min_ranks, "recover_timeout": self._recover_timeout, "late_timeout": self._late_s}
        options = own | options
        return resilient_evaluation(fn, batches, step=self.step, on_recovery=self._take_over, **options)

    def _may_fail(self, session: Session) -> bool:
        """Whether the loop goes on after one more failure that leaves one rank behind."""
        return self._num_failures < self._max_failures and session.num_ranks(()) > self._min_ranks

    def _one(self, train_step: Callable[[int], object]) -> int:
        """A step, the agreement that all ranks have done it, and what follows it; the signal to stop for."""
        if self._has_knocked:
            self._let_in()
        has_trained = self.step == self._agreed
        if has_trained:
            train_step(self.step)
            self.step += 1  # this rank's state is that far; if the agreement fails, the others may take it
        found, knocked = self._signals.agreed_with(current().member.has_knocked)
        self._agreed = self.step
        self._has_knocked = bool(knocked) and not found
        if has_trained:  # else the step is the one that failed on a rank after it was done on others
            self._num_failures = 0
        if self._after_step is not None and not found:
            self._after_step(self.step)
        return found

    def _let_in(self) -> None:
        """All ranks are here, between two steps and inside of no call."""
        self._has_knocked = False
        safe_barrier()
        self._form(None, FailureCause.JOINS)

    def _recover(self, error: BaseException) -> None:
        if isinstance(error, RankExcluded) and not self._rejoin:
            raise error
        self._num_failures += 1
        if self._num_failures > self._max_failures:
            with contextlib.suppress(CollectiveFailed):  # this rank is out, and the others know
                agreed_failure(error)  # else they would wait for a rank that has left the loop
            raise error
        log.warning("step %d failed: %s", self.step, error)
        self._form(error, cause_of(error))

    def _form(self, error: BaseException | None, cause: FailureCause) -> None:
        wish = Wish(
            min_ranks=self._min_ranks,
            step=self.step,
            until_s=time.monotonic() + self._recover_timeout.total_seconds(),
            rejoins=self._rejoin,
            late_s=self._late_s,
        )
        session = current()
        recovery = recover_as(session, wish, error, cause)
        self._is_new = self._is_new or session.rank in recovery.joined
        self._has_new = self._has_new or bool(recovery.joined)
        try:
            if self._has_new:
                self._share_agreed_step()
            self._take_over(recovery)
        except (HubLost, RecoveryRefused):
            raise
        except Exception as again:  # noqa: BLE001 - bounded by max_failures
            self._recover(again)

    def _share_agreed_step(self) -> None:
        """A rank that has joined learns whether the last step is agreed, and followed by what follows it."""
        import torch

        found = torch.tensor([-1 if self._is_new else self._agreed], device=small_device())
        safe_all_reduce(found, torch.distributed.ReduceOp.MAX, confirm=True)
        self._agreed = int(found.item())
        self._is_new = self._has_new = False

    def _take_over(self, recovery: Recovery) -> None:
        self.step = max(recovery.steps)
        self._on_recovery(recovery, self.step)
