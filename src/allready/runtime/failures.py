"""What calls of the runtime library raise.

AllreadyError
└── CollectiveFailed     an agreed failure: every rank that survives has the same one
    ├── HubLost          not agreed: this rank cannot know what the others decided; it is out of the job
    ├── RankExcluded     the others have formed a group without this rank
    └── RecoveryRefused  too few ranks came to form a group
"""

import functools

from allready.errors import AllreadyError
from allready.model import FailureCause, RuntimeFailure, Verdict
from allready.runtime.judgement import verdict_on


class CollectiveFailed(AllreadyError):  # noqa: N818 - an outcome
    """A call failed, on all ranks alike; the group is gone until `recover`, tensors of the call are undefined.

    Attributes:
        failure: who was where; None where it is not agreed.
        operation, number: the call in which this rank learned of it; calls of a group are counted from 1.
        is_agreed: whether every surviving rank has the same outcome.
        is_restored: with `restore=True`, whether the tensor has its old content; False: the operation had not ended 2 s
            later and may still write to it.  None: not asked for.
    """

    is_agreed = True
    is_restored: bool | None = None

    def __init__(self, failure: RuntimeFailure | None, *, operation: str = "", number: int = 0, text: str = "") -> None:
        super().__init__(text)
        self.failure = failure
        self.operation, self.number = operation, number
        self._text = text

    @functools.cached_property
    def verdict(self) -> Verdict | None:
        """Who is at fault and why, by the judge of all commands; None where nothing is agreed, or a rank joins."""
        return None if self.failure is None else verdict_on(self.failure)

    @property
    def first_void(self) -> int | None:
        """The first call that counts on no rank; this rank may have been given success."""
        return None if self.failure is None else self.failure.first_void

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __str__(self) -> str:
        verdict = self.verdict
        if verdict is not None:
            return f"{verdict.code}: {verdict.sentence}"
        if self.failure is None:
            return self._text
        if self.failure.cause is FailureCause.JOINS:
            who = "a rank" if self.failure.reporter is None else f"rank {self.failure.reporter}"
            return f"nothing failed: the ranks form their group again to take in {who}"
        reporter = self.failure.reporter
        error = next((r.error for r in self.failure.ranks if r.rank == reporter), "")
        said = f": {error}" if error else ""
        return f"a collective failed ({self.failure.cause}), reported by rank {reporter}{said}"


class HubLost(CollectiveFailed):
    """The hub is gone or silent: what the others decided is not known here, and this rank is out of the job."""

    is_agreed = False


class RankExcluded(CollectiveFailed):
    """The other ranks have formed a group without this one, which came too late."""


class RecoveryRefused(CollectiveFailed):
    """Too few ranks came in time to form a group; `missing` did not, and the verdict says what became of them."""

    def __init__(self, missing: tuple[int, ...], *, text: str, failure: RuntimeFailure | None = None) -> None:
        super().__init__(failure, operation="recover", text=text)
        self.missing = missing

    def __str__(self) -> str:
        verdict = self.verdict
        return self._text if verdict is None else f"{verdict.code}: {verdict.sentence} ({self._text})"
