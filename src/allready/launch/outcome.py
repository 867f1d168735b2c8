"""Whether another attempt is worth it, and the exit code of the job; why an attempt ended says `judging.end_causes`."""

from msgspec.structs import asdict

from allready.model import AttemptEnd, EndCause
from allready.model.process import signal_number

WORTH_RETRY = frozenset({
    EndCause.HARDWARE, EndCause.NETWORK, EndCause.PORT_IN_USE, EndCause.RENDEZVOUS, EndCause.KILLED, EndCause.CRASHED,
    EndCause.NODE_LOST, EndCause.HUNG, EndCause.UNKNOWN,
})  # fmt: skip
"""After these another attempt may succeed."""

USER_ERRORS = frozenset({EndCause.USER_EXCEPTION, EndCause.EXIT_CODE, EndCause.OUT_OF_MEMORY, EndCause.IMPORT_ERROR})
"""What `--retry-user-errors` retries as well."""


class Outcome(AttemptEnd, frozen=True, kw_only=True):
    """How an attempt ended and what follows; `exit_code`: what the job should end with now."""

    worth_retry: bool
    exit_code: int


def outcome_of(attempt: AttemptEnd, *, stop_signal: str = "", retry_user_errors: bool = False) -> Outcome:
    """What follows from the end of an attempt; `stop_signal`: what the user sent, "SIGTERM" or "SIGINT"."""
    is_worth = attempt.end in WORTH_RETRY or (retry_user_errors and attempt.end in USER_ERRORS)
    return Outcome(**asdict(attempt), worth_retry=is_worth, exit_code=_exit_code(attempt, stop_signal))


def code_of_stop(signal: str) -> int:
    """The exit code of a job that was ended by a signal to the launcher, as a shell gives it."""
    return 128 + signal_number(signal)


def _exit_code(attempt: AttemptEnd, stop_signal: str) -> int:
    if attempt.end is EndCause.SUCCESS:
        return 0
    if attempt.end is EndCause.STOPPED and stop_signal:
        return code_of_stop(stop_signal)
    return 1 if attempt.first is None or attempt.end is EndCause.HUNG else attempt.first.shell_code or 1
