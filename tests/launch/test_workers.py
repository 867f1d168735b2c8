"""Ranks as real processes: how they start, are seen to end, and never stay behind."""

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allready.launch import log_relay, workers
from allready.launch.log_relay_client import MARK
from allready.launch.logs import OUT_LOG
from allready.launch.request import Note
from allready.launch.workers import Worker, WorkerGroup
from allready.model import EndKind, ProcessEnd
from tests.clock import Stopwatch, until
from tests.launch.processes import is_alive, marked, num_fds, numbers_in, output, python, state_of, worker

pytestmark = pytest.mark.jobs

SLEEPS = "import time; print('up'); time.sleep(600)"
DEAF = """
    import signal, time
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    print('up'); time.sleep(600)
"""
FAMILY = """
    import os, subprocess, sys, time
    code = "import time; time.sleep(600)"
    same = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])
    away = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], start_new_session=True)
    print(same.pid); print(away.pid); print('up'); time.sleep(600)
"""


@pytest.fixture
def group() -> Iterator[WorkerGroup]:
    made = WorkerGroup()
    yield made
    made.close()
    assert marked(made) == []


def is_up(folder: Path, rank: int = 0) -> bool:
    return b"up\n" in output(folder, rank)


def test_ends_are_told_with_code_signal_and_time(tmp_path: Path) -> None:
    seen: list[ProcessEnd] = []
    group = WorkerGroup(on_end=seen.append)
    before = time.time()
    group.start(
        [
            worker(tmp_path, python("raise SystemExit(0)"), 0),
            worker(tmp_path, python("raise SystemExit(7)"), 1),
            worker(tmp_path, python("import os; os.kill(os.getpid(), 11)"), 2),
        ]
    )
    until(lambda: len(group.poll()) == 3)
    ends = group.poll()
    assert [(ends[r].exit_code, ends[r].signal) for r in range(3)] == [(0, None), (7, None), (None, "SIGSEGV")]
    assert all(before <= (e.time_s or 0.0) <= time.time() for e in ends.values())
    until(lambda: len(seen) == 3)
    assert sorted(seen, key=lambda e: e.rank or 0) == [ends[r] for r in range(3)]
    assert group.stop(grace_s=1.0) == ends
    assert group.pids == {}
    group.close()


def test_a_rank_is_seen_to_end_at_once(tmp_path: Path, group: WorkerGroup) -> None:
    group.start([worker(tmp_path, python("print('up'); input()"), 0), worker(tmp_path, python(SLEEPS), 1)])
    until(lambda: len(group.poll()) == 1)  # standard input is /dev/null: input() raises
    assert group.poll()[0].exit_code == 1
    assert group.wait(0, 30.0) == group.poll()
    begun = Stopwatch()
    threading.Timer(0.1, os.kill, (group.pids[1], signal.SIGKILL)).start()
    assert len(group.wait(1, 30.0)) == 2
    assert begun.s < 10.0


def test_a_wait_ends_when_it_is_told_to_stop(tmp_path: Path, group: WorkerGroup) -> None:
    group.start([worker(tmp_path, python(SLEEPS))])
    stop = threading.Event()

    def tell() -> None:
        stop.set()
        group.wake()

    timer = threading.Timer(0.3, tell)
    timer.start()
    began = Stopwatch()
    try:
        assert group.wait(0, 30.0, stop=stop) == {}
    finally:
        timer.join(5)
    assert began.wall_s > 0.2
    assert began.s < 10
    assert group.wait(0, 0.2) == {}  # no rank has ended, and no rank tells it to stop


def test_each_rank_has_its_own_session_and_no_foreign_descriptor(tmp_path: Path, group: WorkerGroup) -> None:
    code = """
        import os
        print(os.getsid(0) == os.getpgrp() == os.getpid(), sorted(os.listdir('/proc/self/fd'))[:3], end=' ')
        print(len(os.listdir('/proc/self/fd')), os.readlink('/proc/self/fd/0'))
    """
    group.start([worker(tmp_path, python(code))])
    until(lambda: group.poll())
    assert output(tmp_path).startswith(b"True ['0', '1', '2'] 4 /dev/null")  # 4: the listing itself


