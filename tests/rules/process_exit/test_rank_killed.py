from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import Confidence, Role
from allready.model.fill import fill_steps
from tests.rules.runs import ask, death, event


def test_names_the_killed_rank_and_where_to_look() -> None:
    killed = death(3, "signal", signal="SIGKILL", first=True)
    [hit] = ask("DTH002", deaths=(death(2, "signal", signal="SIGTERM", by_launcher=True), killed)).hits
    assert hit.culprits.ranks == (3,)
    assert "oom" in str(hit.values["hint"])


def test_a_sigterm_is_somebodys_wish_and_no_fault() -> None:
    assert ask("DTH002", deaths=tuple(death(r, "signal", signal="SIGTERM") for r in range(4))).state == "clear"


def test_the_watchdogs_own_abort_is_a_consequence() -> None:
    aborted = death(1, "signal", signal="SIGABRT", is_collective_error=True)
    assert ask("DTH002", deaths=(aborted,)).state == "clear"


def test_a_library_s_check_that_fails_right_below_its_reason_is_not_the_reason() -> None:
    reason = event("cuda.versions_do_not_fit", role=Role.ROOT)
    failed = death(None, "abort", pid=None, text="Check failed: stream->parent()", time_s=None)
    failed = replace(failed, origin=replace(reason.origin, line=(reason.origin.line or 0) + 1))
    assert ask("DTH002", events=(reason,), deaths=(failed,)).state == "clear"
    assert ask("DTH002", deaths=(failed,)).state == "hit"


def test_who_crashes_right_behind_its_exception_crashes_on_its_way_out() -> None:
    raised = death(None, "exception", pid=None, text="ValueError: bad", time_s=None)
    crashed = death(None, "abort", pid=77, signal="SIGABRT", time_s=None)
    line = raised.origin.line or 0
    crashed = replace(crashed, origin=replace(raised.origin, line=line + 30))
    assert ask("DTH002", deaths=(raised, crashed)).state == "clear"
    child = replace(raised, text="RuntimeError: DataLoader worker (pid 5) is killed by signal: Segmentation fault.")
    assert ask("DTH002", deaths=(child, replace(crashed, time_s=1.0))).state == "hit"
    far = replace(crashed, origin=replace(raised.origin, line=line + 300), time_s=1.0)
    assert ask("DTH002", deaths=(raised, far)).state == "hit"
    told = replace(crashed, exit_code=-6, time_s=1.0)  # by a launcher, maybe of another rank
    assert ask("DTH002", deaths=(raised, told)).state == "hit"


def test_an_exception_that_came_first_explains_it() -> None:
    found = ask("DTH002", deaths=(death(0, time_s=1000.0), death(1, "signal", signal="SIGKILL", time_s=1030.0)))
    assert found.state == "clear"


def test_a_rank_that_is_not_known_is_named_by_its_node() -> None:
    [hit] = ask("DTH002", deaths=(death(None, "signal", signal="SIGSEGV", node="node1"),)).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((), (1,))


def test_who_aborts_after_another_was_killed_has_only_lost_it() -> None:
    """JAX aborts every process that loses its coordinator, and says so a moment after the kernel does."""
    gave_up = [death(r, "signal", signal="SIGABRT", time_s=1000.0 + r / 10) for r in (1, 2)]
    [hit] = ask("DTH002", deaths=(death(0, "signal", signal="SIGKILL", time_s=1000.0), *gave_up)).hits
    assert (hit.culprits.ranks, hit.values["signal"]) == ((0,), "SIGKILL")
    [hit] = ask("DTH002", deaths=(*gave_up, death(0, "signal", signal="SIGKILL", time_s=1000.15))).hits
    assert 1 in hit.culprits.ranks  # it aborted first
    [hit] = ask("DTH002", deaths=tuple(gave_up)).hits
    assert hit.culprits.ranks == (1, 2)


def test_the_last_words_of_the_process_are_told() -> None:
    """They are those of the one whose signal is reported, and nothing is reported where there are none."""
    check = death(1, "abort", signal="SIGABRT", last_words="shards.cc:123: Check failed: fd >= 0 (-1 vs. 0)")
    [hit] = ask("DTH002", deaths=(check,)).hits
    assert "Check failed" in str(hit.values["words"])
    [hit] = ask("DTH002", deaths=(death(1, "signal", signal="SIGKILL"), check)).hits
    assert hit.values["words"] is None


def test_an_abort_says_what_was_thrown() -> None:
    words = "tensorrt_llm::common::TllmException: Assertion failed: MPI error"
    [hit] = ask("DTH002", deaths=(death(1, "abort", signal="SIGABRT", text=words),)).hits
    assert hit.values["words"] == words
    [hit] = ask("DTH002", deaths=(death(1, "abort", signal="SIGABRT", text="Aborted (core dumped)"),)).hits
    assert hit.values["words"] is None


