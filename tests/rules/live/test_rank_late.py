"""LIV006."""

from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import Confidence, FaultClass, Frame, ProcessState, Severity
from allready.model.fill import fill, in_english
from allready.model.process import SystemCall
from tests.cases import cases
from tests.rules.live.made import ENTERED, NOW, ask, behind, mark, stack, waiting

READ, WRITE = (SystemCall(name=name, descriptor=4) for name in ("read", "write"))
FUTEX = SystemCall(name="futex")
SLEEP = {"syscall": SystemCall(name="clock_nanosleep")}


def test_work_is_named_and_is_no_fault_yet() -> None:
    [hit] = ask("LIV006", behind(0, cpu_share=1.0), stacks=(stack(0, "cpu_work"),)).hits
    assert (hit.culprits.ranks, hit.fault_class, hit.severity) == ((0,), FaultClass.CPU_BUSY, None)
    assert str(hit.values["site"]) == "train.py:30 save"


def test_work_that_lasts_longer_than_asked_for_is_a_fault() -> None:
    [hit] = ask("LIV006", behind(0, cpu_share=1.0), stacks=(stack(0, "cpu_work"),), live={"hang_after_s": 5.0}).hits
    assert (hit.severity, hit.fault_class, hit.confidence) == (Severity.ERROR, FaultClass.CPU_BUSY, Confidence.LIKELY)


def test_who_has_ended_is_nowhere_while_its_exit_code_is_on_its_way() -> None:
    """Seen at the end of a hung job that was aborted: "has been at train.py:30 save (has ended)", class DEAD."""
    gone = behind(2, process_state=ProcessState.ZOMBIE)
    assert ask("LIV006", gone, stacks=(stack(2, "user_code"),), live={"hang_after_s": 5.0}).state == "clear"


def test_who_goes_on_in_another_group_is_at_work_however_long_the_others_wait() -> None:
    """Two of four ranks have more batches, in a group of their own, than the two that wait for all."""
    for ago_s, confidence, severity in ((0.5, "possible", None), (9.0, "likely", Severity.ERROR)):
        own = mark(900, pending=False, group="1", members=(0, 1), moved_s=NOW - ago_s)
        late = [behind(r, groups=(mark(63, pending=False), own)) for r in (0, 1)]
        seen = dict.fromkeys((0, 1), SLEEP)
        stacks = tuple(stack(r, "user_code") for r in (0, 1))
        [hit] = ask("LIV006", *late, seen=seen, stacks=stacks, live={"hang_after_s": 5.0}).hits
        assert (hit.culprits.ranks, hit.confidence, hit.severity) == ((0, 1), confidence, severity)


def test_a_server_without_requests_may_be_all_that_there_is() -> None:
    """Rank 0 of a server takes requests, and the others wait for it in a broadcast."""
    accepts = stack(0, "user_code")
    by_thread = stack(0, "data_loading", others=("network_wait",))
    main, thread = by_thread.threads
    accept = Frame(function="accept", file="/lib/python3.12/socket.py", line=295)
    caller = Frame(function="serve", file="/home/me/serve.py", line=7)
    by_thread = replace(by_thread, threads=(replace(main, activity="queue"), replace(thread, frames=(accept, caller))))
    for its, call in ((accepts, "accept4"), (by_thread, "futex")):
        for hang_after_s in (60.0, 5.0):
            seen = {0: {"syscall": SystemCall(name=call)}}
            [hit] = ask("LIV006", behind(0), seen=seen, stacks=(its,), live={"hang_after_s": hang_after_s}).hits
            assert (hit.culprits.ranks, hit.confidence) == ((0,), "possible"), (call, hang_after_s)
    sharer = Frame(function="_serve", file="/lib/python3.12/multiprocessing/resource_sharer.py", line=138)
    by_library = replace(by_thread, threads=(by_thread.threads[0], replace(thread, frames=(accept, sharer))))
    [hit] = ask(
        "LIV006", behind(0), seen={0: {"syscall": FUTEX}}, stacks=(by_library,), live={"hang_after_s": 5.0}
    ).hits
    assert hit.confidence == "likely"  # it waits for another queue than that thread's


def test_a_loop_that_never_ends_is_a_fault_at_once_and_not_beside_a_rank_that_works() -> None:
    endless = stack(0, "endless_loop")
    [hit] = ask("LIV006", behind(0, cpu_share=1.0), stacks=(endless,)).hits
    assert (hit.severity, hit.fault_class, hit.confidence) == (Severity.ERROR, FaultClass.CPU_BUSY, Confidence.LIKELY)
    assert (hit.values["kind"], str(hit.values["site"])) == ("endless", "train.py:30 save")
    ranks = (behind(0, cpu_share=1.0), behind(1, cpu_share=0.9))
    [hit] = ask("LIV006", *ranks, stacks=(endless, stack(1, "cpu_work"))).hits
    assert hit.severity is None


def test_a_sleep_is_told_as_stuck_and_as_waiting() -> None:
    [hit] = ask("LIV006", behind(2), seen={2: SLEEP}, stacks=(stack(2, "user_code"),)).hits
    assert (hit.culprits.ranks, hit.fault_class, hit.severity) == ((2,), FaultClass.CPU_STUCK, None)
    assert hit.values["kind"] == "sleep"


def test_what_waits_for_descriptors_does_not_merely_sleep() -> None:
    """Ranks that know how long their waits usually are end a call for a sleep alone (`agent.hang.is_asleep`)."""
    for call in ("select", "pselect6"):
        seen = {"syscall": SystemCall(name=call, has_descriptors=True)}
        [hit] = ask("LIV006", behind(2), seen={2: seen}, stacks=(stack(2, "sleep"),)).hits
        assert (hit.fault_class, hit.values["kind"]) == (FaultClass.CPU_STUCK, "awaits"), call


