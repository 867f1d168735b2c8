"""States and ends of processes."""

import msgspec

from allready.model import EndKind, ProcessEnd, ProcessState
from allready.model.process import end_of, signal_name, signal_number
from tests.cases import cases


def test_a_state_is_its_word() -> None:
    assert ProcessState("stopped") is ProcessState.STOPPED
    assert msgspec.json.encode(ProcessState.DISK) == b'"disk"'
    assert {s for s in ProcessState if s in ProcessState.GONE} == {"zombie", "exited", "killed"}
    assert {s for s in ProcessState if s in ProcessState.FROZEN} == {"stopped", "traced"}


def test_the_kind_of_an_end_follows_from_its_status() -> None:
    assert end_of(3, None, time_s=1.0).kind is EndKind.EXIT
    assert end_of(None, "SIGKILL", time_s=1.0).kind is EndKind.SIGNAL
    assert end_of(None, "SIGABRT", time_s=1.0).kind is EndKind.ABORT
    assert end_of(None, "SIGKILL", time_s=1.0, oom_killed=True).kind is EndKind.OOM


def test_only_exit_code_0_is_success() -> None:
    assert end_of(0, None, time_s=1.0).is_success
    assert not end_of(1, None, time_s=1.0).is_success
    assert not ProcessEnd().is_success


def test_an_end_travels_as_json() -> None:
    end = end_of(None, "SIGKILL", rank=3, time_s=1.5)
    assert msgspec.json.decode(msgspec.json.encode(end), type=ProcessEnd) == end


@cases(("name", "number"), [("SIGKILL", 9), ("signal 37", 37), (None, 0), ("odd", 0)])
def test_signals_have_numbers(name: str | None, number: int) -> None:
    assert signal_number(name) == number
    assert number == 0 or signal_name(number) == name
