"""LIV004."""

from allready.model import Confidence, ProcessState
from allready.model.fill import in_english
from allready.model.process import SystemCall
from tests.rules.live.made import ask, behind, stack

CALL = {"syscall": SystemCall(name="clock_nanosleep"), "wchan": "hrtimer_nanosleep"}


def test_names_the_rank_whose_beacon_is_silent_while_it_sleeps_in_a_call() -> None:
    [hit] = ask("LIV004", behind(2, heartbeat_age_s=4.0), seen={2: CALL}, stacks=(stack(2, "user_code"),)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.CERTAIN)
    assert hit.values["what"] == "clock_nanosleep"


def test_code_that_computes_with_the_lock_may_come_back() -> None:
    busy = behind(2, heartbeat_age_s=4.0, cpu_share=1.0, process_state=ProcessState.RUNNING)
    running = {"syscall": SystemCall(name="running")}
    assert ask("LIV004", busy, seen={2: running}, stacks=(stack(2, "user_code"),)).state == "clear"
    [hit] = ask("LIV006", busy, seen={2: running}, stacks=(stack(2, "user_code"),)).hits
    assert in_english(hit.values["doing"]) == "holds the GIL"


def test_who_could_run_waits_for_a_processor_and_in_no_call() -> None:
    """Seen: on an overloaded machine a rank that imported got 5% of a processor, and its beacon none for seconds."""
    starved = behind(2, heartbeat_age_s=4.0, cpu_share=0.05, process_state=ProcessState.RUNNING)
    assert ask("LIV004", starved, seen={2: CALL}, stacks=(stack(2, "user_code"),)).state == "clear"


def test_a_beacon_that_beats_holds_nothing() -> None:
    assert (
        ask("LIV004", behind(2, heartbeat_age_s=0.3), seen={2: CALL}, stacks=(stack(2, "user_code"),)).state == "clear"
    )


def test_an_interpreter_that_ends_gives_threads_no_turn() -> None:
    ending = behind(2, heartbeat_age_s=5.0, phase="ending")
    assert ask("LIV004", ending, seen={2: CALL}, stacks=(stack(2, "exit"),)).state == "clear"


def test_libraries_that_are_loaded_may_hold_it_for_seconds() -> None:
    importing = behind(2, heartbeat_age_s=5.0, phase="importing")
    assert ask("LIV004", importing, seen={2: CALL}, stacks=(stack(2, "import_or_compile"),)).state == "clear"


def test_without_a_stack_nothing_is_certain() -> None:
    from allready.model import Origin, ProcessStack

    none = ProcessStack(origin=Origin(source="s"), role="rank", rank=2)
    assert ask("LIV004", behind(2, heartbeat_age_s=5.0), seen={2: CALL}, stacks=(none,)).state == "clear"


def test_another_thread_that_imports_gives_it_back() -> None:
    """On a busy machine even torch's compiler, which the first dump imports, takes seconds to come."""
    importing = stack(2, "user_code", others=("import_or_compile",))
    assert ask("LIV004", behind(2, heartbeat_age_s=4.0), seen={2: CALL}, stacks=(importing,)).state == "clear"