def test_stop_gives_a_rank_time_to_end_by_itself(tmp_path: Path, group: WorkerGroup) -> None:
    code = """
        import signal, sys, time
        def end(*_):
            time.sleep(0.2); print('saved'); sys.exit(3)
        signal.signal(signal.SIGTERM, end)
        print('up'); time.sleep(600)
    """
    group.start([worker(tmp_path, python(code))])
    until(lambda: is_up(tmp_path))
    ends = group.stop(grace_s=20.0)
    assert ends[0].exit_code == 3
    assert output(tmp_path) == b"up\nsaved\n"


def test_a_rank_that_ignores_the_signal_is_killed_after_the_grace(tmp_path: Path, group: WorkerGroup) -> None:
    group.start([worker(tmp_path, python(DEAF))])
    until(lambda: is_up(tmp_path))
    begun = Stopwatch()
    assert group.stop(grace_s=0.5)[0].signal == "SIGKILL"
    assert begun.wall_s >= 0.5
    assert begun.s < 10.0


def test_a_stopped_rank_is_continued_so_that_it_can_obey(tmp_path: Path, group: WorkerGroup) -> None:
    group.start([worker(tmp_path, python(SLEEPS))])
    until(lambda: is_up(tmp_path))
    pid = group.pids[0]
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T")
    assert group.poll() == {}
    begun = Stopwatch()
    assert group.stop(grace_s=20.0)[0].signal == "SIGTERM"
    assert begun.s < 10.0


def test_a_first_signal_other_than_sigterm_is_what_ranks_get(tmp_path: Path, group: WorkerGroup) -> None:
    group.start([worker(tmp_path, python(SLEEPS), r) for r in range(2)])
    until(lambda: is_up(tmp_path, 0) and is_up(tmp_path, 1))
    ends = group.stop(grace_s=20.0, first=signal.SIGINT)
    assert {e.exit_code or e.signal for e in ends.values()} <= {1, "SIGINT", 130}
    assert b"KeyboardInterrupt" in output(tmp_path)


def test_signals_are_passed_on_to_ranks_and_not_to_their_children(tmp_path: Path, group: WorkerGroup) -> None:
    code = """
        import os, signal, subprocess, sys, time
        child = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(600)'])
        signal.signal(signal.SIGUSR1, lambda *_: print('got it, child', child.poll()))
        print('up')
        while True: time.sleep(0.05)
    """
    group.start([worker(tmp_path, python(code))])
    until(lambda: is_up(tmp_path))
    group.signal(signal.SIGUSR1)
    until(lambda: b"got it, child None" in output(tmp_path))


def test_stop_takes_children_with_it_in_whatever_session_they_are(tmp_path: Path, group: WorkerGroup) -> None:
    group.start([worker(tmp_path, python(FAMILY))])
    until(lambda: is_up(tmp_path))
    children = list(numbers_in(tmp_path))
    assert len(children) == 2
    assert all(is_alive(pid) for pid in children)
    assert len(marked(group)) == 3
    group.stop(grace_s=5.0)
    assert not any(is_alive(pid) for pid in children)


def test_children_of_a_rank_that_ended_well_are_asked_and_then_killed(tmp_path: Path, group: WorkerGroup) -> None:
    code = """
        import subprocess, sys
        polite = ("import os, signal, sys, time\\n"
                  "signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'asked'), sys.exit()))\\n"
                  "os.write(1, b'ready'); time.sleep(600)")
        deaf = "import os, signal, time; signal.signal(15, 1); os.write(1, b'ready'); time.sleep(600)"
        for code in (polite, deaf):
            child = subprocess.Popen([sys.executable, '-I', '-S', '-c', code])
            print(child.pid)
    """
    group.start([worker(tmp_path, python(code))])
    until(lambda: group.poll() and output(tmp_path).count(b"ready") == 2)
    children = list(numbers_in(tmp_path))
    assert all(is_alive(pid) for pid in children)
    assert group.stop(grace_s=5.0)[0].is_success
    assert not any(is_alive(pid) for pid in children)
    assert b"asked" in output(tmp_path)


