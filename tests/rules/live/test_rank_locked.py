"""LIV003."""

from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import ChildRow, Frame, ProcessStack, ProcessState
from allready.model.fill import fill
from allready.model.process import SystemCall
from tests.cases import cases
from tests.rules.live.made import NOW, ask, behind, mark, stack, waiting

POLL = SystemCall(name="poll")
TIMED_WAIT = SystemCall(name="futex", has_limit=True)
SHARED_WAIT = SystemCall(name="futex", is_shared=True)
FUTEX = {"syscall": SystemCall(name="futex"), "wchan": "futex_do_wait"}


def test_names_the_rank_that_waits_for_a_lock() -> None:
    [hit] = ask("LIV003", behind(2), seen={2: FUTEX}, stacks=(stack(2, "lock"),)).hits
    assert (hit.culprits.ranks, str(hit.values["site"])) == ((2,), "train.py:30 save")


def test_a_lock_that_only_the_system_call_shows_is_one() -> None:
    assert ask("LIV003", behind(2), seen={2: FUTEX}, stacks=(stack(2, "user_code"),)).state == "hit"


def test_who_makes_a_group_waits_for_its_peers_and_not_for_a_lock() -> None:
    """Packets of one node to another were dropped: both of its ranks stood in a futex of Gloo's, for each other."""
    for seen in ("user_code", "lock"):
        joining = behind(2, phase="joining")
        assert ask("LIV003", joining, seen={2: FUTEX}, stacks=(stack(2, seen),)).state == "clear"


def test_another_thread_that_works_will_let_it_go() -> None:
    for what in ("io", "network_wait", "sleep", "cpu_work", "in_collective"):
        assert ask("LIV003", behind(2), seen={2: FUTEX}, stacks=(stack(2, "lock", others=(what,)),)).state == "clear"


def test_another_thread_that_waits_for_a_lock_will_not() -> None:
    assert ask("LIV003", behind(2), seen={2: FUTEX}, stacks=(stack(2, "lock", others=("lock", "")),)).state == "hit"


def test_who_waits_no_longer_than_it_said_goes_on_by_itself() -> None:
    """Seen: a script whose main thread pauses by `Event().wait(30)` was in a deadlock after two seconds."""
    timed = FUTEX | {"syscall": TIMED_WAIT}
    assert ask("LIV003", behind(2), seen={2: timed}, stacks=(stack(2, "lock"),)).state == "clear"
    [hit] = ask("LIV006", behind(2), seen={2: timed}, stacks=(stack(2, "lock"),)).hits
    assert (hit.culprits.ranks, hit.severity) == ((2,), None)
    said = [e.phrases["call"] for e in hit.evidence if "call" in e.phrases]
    assert [[phrase.form for phrase in phrases] for phrases in said] == [["futex with a time limit"]]


def test_a_lock_that_other_processes_have_may_be_released_by_one_of_them() -> None:
    """Seen: a `multiprocessing.Lock` that a child held while it slept was a deadlock after three seconds."""
    shared = FUTEX | {"syscall": SHARED_WAIT}
    assert ask("LIV003", behind(2), seen={2: shared}, stacks=(stack(2, "lock"),)).state == "clear"
    [hit] = ask("LIV006", behind(2), seen={2: shared}, stacks=(stack(2, "lock"),)).hits
    assert (hit.culprits.ranks, hit.severity) == ((2,), None)


def test_who_moved_in_its_newest_word_is_in_no_lock_however_old_the_word_is() -> None:
    """Seen on an overloaded machine: a rank that went on in another group, whose agent was late to say so."""
    for ago_s, state in ((0.3, "clear"), (5.0, "hit")):
        own = mark(900, pending=False, group="1", members=(2, 3), moved_s=NOW - ago_s)
        late = behind(2, groups=(mark(63, pending=False), own), site_since_s=NOW - 3)
        live = {"heard_s": {0: 0.0, 1: 2.2}}
        assert ask("LIV003", late, seen={2: FUTEX}, stacks=(stack(2, "lock"),), live=live).state == state, ago_s


