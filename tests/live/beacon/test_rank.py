"""Real ranks: what the agent reads of them while they train, wait, hang, stop, fork and end."""

import faulthandler
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from allready.evidence.stacks.read import read_stacks
from allready.live.beacon import names
from allready.live.beacon.names import STACK_SIGNAL
from allready.live.beacon.state import CellState
from allready.live.environment import rank_environment
from allready.live.node.stacks import read_from_memory
from allready.live.run_paths import make_rank_dir
from allready.preflight.collectives import rank_side
from allready.proc.process import has_handler
from tests.live.beacon.helpers import PATIENCE_S, Rank, environment, rank_command, running, until, wrapped

pytestmark = [pytest.mark.torch, pytest.mark.newest, pytest.mark.jobs]

STALE_S = 1.2
"""A beat this old is no accident on a busy machine: six are missing."""

GLOO = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
"""


def write(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


class Pair:
    """Two ranks of one Gloo job."""

    def __init__(self, run_dir: Path, script: Path, **more: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        common = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": "2",
            "OMP_NUM_THREADS": "1",
        } | more
        with ExitStack() as stack:
            self.ranks = [
                stack.enter_context(running(run_dir, script, rank=r, RANK=str(r), LOCAL_RANK=str(r), **common))
                for r in (0, 1)
            ]
            self._stack = stack.pop_all()

    def __enter__(self) -> list[Rank]:
        return self.ranks

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def stood_s(state: CellState) -> float:
    """For how long the main thread has stood at one place."""
    return (state.written_s or 0.0) - (state.site_since_s or 0.0)


def mark(state: CellState, group: str = "0") -> tuple[int, int | None]:
    return next(((m.enqueued, m.completed) for m in state.groups if m.group == group), (0, None))


def answered(rank: Rank, *, dump: bool = False) -> float:
    kinds = ("ring", "dump") if dump else ("ring",)
    number = rank.reader.request(*kinds)
    assert number is not None
    return until(lambda: rank.reader.is_answered(number, kinds[-1]))


def test_a_training_pair_tells_its_groups_its_ring_and_its_dump(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        GLOO
        + """
tensor_parallel = dist.new_group([0, 1], group_desc="TP")
alone = [dist.new_group([r], group_desc="alone") for r in (0, 1)]
step = 0
while not os.path.exists(os.environ["ASKED"]):
    dist.all_reduce(torch.ones(4))
    if step % 5 == 0:
        dist.all_reduce(torch.ones(2), group=tensor_parallel)
        dist.all_reduce(torch.ones(2), group=alone[rank])
    step += 1
    time.sleep(0.005)
print("imported", "torch._inductor" in sys.modules, type(torch._lazy_modules).__name__, hasattr(torch, "_inductor"))
print("made", step, flush=True)
os._exit(0)
""",
    )
    asked = tmp_path / "asked"
    with Pair(tmp_path, script, ASKED=str(asked)) as (first, second):
        first.until(lambda s: {m.group for m in s.groups} == {"0", "1", "2"} and mark(s)[0] > 20)
        state = second.until(lambda s: {m.group for m in s.groups} == {"0", "1", "3"} and mark(s)[0] > 20)
        assert {m.group: (m.label, m.members) for m in state.groups} == {
            "0": ("default_pg", (0, 1)),
            "1": ("TP", (0, 1)),
            "3": ("alone", (1,)),
        }
        assert state.framework == "torch"
        assert state.problems == ()
        assert state.num_left_out == 0
        assert any(m.moved_s is not None and abs(m.moved_s - time.time()) < PATIENCE_S for m in state.groups)
        assert second.until(lambda s: mark(s)[0] > mark(state)[0] + 20).heartbeat_age_s < PATIENCE_S
        ring = json.loads((second.folder / names.RINGS[0]).read_bytes())
        before = max(e["collective_seq_id"] for e in ring["entries"] if e["pg_id"] == 0)
        answered(second)
        ring = json.loads((second.folder / names.RINGS[0]).read_bytes())
        assert max(e["collective_seq_id"] for e in ring["entries"] if e["pg_id"] == 0) > before
        assert len(ring["entries"]) <= 512
        answered(second, dump=True)
        dump = pickle.loads((second.folder / names.DUMPS[0]).read_bytes())
        assert any(str(script) in frame["filename"] for entry in dump["entries"] for frame in entry["frames"])
        assert not list(second.folder.glob("*.part"))
        # A dump does not import torch's compiler: that takes seconds of a job that may be healthy, and crashes one that
        # ends meanwhile.
        answered(first, dump=True)
        assert str(script).encode() in (first.folder / names.DUMPS[0]).read_bytes()
        asked.touch()
        until(lambda: first.process.poll() is not None or second.process.poll() is not None)
        ended = first if first.process.poll() is not None else second
        said = ended.end()
        assert b"imported False set True" in said
        # os._exit calls nothing that is registered, and what was made up to then is reported all the same.
        made = {m.group: m.enqueued for m in ended.until(lambda s: bool(s.made)).made}
        assert made["0"] == int(said.partition(b"made ")[2].split()[0])


def test_who_waits_and_who_does_not_come_is_seen_within_a_second(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        GLOO
        + """
