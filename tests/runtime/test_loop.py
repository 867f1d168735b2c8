"""A loop that gives up."""

import pytest

from allready.model import FailureCause
from allready.runtime import loop as module
from allready.runtime.failures import CollectiveFailed, HubLost
from allready.runtime.loop import TrainLoop


@pytest.mark.parametrize("is_out", [False, True])
def test_who_gives_up_says_so_before_it_leaves_the_others(is_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script may catch the error and do something else: its process does not end, and the others would wait."""
    told: list[BaseException] = []

    def agreed_failure(error: BaseException) -> CollectiveFailed:
        told.append(error)
        if is_out:
            raise HubLost(None, operation="recover", text="no decision")
        return CollectiveFailed(None, operation="recover", text=FailureCause.RAISED)

    monkeypatch.setattr(module, "agreed_failure", agreed_failure)
    loop = TrainLoop(3, on_recovery=lambda _, __: None, max_failures=0)
    error = ValueError("made by the test")
    with pytest.raises(ValueError, match="made by the test"):
        loop._recover(error)
    assert told == [error]
