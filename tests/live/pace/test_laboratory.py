"""The same as the recordings, made now: real ranks, real namespaces, real faults.  Slow: twenty seconds each."""

from pathlib import Path

import msgspec
import pytest

from allready.model import NodeStatus
from tests.lab.conftest import why_no_lab

from .make_recordings import record
from .replay import Recording, told_again
from .test_recordings import FAULTS, HARMLESS, SILENT, accused

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(240)]

TRIED = ("slow10", "slow1", "quota20", "pulses", "loader", "black", "oneway", "loss5")
QUIET = ("healthy", "k3", "uniform")


@pytest.fixture(autouse=True)
def laboratory() -> None:
    reason = why_no_lab()
    if reason is not None:
        pytest.skip(f"no lab on this machine: {reason}")


def made_now(name: str, folder: Path) -> Recording:
    data = record(name, folder)
    words = {int(n): tuple(msgspec.convert(w, NodeStatus) for w in kept) for n, kept in data["history"].items()}
    return Recording(name=name, fault_s=data["fault_s"], statuses=words)


@pytest.mark.parametrize("name", TRIED)
def test_a_fault_that_is_made_now_is_named(name: str, tmp_path: Path) -> None:
    told = made_now(name, tmp_path)
    found = [accused(judged) for judged in told_again(told, silent=frozenset(SILENT.get(name, ())))]
    assert found[-1] == FAULTS[name], found
    assert set(found) <= {None, FAULTS[name]}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_no_fault_is_not_accused_now_either(name: str, tmp_path: Path) -> None:
    assert name in HARMLESS
    assert {accused(judged) for judged in told_again(made_now(name, tmp_path))} == {None}