def test_what_was_gathered_before_a_rank_moved_tells_nothing_of_where_it_is() -> None:
    own = mark(900, pending=False, group="1", members=(2, 3), moved_s=NOW + 1)
    late = behind(2, groups=(mark(63, pending=False), own), site_since_s=NOW - 3)
    words = {"now_s": NOW + 4}
    [hit] = ask("LIV006", late, seen={2: FUTEX}, stacks=(stack(2, "lock"),), live=words).hits
    assert hit.values["doing"] is None


def test_a_process_that_computes_is_not_locked() -> None:
    assert ask("LIV003", behind(2, cpu_share=0.9), seen={2: FUTEX}, stacks=(stack(2, "lock"),)).state == "clear"


def test_a_lock_of_a_moment_is_no_deadlock() -> None:
    short = behind(2, site_since_s=NOW - 0.4)
    assert ask("LIV003", short, seen={2: FUTEX}, stacks=(stack(2, "lock"),)).state == "clear"


def test_a_loop_that_is_always_seen_at_its_lock_still_moves() -> None:
    moving = behind(2, main_cpu_s=0.0)
    from msgspec.structs import replace

    from allready.judging.engine import run
    from allready.judging.loading import load
    from tests.rules.live.made import job

    fleet = job(replace(moving, main_cpu_s=5.0), seen={2: FUTEX}, stacks=(stack(2, "lock"),))
    assert fleet.live is not None
    words = fleet.live.history[1]
    told = tuple(
        replace(w, ranks=tuple(replace(r, main_cpu_s=5.0 - 0.1 * back) for r in w.ranks))
        for back, w in zip((4, 3, 2, 1, 0), words, strict=True)
    )
    live = replace(fleet.live, history={1: told})
    assert run(load()["LIV003"], replace(fleet, live=live)).state == "clear"


def test_a_stack_that_was_taken_somewhere_else_tells_nothing() -> None:
    from msgspec.structs import replace

    from allready.judging.engine import run
    from allready.judging.loading import load
    from tests.rules.live.made import job

    fleet = job(behind(2, site_since_s=NOW - 4), seen={2: FUTEX}, stacks=(stack(2, "lock"),))
    assert fleet.live is not None
    assert run(load()["LIV003"], fleet).state == "hit"
    old = {n: replace(e, status=replace(e.status, time_s=NOW - 6)) for n, e in fleet.live.evidence.items()}
    assert run(load()["LIV003"], replace(fleet, live=replace(fleet.live, evidence=old))).state == "clear"


def queued(*others: str) -> ProcessStack:
    """A main thread in `queue.Queue`, which its frames show, and threads beside it."""
    seen = stack(2, "data_loading", others=others)
    [main, *rest] = seen.threads
    return replace(seen, threads=(replace(main, activity="queue"), *rest))


def test_a_queue_that_no_thread_serves_is_filled_by_none() -> None:
    """Seen: the thread that wrote checkpoints had ended with an exception, and `Queue.join()` waited for it."""
    [hit] = ask("LIV003", behind(2), seen={2: FUTEX}, stacks=(queued(),)).hits
    assert hit.culprits.ranks == (2,)
    assert "waited for a queue that none of its threads serves" in fill(load()["LIV003"].message, hit.values)
    [hit] = ask("LIV003", behind(2), seen={2: FUTEX}, stacks=(stack(2, "lock"),)).hits
    assert "waited for a lock" in fill(load()["LIV003"].message, hit.values)


def test_a_queue_that_a_thread_or_a_child_may_fill_is_a_wait_for_data() -> None:
    assert ask("LIV003", behind(2), seen={2: FUTEX}, stacks=(queued("io"),)).state == "clear"
    children = (ChildRow(pid=9, parent=102, state=ProcessState.SLEEPING, role="other"),)
    assert ask("LIV003", behind(2), seen={2: FUTEX | {"children": children}}, stacks=(queued(),)).state == "clear"
    assert ask("LIV003", behind(2), seen={2: FUTEX}, stacks=(stack(2, "data_loading"),)).state == "clear"


def file_lock(holder: int | None) -> dict[str, object]:
    path = "/data/tokens.lock"
    call = SystemCall(name="flock", descriptor=7)
    return {"syscall": call, "wchan": "locks_lock_inode_wait", "open_file": path, "lock_holder": holder}