def dawdle():
    time.sleep(1000)
for step in range(30):
    dist.all_reduce(torch.ones(4))
    if rank == 1 and step == 20:
        dawdle()
""",
    )
    with Pair(tmp_path, script) as (first, second):
        # Now and then torch's own counter stays behind: then the ring tells, a little later.
        waiting = first.until(lambda s: mark(s) == (22, 21) and (s.groups[0].waiting_s or 0) > 0.5)
        late = second.until(lambda s: mark(s) == (21, 21) and "dawdle" in s.site)
        assert waiting.phase == "communicating"
        assert waiting.site == f"{script}:9 <module>"
        assert late.phase == "computing"
        assert late.groups[0].waiting_s is None
        ids = {first.until(lambda _: True).stack_id for _ in range(3)}
        assert ids == {waiting.stack_id}
        ring_s = first.until(lambda s: s.ring_s is not None).ring_s
        assert ring_s is not None  # the last ring has the operation that does not end
        until(
            lambda: json.loads((first.folder / names.RINGS[0]).read_bytes())["entries"][-1]["collective_seq_id"] == 22
        )


@pytest.mark.parametrize("call", ["HANDLE", pytest.param("loss.backward()", marks=pytest.mark.slow)])
def test_waiting_in_the_reducer_or_for_a_handle_is_communicating(call: str, tmp_path: Path) -> None:
    """Neither has a frame of torch.distributed."""
    reducer = "torch.nn.parallel.DistributedDataParallel" if call == "loss.backward()" else ""
    script = write(
        tmp_path,
        GLOO
        + f"""
model = {reducer}(torch.nn.Linear(4, 4))
for step in range(5):
    loss = model(torch.ones(2, 4)).sum()
    if rank == 1 and step == 3:
        time.sleep(1000)
    {call.replace("HANDLE", "dist.all_reduce(torch.ones(3), async_op=True).wait()")}