def test_of_some_that_aborted_in_one_second_a_launcher_names_any() -> None:
    aborted = [death(r, "abort", signal="SIGABRT", exit_code=-6, first=r == 0) for r in range(3)]
    [hit] = ask("DTH002", deaths=tuple(aborted)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((0, 1, 2), Confidence.LIKELY)
    later = death(1, "abort", signal="SIGABRT", exit_code=-6, time_s=1001.0)
    [hit] = ask("DTH002", deaths=(aborted[0], later)).hits
    assert hit.culprits.ranks == (0,)


def test_torch_ends_a_process_after_a_failed_collective_and_does_not_say_whose() -> None:
    aborted = death(None, "abort", local_rank=0, signal="SIGABRT", exit_code=-6, first=True)
    told = event("torch.process_taken_down", role=Role.CASCADE)
    assert ask("DTH002", deaths=(aborted,)).hits
    assert ask("DTH002", deaths=(aborted,), events=(told,)).state == "clear"
    assert ask("DTH002", deaths=(aborted,), events=(replace(told, time_s=1600.0),)).hits  # of one that waited for it
    killed = death(None, "signal", local_rank=0, signal="SIGSEGV", exit_code=-11, first=True)
    assert ask("DTH002", deaths=(killed,), events=(told,)).hits


def test_an_error_that_nobody_caught_and_a_table_knows_is_told_by_the_table() -> None:
    words = "c10::Error: CUDA error: an illegal memory access was encountered"
    assert ask("DTH002", deaths=(death(1, "abort", signal="SIGABRT", text=words),)).state == "clear"


def test_a_crash_right_behind_its_reason_is_a_consequence() -> None:
    """What failed is its own device or environment; what it says of others, long ago or of another process is none."""
    crash = death(2, "signal", signal="SIGSEGV")
    reason = event("cuda.cann_kernel_failed", role=Role.ROOT)
    assert ask("DTH002", deaths=(crash,), events=(reason,)).state == "clear"
    elsewhere = replace(reason, origin=replace(reason.origin, source="other.log"))
    of_another = replace(reason, origin=replace(reason.origin, rank=1))
    long_ago = replace(crash, origin=replace(crash.origin, line=500))
    of_network = event("nccl.ib_retry_exceeded", role=Role.ROOT)
    killed = death(2, "signal", signal="SIGKILL")
    for end, above in (
        (crash, elsewhere),
        (crash, of_another),
        (long_ago, reason),
        (crash, of_network),
        (killed, reason),
    ):
        [hit] = ask("DTH002", deaths=(end,), events=(above,)).hits
        assert hit.culprits.ranks == (2,)


def test_a_library_that_gives_up_has_said_why_in_the_same_process() -> None:
    """UCX aborts its process when a peer does not acknowledge: the network is the reason, whatever it lost."""
    aborted = death(None, "abort", signal="SIGABRT", pid=31150)
    lost = event("nccl.ucx_retry_exceeded", role=Role.ROOT)
    mine, other = (replace(lost, origin=replace(lost.origin, pid=pid)) for pid in (31150, 31151))
    assert ask("DTH002", deaths=(aborted,), events=(mine,)).state == "clear"
    assert ask("DTH002", deaths=(aborted,), events=(other,)).state == "hit"
    assert ask("DTH002", deaths=(death(None, "signal", signal="SIGKILL", pid=31150),), events=(mine,)).state == "hit"


def test_what_ended_a_process_of_windows_is_looked_for_there() -> None:
    [hit] = ask("DTH002", deaths=(death(0, "signal", signal="access violation (0xC0000005)"),)).hits
    assert (hit.values["signal"], "Get-WinEvent" in str(hit.values["hint"])) == ("access violation (0xC0000005)", True)


def test_it_says_that_nothing_tells_who_sent_a_signal_and_how_the_next_sender_is_seen() -> None:
    note = "sudo auditctl -a always,exit -F arch=b64 -S kill -S pidfd_send_signal -F a1=9 -k signal-9"
    for signal, is_sent in (("SIGKILL", True), ("SIGSEGV", False), ("SIGBUS", False), (None, False)):
        [hit] = ask("DTH002", deaths=(death(3, "signal", signal=signal, first=True),)).hits
        steps = [step.command for step in fill_steps(load()["DTH002"].steps, hit.values)]
        assert steps[1:3] == ([note, "sudo ausearch -i -k signal-9"] if is_sent else [""]), signal