@pytest.mark.parametrize("code", [0, 1])
def test_a_service_with_its_own_session_outlives_a_job_that_ended_well(tmp_path: Path, code: int) -> None:
    """As under torchrun.  One of a job that failed does not: another attempt would meet it."""
    group = WorkerGroup()
    try:
        group.start([worker(tmp_path, python(FAMILY.rpartition("time.sleep")[0] + f"sys.exit({code})"))])
        until(lambda: group.poll())
        same, away = numbers_in(tmp_path)
        group.stop(grace_s=5.0)
    finally:
        group.close()
    assert (is_alive(same), is_alive(away)) == (False, code == 0)
    if code == 0:
        os.kill(away, signal.SIGKILL)
        until(lambda: not is_alive(away))


PRINTS = """
    for i in range(100_000):
        print("x" * 50)
"""


def test_no_line_is_lost_where_the_disk_is_full(tmp_path: Path) -> None:
    """The agent takes them more slowly than they come: the rank waits, as for a slow terminal."""
    lines: list[bytes] = []
    notes: list[Note] = []
    group = WorkerGroup(on_lines=lambda _rank, _stream, more: lines.extend(more), on_problem=notes.append)
    try:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        try:
            group.prepare()  # the log relay inherits it
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        group.start([worker(tmp_path, python(PRINTS))])
        until(lambda: group.poll(), 60.0)
        group.stop(grace_s=5.0)
        assert group.drain(30.0)
    finally:
        group.close()
    assert len(lines) == 100_000
    assert set(lines) == {b"x" * 50}
    assert [note.key for note in notes] == ["workers.log_not_written"]