""",
    )
    with Pair(tmp_path, script) as (first, second):
        state = first.until(lambda s: s.phase == "communicating" and ((s.groups and s.groups[0].waiting_s) or 0) > 0.5)
        assert state.site.startswith(f"{script}:")
        second.until(lambda s: s.phase == "computing" and stood_s(s) > 0.5)


PHASES = {
    "joining": GLOO,
    "importing": "import slow_module",
    "loading": """
        import time, torch.utils.data as data
        class Set(data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, i): time.sleep(1000)
        if __name__ == "__main__":
            next(iter(data.DataLoader(Set(), num_workers=WORKERS, multiprocessing_context=CONTEXT)))
        """,
    "evaluating": "import time\ndef evaluate(): time.sleep(1000)\nevaluate()",
    "saving": """
        import os, torch, threading
        os.mkfifo(os.path.join(os.path.dirname(__file__), "slow"))
        class Slow:
            def __getstate__(self): threading.Event().wait(1000)
        torch.save(Slow(), os.path.join(os.path.dirname(__file__), "x.pt"))
        """,
    "computing": "x = 0\nwhile True: x += 1",
    "ending": "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
    "compiling": """
        import time, torch
        def slow(graph, example): time.sleep(1000)
        torch.compile(lambda x: x + 1, backend=slow)(torch.ones(1))
        """,
}  # fmt: skip


QUICK = {"importing", "evaluating", "computing", "ending", "loading"}


@pytest.mark.parametrize("phase", [p if p in QUICK else pytest.param(p, marks=pytest.mark.slow) for p in PHASES])
def test_phases_are_told(phase: str, tmp_path: Path) -> None:
    write(tmp_path, "import time\ntime.sleep(1000)", "slow_module.py")
    text = PHASES[phase].replace("WORKERS", "0").replace("CONTEXT", "None")
    more = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    with running(tmp_path, write(tmp_path, text), rank=0, **more) as rank:
        state = rank.until(lambda s: s.phase == phase and (phase == "computing" or stood_s(s) > 0.5))
        later = rank.until(lambda s: (s.written_s or 0) > (state.written_s or 0) + 0.5)
        assert later.phase == phase


@pytest.mark.parametrize(
    "context", ["fork", *(pytest.param(c, marks=pytest.mark.slow) for c in ("spawn", "forkserver"))]
)
def test_loader_workers_have_no_beacon_and_leave_the_ranks_alone(context: str, tmp_path: Path) -> None:
    text = """
        import os, sys, time, torch, torch.utils.data as data
        class Set(data.Dataset):
            def __len__(self): return 1000000
            def __getitem__(self, i):
                loaded = "allready.live.beacon.thread" in sys.modules
                return os.getpid(), sum("ALLREADY" in k for k in os.environ), loaded
        if __name__ == "__main__":
            for pids, variables, loaded in data.DataLoader(Set(), num_workers=2, multiprocessing_context=CONTEXT):
                assert os.getpid() not in pids.tolist() and not variables.any(), (pids, variables)
                assert CONTEXT != "spawn" or not loaded.any()
                print(".", flush=True)
                time.sleep(0.01)
                if os.path.exists(sys.argv[1]):
                    break
        """.replace("CONTEXT", repr(context))
    with running(tmp_path, write(tmp_path, text), str(tmp_path / "end")) as rank:
        assert rank.process.stdout is not None
        assert rank.process.stdout.readline() == b".\n"
        state = rank.until(lambda s: "train.py" in s.site)
        assert state.pid == rank.pid
        rank.until(lambda s: (s.written_s or 0) > (state.written_s or 0) + 0.5)
        assert rank.process.poll() is None
        (tmp_path / "end").touch()  # by itself, so that no semaphore is left behind
        assert set(rank.process.stdout.read().split()) == {b"."}
        assert rank.process.wait(PATIENCE_S) == 0


def test_a_rank_that_ends_no_longer_stands_where_it_was_seen_last(tmp_path: Path) -> None:
    """Seen: it had waited for long, came through, left at once, and was taken for one that still waits there."""
    with running(tmp_path, write(tmp_path, "import time\ntime.sleep(1.5)")) as rank:
        rank.until(lambda s: stood_s(s) > 0.5)
        rank.process.wait(PATIENCE_S)
        state = rank.until(lambda s: s.phase == "ending")
        assert state.site_since_s == pytest.approx(state.written_s, abs=0.4)


def test_a_child_never_writes_into_the_cell(tmp_path: Path) -> None:
    text = """
        import os, time
        time.sleep(0.5)
        if os.fork() == 0:
            time.sleep(1000)
        os.kill(os.getpid(), 9)
        """
    with running(tmp_path, write(tmp_path, text)) as rank:
        rank.process.wait(PATIENCE_S)
        state = rank.until(lambda s: True)
        time.sleep(0.6)
        assert rank.until(lambda s: True).heartbeat_age_s >= state.heartbeat_age_s + 0.5
        os.killpg(rank.pid, 9)


def test_the_beat_goes_on_after_forks(tmp_path: Path) -> None:
    text = """
        import os, time
        for _ in range(30):
            if os.fork() == 0:
                os._exit(0)
            os.wait()
        print("forked", flush=True)
        time.sleep(1000)
        """
    with running(tmp_path, write(tmp_path, text)) as rank:
        assert rank.process.stdout is not None
        assert rank.process.stdout.readline() == b"forked\n"
        state = rank.until(lambda s: "train.py:8" in s.site)
        assert rank.until(lambda s: (s.written_s or 0) > (state.written_s or 0) + 0.5).heartbeat_age_s < STALE_S


def test_holding_the_gil_stops_the_beat_but_not_the_stacks(tmp_path: Path) -> None:
    text = """
        import ctypes, time
        time.sleep(0.5)
        def hold():
            mutex = ctypes.create_string_buffer(128)
            for _ in range(2):  # the second time it is locked; no signal wakes it
                ctypes.PyDLL(None).pthread_mutex_lock(mutex)
        hold()
        """
    with running(tmp_path, write(tmp_path, text)) as rank:
        state = rank.until(lambda s: s.heartbeat_age_s > STALE_S)
        assert state.phase in {"computing", "starting"}
        assert has_handler(rank.pid, STACK_SIGNAL)
        os.kill(rank.pid, STACK_SIGNAL)
        until(lambda: "in hold" in (rank.folder / names.STACKS).read_text())
        assert rank.process.poll() is None


def test_stacks_are_written_on_request_of_all_threads_and_without_our_own(tmp_path: Path) -> None:
    text = """
        import threading, time
        def helps(): time.sleep(1000)
        def main_waits(): time.sleep(1000)
        threading.Thread(target=helps, name="helper", daemon=True).start()
        main_waits()
        """
    with running(tmp_path, write(tmp_path, text)) as rank:
        rank.until(lambda s: "main_waits" in s.site)
        for _ in range(3):
            before = len((rank.folder / names.STACKS).read_bytes())
            number = rank.reader.request("stacks")
            assert number is not None
            until(partial(rank.reader.is_answered, number, "stacks"))
            told = (rank.folder / names.STACKS).read_bytes()[before:]
            (stack,) = read_stacks(told, "stacks").stacks
            assert [(t.name, t.frames[0].function, t.is_main) for t in stack.threads] == [
                ("helper", "helps", False),
                ("MainThread", "main_waits", True),
            ]
            assert stack.threads[-1].frames[0].line == 4
        assert rank.reader.is_dumping() is False
        beat = rank.reader.heartbeat()
        assert beat is not None
        assert Path(f"/proc/{rank.pid}/task/{beat[1]}").is_dir()


def test_a_forked_child_answers_the_signal_with_its_main_thread_only(tmp_path: Path) -> None:
    """Frames of its other threads may change while they are read."""
    text = """
        import os, threading, time
        def helps(): time.sleep(1000)
        def child_waits(): time.sleep(1000)
        if os.fork() == 0:
            threading.Thread(target=helps, daemon=True).start()
            print(os.getpid(), flush=True)
            child_waits()
        time.sleep(1000)
        """
    with running(tmp_path, write(tmp_path, text)) as rank:
        assert rank.process.stdout is not None
        child = int(rank.process.stdout.readline())
        stacks = rank.folder / names.STACKS
        time.sleep(0.2)
        os.kill(child, STACK_SIGNAL)
        try:
            until(lambda: "in child_waits" in stacks.read_text())
            time.sleep(0.2)
            assert "helps" not in stacks.read_text()
        finally:
            os.kill(child, signal.SIGKILL)


def test_stacks_come_on_the_signal_again_and_again(tmp_path: Path) -> None:
    text = "import threading\n\nl = threading.Lock(); l.acquire(); l.acquire()"
    with running(tmp_path, write(tmp_path, text)) as rank:
        rank.until(lambda s: "train.py:3" in s.site)
        stacks = rank.folder / names.STACKS
        for _ in range(3):
            before = stacks.read_text().count('train.py", line 3')
            os.kill(rank.pid, STACK_SIGNAL)
            until(partial(lambda n: stacks.read_text().count('train.py", line 3') == n + 1, before))
        assert "Current thread" in (rank.folder / names.STACKS).read_text()


def test_a_stopped_rank_has_an_old_beat_and_a_continued_one_a_new_one(tmp_path: Path) -> None:
    with running(tmp_path, write(tmp_path, "import time\nwhile True: time.sleep(0.1)")) as rank:
        rank.until(lambda s: s.heartbeat_age_s < STALE_S and s.site != "")
        os.kill(rank.pid, signal.SIGSTOP)
        rank.until(lambda s: s.heartbeat_age_s > STALE_S)
        os.kill(rank.pid, signal.SIGCONT)
        rank.until(lambda s: s.heartbeat_age_s < STALE_S)


def test_a_rank_dies_with_its_agent(tmp_path: Path) -> None:
    script = write(tmp_path, "import time\ntime.sleep(1000)")
    make_rank_dir(tmp_path, 0)
    program = textwrap.dedent(f"""
        import os, subprocess, time
        from pathlib import Path
        from allready.live.environment import rank_environment
        env = dict(os.environ) | rank_environment(Path({str(tmp_path)!r}), 0)
        print(subprocess.Popen({rank_command(str(script))!r}, env=env, start_new_session=True).pid, flush=True)
        time.sleep(1000)
    """)
    agent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    pid = int(agent.stdout.readline())
    try:
        until(lambda: (tmp_path / "rank0" / names.CELL).exists() and (tmp_path / "rank0" / names.STACKS).exists())
        agent.kill()
        agent.wait()
        assert until(lambda: not alive(pid)) < STALE_S
    finally:
        agent.stdout.close()
        if alive(pid):
            os.kill(pid, 9)


def test_a_rank_whose_agent_is_already_gone_does_not_start(tmp_path: Path) -> None:
    script = write(tmp_path, "print('never')")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    env = environment(tmp_path) | rank_environment(tmp_path, 0, parent_pid=gone.pid)
    done = subprocess.run(rank_command(str(script)), env=env, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in {b"Z", b"X"}
    except OSError:
        return False


@pytest.mark.parametrize(
    ("call", "killed_by"), [("ctypes.string_at(0)", signal.SIGSEGV), ("os.abort()", signal.SIGABRT)]
)
def test_the_stack_of_a_crash_is_kept(call: str, killed_by: signal.Signals, tmp_path: Path) -> None:
    text = f"import ctypes, os\ndef crash():\n    {call}\ncrash()"
    with running(tmp_path, write(tmp_path, text)) as rank:
        assert rank.process.wait(PATIENCE_S) == -killed_by
        assert "in crash" in (rank.folder / names.CRASH).read_text()
        assert rank.end() == b""  # and nothing in its own output


@pytest.mark.parametrize(
    ("how", "number"), [("", signal.SIGINT), ("signal.signal(15, lambda *_: sys.exit(0))", signal.SIGTERM)]
)
def test_a_rank_that_a_signal_makes_leave_says_so_while_its_exit_handlers_wait(
    how: str, number: signal.Signals, tmp_path: Path
) -> None:
    """As those of JAX, which wait for the other ranks."""
    text = f"import atexit, signal, sys, time\natexit.register(time.sleep, 60)\n{how}\ntime.sleep(60)\n"
    with running(tmp_path, write(tmp_path, text)) as rank:
        rank.until(lambda s: "train.py:4" in s.site)
        os.kill(rank.pid, number)
        left = rank.until(lambda s: s.phase == "ending")
        assert (left.handling, left.raised) == (number.name, None)


def test_the_last_word_is_ending(tmp_path: Path) -> None:
    text = "import atexit, time\ntime.sleep(0.5)\natexit.register(time.sleep, 0.5)\nraise ValueError"
    with running(tmp_path, write(tmp_path, text)) as rank:
        raised = rank.until(lambda s: s.phase == "ending").raised
        assert raised is not None
        assert raised.error == "ValueError"
        rank.process.wait(PATIENCE_S)
        last = rank.until(lambda s: True)
        assert (last.phase, last.raised) == ("ending", raised)


def test_a_script_that_exits_has_raised_nothing(tmp_path: Path) -> None:
    with running(tmp_path, write(tmp_path, "import sys\nsys.exit('no data')")) as rank:
        rank.process.wait(PATIENCE_S)
        assert rank.until(lambda s: s.phase == "ending").raised is None


def test_a_rank_without_a_recorder_answers_at_once(tmp_path: Path) -> None:
    with running(tmp_path, write(tmp_path, "import time\ntime.sleep(1000)")) as rank:
        rank.until(lambda s: "train.py:2" in s.site)
        answered(rank, dump=True)
        assert not (rank.folder / names.RINGS[0]).exists()


@pytest.mark.slow
def test_a_job_that_turned_the_recorder_off_runs_without_it(tmp_path: Path) -> None:
    script = write(tmp_path, GLOO + "while True:\n    dist.all_reduce(torch.ones(4)); time.sleep(0.01)\n")
    with Pair(tmp_path, script, TORCH_FR_BUFFER_SIZE="0") as (first, _):
        state = first.until(lambda s: s.framework == "torch" and f"{script}" in s.site and s.phase == "communicating")
        assert state.groups == ()
        answered(first, dump=True)


def test_an_endless_loop_of_python_keeps_its_beat_and_loses_next_to_nothing(tmp_path: Path) -> None:
    text = """
        import time, resource
        began, cpu = time.perf_counter(), time.thread_time()
        while time.perf_counter() - began < 4:
            for _ in range(10000): pass
        print((time.process_time() - (time.thread_time() - cpu)) / 4)
        """
    with running(tmp_path, write(tmp_path, text)) as rank:
        state = rank.until(lambda s: s.phase == "computing" and "train.py" in s.site)
        rank.until(lambda s: (s.written_s or 0) > (state.written_s or 0) + 1.0 and s.heartbeat_age_s < STALE_S)
        rank.process.wait(PATIENCE_S)
        assert float(rank.end()) < 0.05  # loose: the benchmark measures it


def test_the_signal_is_that_of_the_check() -> None:
    assert STACK_SIGNAL == rank_side.STACK_SIGNAL


def test_the_signal_is_safe_only_for_who_takes_it() -> None:
    assert not has_handler(os.getpid(), STACK_SIGNAL)
    assert not has_handler(1 << 22, STACK_SIGNAL)
    with open(os.devnull, "wb") as file:  # noqa: PTH123
        faulthandler.register(STACK_SIGNAL, file=file)
        try:
            assert has_handler(os.getpid(), STACK_SIGNAL)
        finally:
            faulthandler.unregister(STACK_SIGNAL)


@pytest.mark.slow
def test_in_a_job_of_jax_who_waits_in_a_compiled_function_is_told_from_who_does_not_come(tmp_path: Path) -> None:
    text = """
        import os, sys, time
        import jax, numpy
        rank = int(os.environ["RANK"])
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize("127.0.0.1:" + os.environ["MASTER_PORT"], 2, rank)
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        mesh = Mesh(numpy.array(jax.devices()), ("x",))
        reduce = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
        ones = jax.make_array_from_callback((2,), NamedSharding(mesh, P("x")), lambda _: numpy.ones(1, "float32"))
        for step in range(100):
            if rank == 1 and step == 5:
                time.sleep(1000)
            reduce(ones).block_until_ready()
        """
    with Pair(tmp_path, write(tmp_path, text), JAX_PLATFORMS="cpu") as (first, second):
        waiting = first.until(lambda s: s.phase == "communicating" and stood_s(s) > 0.5)
        late = second.until(lambda s: s.phase == "computing" and stood_s(s) > 0.5)
        assert (waiting.site, late.site) == (f"{tmp_path}/train.py:14 <module>", f"{tmp_path}/train.py:13 <module>")
        assert waiting.framework == late.framework == "jax"


def test_a_signal_that_the_script_holds_back_is_not_taken_by_the_beacon(tmp_path: Path) -> None:
    text = """
        import os, signal, time
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
        for number in (signal.SIGTERM, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        time.sleep(0.5)
        held = sorted(signal.sigpending())
        signal.signal(signal.SIGUSR1, lambda *_: print("came", flush=True))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        print("whole", len(held), flush=True)
        """
    done = wrapped(str(write(tmp_path, text)), cwd=tmp_path, run_dir=tmp_path)
    assert (done.stdout.splitlines(), done.returncode) == ([b"came", b"whole 2"], 0)


def test_descriptors_that_the_script_closes_and_gets_again_stay_its_own(tmp_path: Path) -> None:
    text = """
        import ctypes, os, resource, time
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        os.closerange(3, 1 << 12)
        files = [open(os.path.join(os.path.dirname(__file__), f"own{i}"), "wb", buffering=0) for i in range(1100)]
        def main_waits(): ctypes.PyDLL(None).usleep(600_000_000)
        time.sleep(1)  # seen by the beacon
        main_waits()
        """
    with running(tmp_path, write(tmp_path, text)) as rank:
        rank.until(lambda s: s.heartbeat_age_s > STALE_S)
        assert rank.reader.stacks_fd() == 0
        assert not has_handler(rank.pid, STACK_SIGNAL)
        place = rank.reader.place()
        assert place is not None
        assert "main_waits" in read_from_memory(rank.pid, place, is_rank=True)
    assert {path.stat().st_size for path in tmp_path.glob("own*")} == {0}


def test_forks_from_several_threads_leave_one_beacon_and_no_words(tmp_path: Path) -> None:
    text = """
        import os, threading, time
        def forks():
            for _ in range(100):
                if (pid := os.fork()) == 0: os._exit(0)
                os.waitpid(pid, 0)
        threads = [threading.Thread(target=forks) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        time.sleep(1)
        print(len(os.listdir("/proc/self/task")))
        """
    done = wrapped(str(write(tmp_path, text)), cwd=tmp_path, run_dir=tmp_path, options=("-W", "ignore"))
    assert (done.stdout, done.stderr) == (b"3\n", b"")
