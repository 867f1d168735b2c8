import pytest
from msgspec.structs import replace

from allready.model import Confidence, FaultClass, Live, Role
from tests.cases import cases
from tests.fleets import check
from tests.rules.runs import ask, at, death, event, group, run_fleet

REACH = (
    "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of "
    "(10.0.0.1, 1040). The client socket has failed to connect to 10.0.0.1:1040 (errno: 113 - No route to host)."
)
SSH = "RuntimeError: Using hostfile at /h but host=gpu-0011 was not reachable via ssh."


@cases(
    ("words", "fault_class", "hint", "is_own"),
    [
        ("socket.gaierror: [Errno -2] Name or service not known", FaultClass.DEAD, "getent", False),
        ("OSError: [Errno 11] Resource temporarily unavailable", FaultClass.ENV_LIMIT, "ulimit", True),
        ("ConnectionRefusedError: [Errno 111] Connection refused", FaultClass.DEAD, "nc -vz", False),
        ("RuntimeError: Connection timed out", FaultClass.START_PATH, "nc -vz", False),
    ],
)
def test_the_line_that_was_refused_is_not_accused(words: str, fault_class: FaultClass, hint: str, is_own: bool) -> None:
    raised = death(2, text=words, site="train.py:22 main")
    assert ask("DTH001", deaths=(raised,)).state == "clear"
    [hit] = ask("DTH005", deaths=(raised,)).hits
    assert (hit.values["error"], hit.fault_class) == (words, fault_class)
    assert hint in str(hit.values["hint"])
    assert hit.culprits.ranks == ((2,) if is_own else ())
    assert hit.confidence is not Confidence.CERTAIN  # words alone


@cases(
    "words",
    [
        "ValueError: host not found: Name or service not known",
        "RuntimeError: can't start new thread",
        "RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered",
        SSH,
    ],
)
def test_a_line_of_the_tables_says_more(words: str) -> None:
    raised = death(2, text=words, site="train.py:22 main")
    assert {ask(code, deaths=(raised,)).state for code in ("DTH001", "DTH005")} == {"clear"}


@cases(
    "words",
    [
        "KeyError: 'labels'",
        "RuntimeError: CUDA error: device-side assert triggered",
        "ValueError: connection string is empty",
        "RuntimeError: The size of tensor a (4) must match the size of tensor b (3)",
    ],
)
def test_an_error_of_the_program_is_none_of_the_surroundings(words: str) -> None:
    assert ask("DTH005", deaths=(death(2, text=words),)).state == "clear"


def test_who_reached_nobody_is_told_where_nothing_else_explains_it() -> None:
    refused = death(1, text=REACH, is_collective_error=True)
    [hit] = ask("DTH005", deaths=(refused,)).hits
    assert (hit.culprits.ranks, hit.confidence, hit.fault_class) == ((), Confidence.LIKELY, FaultClass.START_PATH)
    assert hit.values["hint"] == "nc -vz 10.0.0.1 1040"


def test_who_lost_another_is_told_as_possible_and_accuses_nobody() -> None:
    lost = death(1, text="RuntimeError: Connection reset by peer", is_collective_error=True)
    [hit] = ask("DTH005", deaths=(lost,)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.POSSIBLE)


def test_where_another_died_first_the_lost_connection_is_an_echo() -> None:
    lost = death(1, text="RuntimeError: Connection reset by peer", is_collective_error=True)
    assert ask("DTH005", deaths=(lost, death(2))).state == "clear"
    assert ask("DTH005", deaths=(lost, death(2, "signal", signal="SIGKILL"))).state == "clear"
    assert ask("DTH005", deaths=(lost,), progress=(group({0: at(3)}),)).state == "clear"
    waited = event("torch.watchdog_timeout", 0, time_s=1000.0)
    assert ask("DTH005", deaths=(lost,), events=(waited,)).state == "clear"


def test_words_of_nccl_are_left_to_its_own_rules() -> None:
    said = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1; last error: Connection refused"
    assert ask("DTH005", deaths=(death(1, text=said, is_collective_error=True),)).state == "clear"


def test_the_last_words_before_an_exit_code_count_as_well() -> None:
    ended = death(None, "exit", exit_code=1, node="node1", last_words=REACH)
    assert ask("DTH004", deaths=(ended,)).state == "clear"
    [hit] = ask("DTH005", deaths=(ended,)).hits
    assert (hit.values["error"], hit.culprits.nodes) == (REACH, ())


def test_a_first_cause_that_a_line_states_is_told_by_that_finding() -> None:
    assert ask("DTH005", events=(event("store.port_in_use", 0, role=Role.ROOT),)).state == "clear"


def test_nobody_died() -> None:
    assert ask("DTH005").state == "clear"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("botocore.exceptions.EndpointConnectionError: Could not connect: Connection refused", "nc -vz HOST PORT"),
        ("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example', port=443): Connection refused",
         "nc -vz hub.example 443"),
        ("hub.EndpointError: Temporary failure in name resolution", "getent hosts HOST PORT"),
    ],
)  # fmt: skip
def test_a_connection_of_the_program_is_none_of_the_job(words: str, hint: str) -> None:
    [hit] = ask("DTH005", deaths=(death(2, text=words),)).hits
    assert (hit.fault_class, hit.values["hint"]) == (FaultClass.DEAD, hint)


@pytest.mark.parametrize(
    "words", ["ValueError: invalid device ordinal: the config says 9", "AssertionError: expected UNAVAILABLE: got OK"]
)
def test_what_a_line_asserts_is_its_own_matter(words: str) -> None:
    assert ask("DTH005", deaths=(death(2, text=words),)).state == "clear"


def test_in_a_running_job_the_one_that_ended_first_is_named() -> None:
    refused = death(2, text="RuntimeError: Connection refused")
    lost = death(0, text="RuntimeError: Connection reset by peer", is_collective_error=True)
    fleet = replace(run_fleet(deaths=(refused, lost)), live=Live(now_s=1000.0, since_s=990.0))
    [hit] = check("DTH005", fleet).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((2,), None)
    only_lost = replace(run_fleet(deaths=(lost,)), live=Live(now_s=1000.0, since_s=990.0))
    assert check("DTH005", only_lost).state == "clear"
    assert ask("DTH005", deaths=(lost,)).state == "hit"


def test_a_closed_rendezvous_is_told_by_its_own_line() -> None:
    words = "torch.distributed.elastic.rendezvous.api.RendezvousClosedError"
    turned_away = death(None, text=words, is_collective_error=True)
    assert ask("DTH005", deaths=(turned_away,)).hits
    told = event("elastic.rendezvous_closed", text=words)
    assert ask("DTH005", deaths=(turned_away,), events=(told,)).hits == ()


@cases(("after_s", "is_echo"), [(-0.1, False), (0.5, True), (600.0, False), (None, False)])
def test_a_connection_lost_after_the_job_was_told_to_end_is_an_echo(after_s: float | None, is_echo: bool) -> None:
    told = event("elastic.death_signal", text="Received 15 death signal, shutting down workers", time_s=1000.0)
    at_s = None if after_s is None else 1000.0 + after_s
    lost = death(1, text="RuntimeError: Connection reset by peer", is_collective_error=True, time_s=at_s)
    said = {code: ask(code, deaths=(lost,), events=(told,)).state for code in ("DTH005", "DTH006")}
    assert said == ({"DTH005": "clear", "DTH006": "hit"} if is_echo else {"DTH005": "hit", "DTH006": "clear"})