def test_a_disk_that_hangs_does_not_stop_the_ranks(tmp_path: Path) -> None:
    """Here a FIFO that no rank reads for a while."""
    notes: list[Note] = []
    group = WorkerGroup(on_problem=notes.append)
    made = worker(tmp_path, python(PRINTS))
    made.log_dir.mkdir(parents=True, exist_ok=True)
    os.mkfifo(made.log_dir / OUT_LOG)
    reader = os.open(made.log_dir / OUT_LOG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        group.start([made])
        until(lambda: group.poll(), 60.0)  # it has printed 5 MB, and ended
        until(lambda: [note.key for note in notes] == ["workers.log_hangs"])
        os.set_blocking(reader, True)
        got = 0
        while got < 51 * 100_000:
            got += len(os.read(reader, 1 << 20))
        group.stop(grace_s=5.0)
    finally:
        group.close()
        os.close(reader)
    assert got == 51 * 100_000


def test_a_program_that_does_not_exist_leaves_nothing_behind(tmp_path: Path, group: WorkerGroup) -> None:
    group.prepare()
    until(lambda: state_of(group._relay.pid or 0) == "S")
    before = num_fds()
    heard: list[ProcessEnd] = []
    group._on_end = heard.append
    with pytest.raises(FileNotFoundError):
        group.start([worker(tmp_path, python(SLEEPS), 0), worker(tmp_path, (str(tmp_path / "none"),), 1)])
    assert group.pids == {}
    assert marked(group) == []
    assert heard == []
    until(lambda: num_fds() == before, what=lambda: "the pipes and files are closed")
    group.start([worker(tmp_path, python("print('again')"))])
    until(lambda: group.poll())
    assert output(tmp_path).endswith(b"again\n")


def test_a_program_that_never_ran_is_told_from_one_that_left_with_that_code(tmp_path: Path) -> None:
    begun = num_fds()
    broken = tmp_path / "train"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    says_so = f"echo 'allready: cannot run {broken}: No such file or directory' >&2; exit 127"
    group = WorkerGroup()
    group.start(
        [
            worker(tmp_path, (str(broken),), 0, is_program=True),
            worker(tmp_path, ("/bin/sh", "-c", says_so), 1, is_program=True),
        ]
    )
    until(lambda: len(group.poll()) == 2)
    ends = group.stop(grace_s=1.0)
    group.close()
    assert [(ends[rank].exit_code, ends[rank].kind) for rank in (0, 1)] == [(127, EndKind.NOT_RUN), (127, EndKind.EXIT)]
    assert num_fds() == begun


def test_two_threads_that_see_an_end_at_once_say_the_same_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "train"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    group = WorkerGroup()
    flush = group._relay.flush

    def flush_and_look_again(**given: float) -> object:
        monkeypatch.setattr(group._relay, "flush", flush)
        group.poll()  # as another thread, before the first has noted what it saw
        return flush(**given)

    monkeypatch.setattr(group._relay, "flush", flush_and_look_again)
    group.start([worker(tmp_path, (str(broken),), 0, is_program=True)])
    until(lambda: group.poll())
    ends = group.stop(grace_s=1.0)
    group.close()
    assert ends[0].kind is EndKind.NOT_RUN


def test_a_variable_that_no_process_can_have_leaves_nothing_behind(tmp_path: Path, group: WorkerGroup) -> None:
    bad = Worker(rank=1, local_rank=1, argv=("true",), env={"A": "x\0y"}, log_dir=tmp_path / "rank1")
    with pytest.raises(ValueError, match="null byte"):
        group.start([worker(tmp_path, python(SLEEPS), 0), bad])
    assert group.pids == {}
    assert marked(group) == []


def test_a_copy_that_cannot_be_written_leaves_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = num_fds()
    lines: list[bytes] = []
    group = WorkerGroup(on_lines=lambda _r, _s, more: lines.extend(more))
    copies = {"stdout": tmp_path / "file" / "stdout.log"}
    group.start([worker(tmp_path, python("print('here')"), split=True, copies=copies)])
    until(lambda: group.poll())
    group.stop(grace_s=1.0)
    group.close()
    assert lines == [b"here"]
    assert num_fds() == before


def test_sixty_four_ranks_start_and_stop(tmp_path: Path) -> None:
    group = WorkerGroup()
    before = num_fds()
    group.start([worker(tmp_path, python(SLEEPS), r) for r in range(64)])
    assert len(set(group.pids.values())) == 64
    until(lambda: all(is_up(tmp_path, r) for r in range(64)), 60.0)
    ends = group.stop(grace_s=30.0)
    assert {e.signal for e in ends.values()} == {"SIGTERM"}
    assert len(ends) == 64
    assert marked(group) == []
    group.close()
    assert num_fds() == before


def test_attempt_after_attempt_leaves_no_descriptor_thread_or_process(tmp_path: Path) -> None:
    threads = threading.active_count()
    at_first = num_fds()
    group = WorkerGroup(on_lines=lambda *_: None)
    counts = []
    for attempt in range(5):
        group.start([worker(tmp_path / str(attempt), python("print('up')"), r) for r in range(3)])
        until(lambda: len(group.poll()) == 3)
        group.stop(grace_s=1.0)
        assert group.drain(10.0)
        counts.append(num_fds())
    keeping = group._relay.pid
    assert len(set(counts)) == 1, counts
    group.close()
    assert threading.active_count() == threads
    assert num_fds() == at_first
    assert keeping is not None
    assert not is_alive(keeping)


def test_another_child_of_this_process_keeps_its_status(tmp_path: Path, group: WorkerGroup) -> None:
    other = subprocess.Popen([sys.executable, "-I", "-S", "-c", "raise SystemExit(5)"])
    group.start([worker(tmp_path, python("raise SystemExit(1)"))])
    until(lambda: group.poll())
    group.stop(grace_s=1.0)
    assert other.wait(20) == 5


def test_a_status_that_nobody_can_have_is_unknown_and_not_invented(tmp_path: Path) -> None:
    # Some containers start programs with SIGCHLD ignored; the kernel then reaps by itself.
    code = """
        import os, signal, sys
        from pathlib import Path
        from allready.launch.workers import Worker, WorkerGroup
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        group = WorkerGroup()
        argv = (sys.executable, "-I", "-S", "-c", "raise SystemExit(3)")
        group.start([Worker(rank=0, local_rank=0, argv=argv, env=os.environ, log_dir=Path(sys.argv[1]))])
        print(group.wait(0, 20.0)[0].exit_code, group.stop(grace_s=1.0)[0].signal)
        group.close()
    """
    argv = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    assert subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout == "None None\n"


def test_ranks_are_watched_without_pidfd_as_well(
    tmp_path: Path, group: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    group.start([worker(tmp_path, python("raise SystemExit(4)")), worker(tmp_path, python(SLEEPS), 1)])
    assert group.wait(0, 20.0)[0].exit_code == 4
    assert group.stop(grace_s=5.0)[1].signal == "SIGTERM"


def test_threads_may_stop_the_ranks_together(tmp_path: Path) -> None:
    group = WorkerGroup()
    group.start([worker(tmp_path, python(SLEEPS), r) for r in range(4)])
    until(lambda: all(is_up(tmp_path, r) for r in range(4)))
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(len(group.stop(grace_s=5.0)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert max(found) == 4
    assert group.pids == {}
    group.close()


# -- when the agent or the keeper is killed

AGENT = """
    import json, os, sys, time
    from pathlib import Path
    from allready.launch.workers import Worker, WorkerGroup
    folder, code, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    group = WorkerGroup()
    group.start([
        Worker(rank=r, local_rank=r, argv=(sys.executable, "-I", "-S", "-u", "-c", code), env=os.environ,
               log_dir=folder / f"rank{r}")
        for r in range(count)
    ])
    print(json.dumps({"pids": list(group.pids.values()), "keeper": group._relay.pid, "mark": group._relay.mark}))
    sys.stdout.flush()
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        ends = group.stop(grace_s=20.0, first=2)
        group.close()
        print(json.dumps([[e.rank, e.exit_code, e.signal] for e in ends.values()]))
"""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator["Agent"]:
    made = Agent(tmp_path)
    yield made
    made.end()


class Agent:
    """An agent in a process of its own, so that it can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.mark = ""
        self.pids: list[int] = []
        self.log_relay = 0

    def start(self, code: str, count: int = 2) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(AGENT), str(self.folder), textwrap.dedent(code), str(count)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.pids, self.log_relay, self.mark = told["pids"], told["keeper"], told["mark"]

    def left(self) -> list[int]:
        return log_relay.marked(f"{MARK}={self.mark}".encode())

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)
            assert self.process.stdout is not None
            self.process.stdout.close()
            until(lambda: not self.left() and not is_alive(self.log_relay), what=lambda: "nothing is left of the agent")


def test_an_agent_killed_by_sigkill_leaves_nothing(agent: Agent, tmp_path: Path) -> None:
    agent.start(FAMILY)
    until(lambda: is_up(tmp_path, 0) and is_up(tmp_path, 1))
    children = [pid for r in range(2) for pid in numbers_in(tmp_path, r)]
    assert len(agent.left()) == 6
    assert agent.process is not None
    agent.process.kill()
    until(lambda: not agent.left())
    until(lambda: not any(is_alive(pid) for pid in (*agent.pids, *children)))
    until(lambda: not is_alive(agent.log_relay), what=lambda: "the keeper ends as well")


def test_what_was_printed_before_the_agent_died_is_in_the_logs(agent: Agent, tmp_path: Path) -> None:
    agent.start("import time\nfor n in range(100000): print(n)\nprint('up'); time.sleep(600)", count=1)
    assert agent.process is not None
    os.kill(agent.process.pid, signal.SIGSTOP)  # an agent that does nothing holds no rank up
    until(lambda: is_up(tmp_path))
    agent.process.kill()
    until(lambda: not agent.left() and not is_alive(agent.log_relay))
    assert list(numbers_in(tmp_path)) == list(range(100000))


def test_ctrl_c_reaches_the_agent_alone_and_through_it_the_ranks(agent: Agent, tmp_path: Path) -> None:
    code = """
        import signal, sys, time
        def end(*_):
            time.sleep(0.2); print('saved'); sys.exit(0)
        signal.signal(signal.SIGINT, end)
        print('up'); time.sleep(600)
    """
    agent.start(code)
    until(lambda: is_up(tmp_path, 0) and is_up(tmp_path, 1))
    assert agent.process is not None
    assert agent.process.stdout is not None
    os.killpg(agent.process.pid, signal.SIGINT)  # as a terminal does
    assert json.loads(agent.process.stdout.readline()) == [[0, 0, None], [1, 0, None]]
    assert agent.process.wait(20) == 0
    assert output(tmp_path, 1) == b"up\nsaved\n"  # once: they were not interrupted twice
    until(lambda: not agent.left() and not is_alive(agent.log_relay))


def test_the_whole_group_of_the_agent_may_be_killed(agent: Agent, tmp_path: Path) -> None:
    agent.start(FAMILY)
    until(lambda: is_up(tmp_path, 0) and is_up(tmp_path, 1))
    assert agent.process is not None
    os.killpg(agent.process.pid, signal.SIGKILL)
    until(lambda: not agent.left())


def test_a_keeper_that_is_killed_is_replaced_and_the_logs_go_on(tmp_path: Path, group: WorkerGroup) -> None:
    code = "import time\nfor n in range(2000): print(n); time.sleep(0.0005)\nprint('up'); time.sleep(600)"
    group.start([worker(tmp_path, python(code))])
    until(lambda: len(list(numbers_in(tmp_path))) > 100)
    first = group._relay.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: is_up(tmp_path))
    assert group._relay.pid not in (None, first)
    lines = list(numbers_in(tmp_path))
    assert len(set(lines)) == len(lines)
    assert len(set(range(2000)) - set(lines)) <= 5  # it may die between reading and writing, not lose what came later
    assert group.stop(grace_s=5.0)[0].signal == "SIGTERM"


def test_the_log_relay_ignores_signals_meant_for_the_agent(tmp_path: Path, group: WorkerGroup) -> None:
    group.start([worker(tmp_path, python(SLEEPS))])
    until(lambda: is_up(tmp_path))
    pid = group._relay.pid
    assert pid is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    assert group._relay.flush(timeout_s=10.0)
    assert group._relay.pid == pid


def test_a_job_inside_a_rank_has_a_mark_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, "outer")
    group = WorkerGroup()
    group.start([worker(tmp_path, python(SLEEPS))])
    until(lambda: is_up(tmp_path))
    assert (
        log_relay.marked(f"{MARK}=outer".encode()) == []
    )  # neither the rank nor the keeper: the inner agent ends them
    group.close()


def test_a_folder_that_cannot_be_made_does_not_stop_the_job(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    notes: list[Note] = []
    lines: list[bytes] = []
    group = WorkerGroup(on_lines=lambda _r, _s, more: lines.extend(more), on_problem=notes.append)
    group.start([worker(tmp_path / "file", python("print('still here')"), r) for r in range(2)])
    until(lambda: len(group.poll()) == 2)
    group.stop(grace_s=1.0)
    group.close()
    assert lines == [b"still here"] * 2
    assert [n.key for n in notes] == ["workers.log_not_written"]  # once, and not for every rank


def test_a_rank_that_nothing_ends_is_left_behind_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # SIGKILL that is not carried out, as for a process inside the kernel.
    notes: list[Note] = []
    group = WorkerGroup(on_problem=notes.append)
    monkeypatch.setattr(workers, "_KILL_WAIT_S", 0.2)
    group.start([worker(tmp_path, python(DEAF))])
    until(lambda: is_up(tmp_path))
    process = group._running[0].process
    with monkeypatch.context() as patch:
        patch.setattr(workers, "signal_group", lambda *_: None)
        assert group.stop(grace_s=0.1) == {}
    assert [(n.key, n.values["pid"]) for n in notes] == [("workers.unkillable", str(process.pid))]
    process.kill()
    process.wait(20)
    group.close()