def test_a_wait_of_a_moment_is_not_worth_a_word() -> None:
    short = [waiting(r, groups=(mark(64, waiting_s=0.3),)) for r in (0, 1, 3)]
    assert ask("LIV006", *short, behind(2), stacks=(stack(2, "cpu_work"),)).state == "clear"


def test_saving_and_loading_and_compiling_are_work() -> None:
    for what in ("io", "data_loading", "import_or_compile", "network_wait", "subprocess_wait"):
        [hit] = ask("LIV006", behind(2), stacks=(stack(2, what),)).hits
        assert hit.fault_class is FaultClass.CPU_BUSY, what


def test_whoever_has_a_reason_that_stays_leaves_the_others_alone() -> None:
    ranks = (behind(1, cpu_share=0.9), behind(2, process_state=ProcessState.STOPPED))
    assert ask("LIV006", *ranks, stacks=(stack(1, "cpu_work"),)).state == "clear"
    assert ask("LIV001", *ranks, stacks=(stack(1, "cpu_work"),)).hits[0].culprits.ranks == (2,)


def test_a_loader_that_uses_no_processor_for_as_long_as_a_hang_takes_is_stuck() -> None:
    at_rest = {"cpu_share": 0.0, "children_cpu_share": 0.0}
    for share, expected in ((0.0, FaultClass.CPU_STUCK), (0.5, FaultClass.CPU_BUSY)):
        loads = behind(2, **(at_rest | {"children_cpu_share": share}))
        [hit] = ask("LIV006", loads, stacks=(stack(2, "data_loading"),), live={"hang_after_s": 5.0}).hits
        assert hit.fault_class is expected, share


def test_what_one_of_several_does_is_not_said_of_all() -> None:
    late = {2: ("io", "data.py:3 load"), 3: ("sleep", "train.py:9 pause")}
    ranks = [behind(r, site=site) for r, (_, site) in late.items()]
    stacks = tuple(stack(r, activity, site) for r, (activity, site) in late.items())
    [hit] = ask("LIV006", *ranks, seen=dict.fromkeys(late, SLEEP), stacks=stacks).hits
    assert (hit.culprits.ranks, hit.values["site"], hit.values["doing"]) == ((2, 3), None, None)


@cases(
    ("seen", "doing", "fault_class"),
    [
        ({"syscall": READ, "open_file": "pipe:[77]", "wchan": "anon_pipe_read"}, "waits for a pipe", "CPU-STUCK"),
        ({"syscall": WRITE, "open_file": "pipe:[77]", "wchan": "pipe_write"}, "waits for a pipe", "CPU-STUCK"),
        ({"syscall": SystemCall(name="openat"), "wchan": "wait_for_partner"}, "waits for a pipe", "CPU-STUCK"),
        ({"syscall": READ, "open_file": "socket:[77]"}, "waits for the network", "CPU-BUSY"),
    ],
)
def test_what_a_read_without_a_frame_waits_for_is_said(seen: dict[str, str], doing: str, fault_class: str) -> None:
    [hit] = ask("LIV006", behind(2), seen={2: seen}, stacks=(stack(2, "user_code"),)).hits
    assert (hit.culprits.ranks, hit.confidence, hit.fault_class) == ((2,), "likely", fault_class)
    assert doing in str(hit.values["doing"])


@cases(
    ("line", "doing"),
    [
        ("", "waits for the key 'best' of a store"),
        ("train.py:12", "waits for the key 'best' of a store, which train.py:12 sets"),
    ],
)
def test_who_waits_for_a_key_of_a_store_is_told_with_the_key_and_the_line_that_sets_it(line: str, doing: str) -> None:
    late = behind(2, awaits=("best", line))
    [hit] = ask("LIV006", late, stacks=(stack(2, "network_wait"),)).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((2,), "DESYNC-FLOW")
    assert in_english(hit.values["doing"]) == doing


def test_where_most_wait_for_a_key_those_that_went_on_without_setting_it_are_named() -> None:
    """Seen: rank 0 left the `store.set` out, and the others were named, who did what their program says."""
    late = [behind(r, awaits=("best", "train.py:12")) for r in (1, 2, 3)]
    [hit] = ask("LIV006", *late, stacks=tuple(stack(r, "network_wait") for r in (1, 2, 3))).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((0,), "DESYNC-FLOW")
    said = fill(load()["LIV006"].message, {**hit.values, "doing": in_english(hit.values["doing"])})
    assert said.startswith("rank 0 (gpu0, pid 100) has not set the key of a store that others wait for: rank 1 (gpu0")


def test_where_no_line_sets_the_key_a_program_beside_the_job_may() -> None:
    for line, confidence in (("train.py:12", Confidence.LIKELY), ("", Confidence.POSSIBLE)):
        late = [behind(r, awaits=("best", line)) for r in (1, 2, 3)]
        stacks = tuple(stack(r, "network_wait") for r in (1, 2, 3))
        [hit] = ask("LIV006", *late, stacks=stacks, live={"hang_after_s": 5.0}).hits
        assert (hit.culprits.ranks, hit.confidence) == ((0,), confidence)


def test_who_has_just_begun_to_sleep_is_not_told_to_compute() -> None:
    """Its share of processor time is of the work before: seen as "computes on the CPU" until newer words came."""
    for since_s, says in ((NOW - 2.2, "sleeps"), (NOW - 0.2, "computes on the CPU"), (ENTERED, "computes on the CPU")):
        came = behind(2, cpu_share=0.8, site_since_s=since_s)
        [hit] = ask("LIV006", came, seen={2: SLEEP}, stacks=(stack(2, "user_code"),)).hits
        assert (in_english(hit.values["doing"]), hit.culprits.ranks) == (says, (2,))
