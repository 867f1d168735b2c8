from typing import Any

import pytest

from allready.model import Confidence, Event, FaultClass, Origin, ProcessRecord, Role
from tests.rules.runs import ask, death, event


def place(file: str, result: int, line: int, **changes: Any) -> Event:
    origin = Origin(source="out.log", line=line, host="gpu0", pid=7)
    known: dict[str, Any] = {
        "role": Role.CASCADE,
        "origin": origin,
        "values": {"file": file, "result": str(result)},
        "text": f"{file} ->",
    }
    return event("nccl.back_trace", **(known | changes))


def of_service(line: int) -> Event:
    values = {"rank": "3", "operation": "Connect", "from_rank": "3", "result": "2"}
    origin = Origin(source="out.log", line=line, host="gpu0", pid=7)
    return event("nccl.proxy_echo", role=Role.CASCADE, origin=origin, values=values)


def closed(line: int, peer: str = "10.9.9.9") -> Event:
    origin = Origin(source="out.log", line=line, host="gpu0", pid=7)
    return event("nccl.peer_closed", role=Role.CASCADE, origin=origin, values={"peer": peer})


INIT = (place("graph/paths.cc:312", 3, 1), place("transport.cc:84", 3, 2), place("init.cc:778", 3, 3))


def test_the_first_place_and_its_result_are_told_and_nobody_is_accused() -> None:
    [hit] = ask("RES005", events=INIT).hits
    assert (str(hit.values["site"]), hit.values["result"]) == ("graph/paths.cc:312", "ncclInternalError")
    assert (hit.values["phase"], hit.confidence, hit.fault_class) == ("topology", Confidence.POSSIBLE, None)
    assert not hit.culprits


def test_what_did_not_reach_the_call_of_the_program_was_tried_another_way() -> None:
    assert ask("RES005", events=INIT[:2]).state == "clear"
    in_progress = tuple(place("init.cc:778", 7, line) for line in (1, 2))
    assert ask("RES005", events=in_progress).state == "clear"


@pytest.mark.parametrize("more", ["nccl.other_warning", "nccl.peer_closed", "nccl.result_internal"])
def test_other_words_tell_more(more: str) -> None:
    other = event(more, role=Role.CASCADE if more != "nccl.other_warning" else Role.RECORD)
    assert ask("RES005", events=(*INIT, other)).state == "clear"


def test_a_cause_or_a_hang_stands_before_it() -> None:
    assert ask("RES005", events=INIT, deaths=(death(1),)).state == "clear"
    assert ask("RES005", events=(*INIT, event("nccl.shm_full", role=Role.ROOT))).state == "clear"
    assert ask("RES005", events=(*INIT, event("torch.watchdog_timeout"))).state == "clear"


def test_who_went_on_failed_by_nothing() -> None:
    last = Origin(source="out.log", line=90, host="gpu0", pid=7)
    moving = ProcessRecord(host="gpu0", pid=7, last_line_class="operation", last_origin=last)
    assert ask("RES005", events=INIT, processes=(moving,)).state == "clear"


def test_a_connection_that_the_own_service_thread_closed_names_no_peer() -> None:
    lines = (place("misc/socket.cc:373", 2, 1), of_service(2), closed(3), place("init.cc:784", 6, 4))
    assert ask("RES002", events=lines).state == "clear"
    [hit] = ask("RES005", events=lines).hits
    assert (str(hit.values["site"]), hit.fault_class) == ("misc/socket.cc:373", FaultClass.START_PATH)
    [hit] = ask("RES002", events=(closed(1), *lines)).hits
    assert hit.values["peer"] == "10.9.9.9"


def test_who_lost_it_after_it_had_given_up_does_not_hide_it() -> None:
    other = Origin(source="out.log", line=9, host="gpu0", pid=8)
    lost = event("nccl.peer_closed", role=Role.CASCADE, origin=other, values={"peer": "gpu0"})
    [hit] = ask("RES005", events=(*INIT, lost)).hits
    assert str(hit.values["site"]) == "graph/paths.cc:312"
    before = event("nccl.peer_closed", role=Role.CASCADE, origin=Origin(source="out.log", line=2, host="gpu0", pid=8))
    assert ask("RES005", events=(*INIT, before)).state == "clear"
    elsewhere = event("nccl.peer_closed", role=Role.CASCADE, origin=Origin(source="b.log", line=9, host="gpu1", pid=8))
    assert ask("RES005", events=(*INIT, elsewhere)).state == "clear"
    assert ask("RES005", events=(*INIT, closed(9))).state == "clear"