HELD_ACROSS = (stack(2, "user_code"), stack(3, "in_collective"))


def test_who_keeps_a_file_lock_across_a_collective_is_the_cause() -> None:
    """Rank 3 prepares the data first, by a lock of a file, and goes to a barrier with it."""
    for path, words in (("/data/tokens.lock", "the lock of the file /data/tokens.lock"), (None, "the lock")):
        seen = {2: file_lock(103) | {"open_file": path}, 3: FUTEX}
        [hit] = ask("LIV003", behind(2), seen=seen, stacks=HELD_ACROSS).hits
        assert (hit.culprits.ranks, hit.fault_class) == ((3,), None)
        said = fill(load()["LIV003"].message, hit.values)
        assert f"has waited for another rank, which waits for {words} that rank 3 holds, at train.py:12 step" in said
        assert "2 ranks waited" in said
        assert any("held by process 103" in e.text for e in hit.evidence)


@cases(
    ("known", "holder"),
    [
        ({"other_calls": ("wait4",)}, stack(3, "in_collective")),  # a thread saves, and waits for a child
        ({"children": (ChildRow(pid=9, parent=103, state=ProcessState.SLEEPING, role="other"),)}, None),
        ({"limited_waits": {"t0": TIMED_WAIT}}, stack(3, "in_collective", others=("lock",))),
        ({}, stack(3, "in_collective", others=("io",))),
        ({"syscall": SystemCall(name="running")}, None),  # its other threads were not looked at
    ],
)
def test_a_holder_whose_threads_or_children_may_release_the_lock_makes_a_wait(
    known: dict[str, object], holder: ProcessStack | None
) -> None:
    """Seen: a thread that wrote a checkpoint, and a process that was forked to, held the lock: healthy jobs."""
    held = stack(3, "in_collective") if holder is None else holder
    stacks = (stack(2, "user_code"), replace(held, threads=tuple(replace(t, ident=t.name) for t in held.threads)))
    job = {"seen": {2: file_lock(103), 3: FUTEX | known}, "stacks": stacks}
    assert ask("LIV003", behind(2), **job).state == "clear"
    [hit] = ask("LIV006", behind(2), **job).hits
    assert (hit.culprits.ranks, hit.severity) == ((2,), None)


def test_a_file_lock_of_another_process_is_a_wait() -> None:
    for holder in (4711, None):
        known = {"seen": {2: file_lock(holder)}, "stacks": (stack(2, "user_code"),)}
        assert ask("LIV003", behind(2), **known).state == "clear"
        [hit] = ask("LIV006", behind(2), **known).hits
        assert (hit.culprits.ranks, hit.fault_class, hit.confidence) == ((2,), "CPU-STUCK", "likely")
        assert "waits for a file lock" in str(hit.values["doing"])
        assert any("4711" in e.text for e in hit.evidence) == (holder is not None)


def test_a_lock_of_a_jax_process_is_no_wait_for_an_array() -> None:
    """Both are a futex below a line of the user's own; the beacon reads from the source what is called there."""
    jax = {"groups": (), "framework": "jax", "num_operations": 0}
    ranks = [waiting(r, **jax, site="train.py:12 step") for r in (0, 1, 3)]
    stacks = (*(stack(r, "in_collective") for r in (0, 1, 3)), stack(2, "user_code"))
    for otherwise, code in ((True, "LIV003"), (False, "LIV008")):
        odd = behind(2, **jax, waits_otherwise=otherwise)
        [hit] = ask(code, *ranks, odd, seen={2: FUTEX}, stacks=stacks).hits
        assert hit.culprits.ranks == (2,)


def pooled(file: str) -> ProcessStack:
    """A main thread in a lock that waits for a pool."""
    seen = stack(2, "lock")
    main = seen.threads[0]
    frames = (Frame(function="wait", file="/usr/lib/python3.11/threading.py", line=327),)
    return replace(
        seen, threads=(replace(main, frames=(*frames, Frame(function="get", file=file, line=7), *main.frames)),)
    )


