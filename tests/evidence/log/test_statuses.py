"""The call some lines below a status decides what it means."""

from collections.abc import Iterator

import pytest

from tests.evidence.log.reading import read, use_signatures

STATUS = "absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded"
ENDS = f"F1123 02:47:46.500373    3813 client.h:86] Terminating process because of fatal errors. {STATUS}\n"
CALL = "RPC: /xla.coordination.CoordinationService/{}\n"


@pytest.fixture(autouse=True, scope="module")
def _signatures(_no_signatures: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        use_signatures(patch, {"jax.ended": ("absl::Status", r"absl::Status: (?P<status>.*)")})
        yield


def status(text: str) -> str:
    [event] = read(text).events
    return event.values["status"]


@pytest.mark.parametrize("call", ["Heartbeat", "RegisterTask"])
def test_the_call_is_put_behind_the_message(call: str) -> None:
    assert status(f"{ENDS}\n{CALL.format(call)}") == f"DEADLINE_EXCEEDED: Deadline Exceeded (RPC: {call})"


def test_a_message_of_another_writer_keeps_its_call() -> None:
    other = "E1123 02:47:46.6    3813 x.cc:1] another message\n"
    assert status(ENDS + other + CALL.format("Heartbeat")) == "DEADLINE_EXCEEDED: Deadline Exceeded"


def test_each_rank_of_a_mixed_output_gets_its_own() -> None:
    lines = [f"[{rank}]: {text}" for text in (ENDS, "\n") for rank in "01"]
    lines += [f"[{rank}]: {CALL.format(call)}" for rank, call in (("1", "Heartbeat"), ("0", "RegisterTask"))]
    prefixed = "".join(line.replace("[", "[default", 1) for line in lines)
    found = {e.origin.local_rank: e.values["status"].rpartition(": ")[2] for e in read(prefixed).events}
    assert found == {0: "RegisterTask)", 1: "Heartbeat)"}