@cases(
    ("file", "syscall", "state"),
    [
        ("/usr/lib/python3.11/multiprocessing/pool.py", "clock_nanosleep", "clear"),
        ("/usr/lib/python3.11/multiprocessing/pool.py", "poll", "clear"),
        ("/usr/lib/python3.11/concurrent/futures/_base.py", "recvfrom", "clear"),
        ("/usr/lib/python3.11/multiprocessing/pool.py", "read pipe:[7]", "hit"),  # nothing to do: a task was lost
        ("/usr/lib/python3.11/multiprocessing/pool.py", "read", "hit"),
        ("/usr/lib/python3.11/multiprocessing/pool.py", "read socket:[7]", "clear"),  # TLS reads so
        ("/usr/lib/python3.11/multiprocessing/pool.py", "pread64 /data/shard", "clear"),
        ("/home/u/train.py", "poll", "hit"),
    ],
)
def test_who_waits_for_a_pool_waits_for_its_processes(file: str, syscall: str, state: str) -> None:
    """Seen: two processes downloaded for 12 s, without any processor time, and the rank was in a deadlock after one."""
    name, _, path = syscall.partition(" ")
    call = SystemCall(name=name)
    child = ChildRow(
        pid=9, parent=102, state=ProcessState.SLEEPING, role="loader", syscall=call, open_file=path or None
    )
    assert ask("LIV003", behind(2), seen={2: FUTEX | {"children": (child,)}}, stacks=(pooled(file),)).state == state


def test_a_thread_that_sleeps_or_reads_in_a_line_of_the_users_will_let_it_go() -> None:
    """No frame shows a built-in function: only the thread's system call does."""
    seen = {2: FUTEX | {"other_calls": ("clock_nanosleep",)}}
    assert ask("LIV003", behind(2), seen=seen, stacks=(stack(2, "lock", others=("",)),)).state == "clear"


def beside(call: SystemCall | None, *frames: tuple[str, str]) -> dict[str, object]:
    """A main thread in a lock, and a thread with these frames in this call."""
    seen = stack(2, "lock", others=("lock",))
    [main, other] = seen.threads
    shown = tuple(Frame(function=function, file=file, line=9) for file, function in frames)
    stacks = (replace(seen, threads=(main, replace(other, frames=shown, ident="0x7f"))),)
    return {"seen": {2: FUTEX | {"limited_waits": {"0x7f": call} if call else {}}}, "stacks": stacks}


LIB = "/usr/lib/python3.11/"
WAIT = (LIB + "threading.py", "wait")
RUN = (LIB + "threading.py", "run")


@cases(
    ("call", "frames", "state"),
    [
        (
            SystemCall(name="epoll_wait"),
            [(LIB + "selectors.py", "select"), (LIB + "asyncio/base_events.py", "run_forever"), RUN],
            "clear",
        ),
        (None, [(LIB + "selectors.py", "select"), ("/home/u/net.py", "serve"), RUN], "clear"),
        (None, [WAIT, WAIT, RUN], "clear"),  # threading.Timer
        (TIMED_WAIT, [WAIT, ("/home/u/train.py", "save"), RUN], "clear"),
        (POLL, [("/home/u/train.py", "fetch"), RUN], "clear"),
        (None, [WAIT, ("/home/u/train.py", "save"), RUN], "hit"),
        (TIMED_WAIT, [WAIT, ("/usr/lib/python3/site-packages/tqdm/_monitor.py", "run")], "hit"),
        (POLL, [(LIB + "selectors.py", "select"), (LIB + "multiprocessing/connection.py", "wait"), RUN], "hit"),
        (POLL, [(LIB + "selectors.py", "select"), (LIB + "socketserver.py", "serve_forever"), RUN], "hit"),
    ],
)
def test_a_thread_that_waits_with_a_limit_or_runs_a_loop_may_let_it_go(
    call: SystemCall | None, frames: list[tuple[str, str]], state: str
) -> None:
    """Seen: futures of a loop that downloads, and an event that a timer sets: healthy jobs, in a deadlock after 2 s."""
    assert ask("LIV003", behind(2), **beside(call, *frames)).state == state
