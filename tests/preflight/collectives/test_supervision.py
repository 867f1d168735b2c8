"""Real rank processes with a made-up torch that costs nothing: what the agents see, wait for and clean up."""

import asyncio
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from allready.errors import ExchangeError
from allready.preflight.collectives import wire
from allready.preflight.collectives.agent import rank_environment, take_part
from allready.preflight.collectives.hub import conduct
from allready.preflight.collectives.rank import _reach
from allready.preflight.collectives.rank_side import StoreUnreachableError
from allready.preflight.collectives.variants import grow, isolate, measure_without_each
from tests.cases import cases
from tests.clock import Deadline, Stopwatch
from tests.messaging.memory import MemoryHub, silent
from tests.preflight.collectives.cluster import Recorder, Tap, agents, fake_torch, gone, rank_processes, run, spec

pytestmark = pytest.mark.jobs

IMPORT: dict[str, Any] = {"stages": ("import",)}
FOREVER = "while True: time.sleep(1)"


def test_a_missing_torch_is_named_at_once_while_others_still_import(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_torch(
        monkeypatch, tmp_path, f"if rank == 3: raise ModuleNotFoundError(\"No module named 'torch'\")\n{FOREVER}"
    )
    began = Stopwatch()
    bad = asyncio.run(run(spec({0: 2, 1: 2}))).bad
    assert began.s < 60  # the deadline of an import is 120 s
    assert bad is not None
    assert (bad.name, bad.outcome, bad.culprits, bad.entered, bad.finished) == (
        "import",
        "failed",
        (3,),
        (0, 1, 2, 3),
        (),
    )
    [state] = bad.ranks
    assert (state.rank, state.node_rank, state.local_rank, state.exit_code) == (3, 1, 1, 1)
    assert state.error == "ModuleNotFoundError: No module named 'torch'"


def test_all_ranks_are_named_when_all_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_torch(monkeypatch, tmp_path, "raise OSError('libtorch.so: no such file')")
    bad = asyncio.run(run(spec({0: 2, 1: 1}))).bad
    assert bad is not None
    assert sorted(bad.culprits) == [0, 1, 2]
    assert {s.error for s in bad.ranks} == {"OSError: libtorch.so: no such file"}


@pytest.mark.parametrize(
    ("body", "state", "exit_code", "signal_name", "error"),
    [
        ("os._exit(3)", "exited", 3, None, None),
        ("os._exit(0)", "exited", 0, None, None),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed", None, "SIGSEGV", None),
        ("print('terminate called'); print('  what():  NCCL broke'); os.abort()", "killed", None, "SIGABRT",
         "what():  NCCL broke"),
    ],
)  # fmt: skip
def test_a_rank_that_ends_without_a_word_is_told_by_its_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    body: str,
    state: str,
    exit_code: int | None,
    signal_name: str | None,
    error: str | None,
) -> None:
    fake_torch(monkeypatch, tmp_path, f"sys.stdout.reconfigure(line_buffering=True)\nif rank == 1: {body}")
    bad = asyncio.run(run(spec({0: 1, 1: 1}, **IMPORT))).bad
    assert bad is not None
    [seen] = bad.ranks
    assert (seen.rank, seen.state, seen.exit_code, seen.signal, seen.error) == (1, state, exit_code, signal_name, error)


def test_a_busy_rank_is_waited_for_and_not_blamed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "told"
    fake_torch(monkeypatch, tmp_path, f"while rank == 1 and not os.path.exists({str(told)!r}): time.sleep(0.01)")

    class UntilTold(Recorder):
        """The rank is busy until it learns that it is waited for."""

        def say(self, key: str, **values: object) -> None:
            super().say(key, **values)
            if key == "collectives.waiting_import":
                told.touch()

    recorder = UntilTold()
    result = asyncio.run(run(spec({0: 1, 1: 1}, names={1: "gpu02"}, **IMPORT), narrator=recorder))
    assert result.bad is None
    waiting = [values for key, values in recorder.said if key == "collectives.waiting_import"]
    assert waiting
    assert {(v["ranks"], v["nodes"]) for v in waiting} == {("1", "1 (gpu02)")}


def test_a_busy_rank_is_named_at_its_deadline_with_what_it_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_torch(monkeypatch, tmp_path, "if rank == 1:\n    while True: pass")
    bad = asyncio.run(run(spec({0: 1, 1: 1}, stage_deadline_s={"import": 5.0}, **IMPORT))).bad
    assert bad is not None
    assert (bad.outcome, bad.deadline_s, bad.culprits, bad.entered, bad.finished) == ("hung", 5.0, (1,), (0, 1), (0,))
    [state] = bad.ranks
    assert (state.state, state.step) == ("running", "entered import")
    assert state.cpu_s is not None
    assert state.cpu_s > 0.05  # 1.0 of a processor that it has for itself
    assert state.stack[0].startswith(f"{tmp_path}/torch/__init__.py:")


def test_a_stopped_rank_is_named_before_its_deadline_and_does_not_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_torch(monkeypatch, tmp_path, "if rank == 0: os.kill(os.getpid(), signal.SIGSTOP)")
    began = Stopwatch()
    bad = asyncio.run(run(spec({0: 1, 1: 1}, **IMPORT))).bad
    assert began.s < 60  # the deadline of an import is 120 s
    assert bad is not None
    assert (bad.name, bad.outcome, bad.culprits, bad.detail) == ("import", "hung", (0,), "stopped")
    assert [(s.rank, s.state) for s in bad.ranks] == [(0, "stopped")]


def test_a_rank_that_ignores_sigterm_and_its_children_are_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pids = tmp_path / "child"
    body = f"""
    import subprocess
    while rank == 1:  # the run ends when the other rank is ready to be a nuisance
        if os.path.exists({str(pids)!r}):
            raise RuntimeError("enough")
        time.sleep(0.01)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(100)"])
    open({str(pids)!r} + ".part", "w").write(str(child.pid))
    os.rename({str(pids)!r} + ".part", {str(pids)!r})
    time.sleep(100)
    """
    fake_torch(monkeypatch, tmp_path, body)
    bad = asyncio.run(run(spec({0: 2}, **IMPORT))).bad
    assert bad is not None
    assert bad.culprits == (1,)
    child = int(pids.read_text())
    assert not psutil.pid_exists(child) or gone([psutil.Process(child)], 30)


def test_a_chatty_rank_neither_blocks_nor_fills_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_torch(monkeypatch, tmp_path, "for _ in range(200): print('x' * 100_000)")
    assert asyncio.run(run(spec({0: 1}, **IMPORT))).bad is None


def test_a_cancelled_agent_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_torch(monkeypatch, tmp_path, FOREVER)

    async def main() -> None:
        async with agents(1) as (hub, _):
            conducting = asyncio.create_task(conduct(hub, spec({0: 2}), silent()))
            await all_started(2)
            conducting.cancel()
            await asyncio.wait([conducting])
        assert rank_processes() == {}

    asyncio.run(main())


def test_hub_and_agents_cancelled_together_end_soon_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_torch(monkeypatch, tmp_path, FOREVER)

    async def main() -> None:
        hub = MemoryHub(2)
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(conduct(hub, spec({0: 1, 1: 1}), silent()))]
        for node in hub.ends.values():
            _, body = await node.receive(timeout_s=10)
            tasks.append(asyncio.create_task(take_part(node, body, narrator=silent())))
        await all_started(2)
        began = Stopwatch()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert began.s < 15  # 0.1 s; each wait for the other side alone is 2 s at most
        assert all(task.cancelled() for task in tasks)
        assert rank_processes() == {}

    asyncio.run(main())


def test_ranks_die_with_an_agent_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, tmp_path, FOREVER)
    script = """
        import asyncio
        from tests.messaging.memory import silent
        from allready.preflight.collectives.hub import conduct
        from tests.preflight.collectives.cluster import agents, spec

        async def main():
            async with agents(2) as (hub, _):
                await conduct(hub, spec({0: 1, 1: 1}), silent())

        asyncio.run(main())
    """
    root = str(Path(__file__).parents[3])
    agent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], cwd=root)
    try:
        deadline = Deadline(60)
        while len(ranks := rank_processes(agent.pid)) < 2 and not deadline.passed():
            time.sleep(0.02)
        assert sorted(ranks) == [0, 1]
    finally:
        agent.send_signal(signal.SIGKILL)
        agent.wait(10)
    assert gone(list(ranks.values()), 30)


def test_ranks_of_a_lost_node_are_unknown_and_the_others_are_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_torch(monkeypatch, tmp_path, FOREVER)

    async def main() -> None:
        async with agents(2) as (hub, nodes):

            def break_node_1(node_rank: int, kind: str, body: Any) -> None:
                if kind == wire.PROGRESS and node_rank == 1:
                    nodes[1].break_off("the cable is out")

            bad = (await conduct(Tap(hub, break_node_1), spec({0: 1, 1: 1}), silent())).bad
            assert bad is not None
            assert (bad.outcome, bad.culprits) == ("failed", (1,))
            assert [(s.rank, s.state, s.pid) for s in bad.ranks] == [(1, "unknown", None)]
            assert "the cable is out" in bad.detail
            again = (await conduct(hub, spec({0: 1, 1: 1}), silent())).bad
            assert again is not None
            assert (again.culprits, again.detail) == ((1,), "node 1 is not connected")
        assert rank_processes() == {}

    asyncio.run(main())


def test_an_agent_gives_up_when_node_0_falls_silent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_torch(monkeypatch, tmp_path, FOREVER)
    monkeypatch.setattr(wire, "HUB_SILENT_S", 0.5)

    async def main() -> None:
        node = MemoryHub(1).ends[0]
        with pytest.raises(ExchangeError, match="node 0 has sent nothing"):
            await take_part(node, order(), narrator=silent())
        assert rank_processes() == {}

    asyncio.run(main())


def test_a_message_of_another_stage_ends_the_part_and_is_handed_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_torch(monkeypatch, tmp_path, FOREVER)

    async def main() -> None:
        hub = MemoryHub(1)
        await hub.send(0, "verdict", {"code": "JOB001"})
        assert await take_part(hub.ends[0], order(), narrator=silent()) == ("verdict", {"code": "JOB001"})
        assert rank_processes() == {}

    asyncio.run(main())


@cases(
    "changes",
    [{"extra_env": {"LD_PRELOAD": "/tmp/x.so"}}, {"extra_env": {"NCCL_X": "a\0b"}}, {"num_ranks": 100_000},
     {"first_rank": -1}, {"sizes": "all"}, {"extra_env": {"TORCH_LOGS_OUT": "/home/u/.bashrc"}},
     {"extra_env": {"NCCL_NET_PLUGIN": "/tmp/x.so"}}, {"extra_env": {"NCCL_P2P_DISABLE": "/tmp/x"}},
     {"extra_env": {"NCCL_NET": "x"}},
     {"extra_env": {"OMP_TOOL_LIBRARIES": "/tmp/x.so"}}, {"backend": "mpi"}, {"stages": ("shell",)},
     {"master_addr": "h\nLD_PRELOAD=/tmp/x.so"}, {"devices": ("0\0",)}, {"sizes": (1 << 62,)}, {"iters": 0},
     {"positions_every_s": 0.0}, {"num_ranks": 3, "world_size": 8}],
)  # fmt: skip
def test_an_agent_refuses_orders_that_no_hub_gives(changes: dict[str, Any]) -> None:
    async def main() -> None:
        with pytest.raises(ExchangeError):
            await take_part(MemoryHub(1).ends[0], order(**changes), narrator=silent(), most_ranks=2)

    asyncio.run(main())


def test_grow_stops_at_the_first_number_of_ranks_that_breaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_torch(monkeypatch, tmp_path, "if world_size >= 4 and rank == 3: raise RuntimeError('the fourth is too much')")
    recorder = Recorder()

    async def main() -> None:
        async with agents(3) as (hub, _):
            runs = await grow(hub, spec({0: 1, 1: 2, 2: 3}, **IMPORT), recorder)
            assert [r.label for r in runs] == ["grow 1", "grow 2", "grow 4"]
            assert [r.ranks for r in runs] == [(0,), (0, 1), (0, 1, 2, 3)]
            assert [r.bad is None for r in runs] == [True, True, False]
            bad = runs[-1].bad
            assert bad is not None
            assert [(s.rank, s.node_rank, s.local_rank) for s in bad.ranks] == [(3, 2, 0)]

    asyncio.run(main())
    assert recorder.said[-1] == ("collectives.grow_breaks", {"num_ranks": 4, "added": "2,3"})


def test_isolate_tells_which_switch_helps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_torch(monkeypatch, tmp_path, "if 'NCCL_SHM_DISABLE' not in os.environ: raise RuntimeError('shm is broken')")

    async def main() -> None:
        async with agents(1) as (hub, _):
            asked = spec({0: 1}, **IMPORT)
            failed = await conduct(hub, asked, silent())
            assert await isolate(hub, asked, failed, silent()) == []  # these switches cannot matter to an import
            switches = (("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1"))
            runs = await isolate(hub, asked, failed, silent(), switches=switches)
            assert [(r.label, r.bad is None) for r in runs] == [
                ("isolate NCCL_P2P_DISABLE=1", False),
                ("isolate NCCL_SHM_DISABLE=1", True),
            ]
            assert runs[1].extra_env == {"NCCL_SHM_DISABLE": "1"}
            assert await isolate(hub, asked, runs[1], silent(), switches=switches) == []

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.torch
def test_a_benchmark_measures_its_largest_size_without_each() -> None:
    """Gloo, to which these variables mean nothing: real ranks, the order of the runs, and what each is given."""

    async def main() -> None:
        async with agents(1) as (hub, _):
            stages = ("import", "device", "allocate", "local", "store", "gloo_barrier", "sweep")
            asked = spec({0: 2}, stages=stages, min_bytes=1024, max_bytes=5000, is_bench=True)
            switches = (("NCCL_SHM_DISABLE", "1"), ("NCCL_NET", "Socket"))
            runs = await measure_without_each(hub, asked, silent(), switches=switches)
            assert [r.label for r in runs] == [
                "again",
                "isolate NCCL_SHM_DISABLE=1",
                "isolate NCCL_NET=Socket",
                "again",
            ]
            assert [[p.size_bytes for p in r.points] for r in runs] == [[4096]] * 4
            assert [r.extra_env for r in runs] == [{}, {"NCCL_SHM_DISABLE": "1"}, {"NCCL_NET": "Socket"}, {}]
            assert all(s.name != "local" for r in runs for s in r.stages)

    asyncio.run(main())


def test_a_rank_gets_torchruns_numbers_and_keeps_the_rest_of_the_environment() -> None:
    user = {"RANK": "9", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "8", "PYTHONINSPECT": "1", "NCCL_P2P_DISABLE": "0"}
    started = wire.StartOrder(**order(first_rank=2, num_ranks=2, world_size=4, extra_env={"NCCL_P2P_DISABLE": "1"}))
    found, index = rank_environment(started, 1, 1, user)
    assert index == 1
    expected = {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "8",
        "NCCL_P2P_DISABLE": "1",
    }
    assert expected.items() <= found.items()
    assert "PYTHONINSPECT" not in found
    assert "CUDA_VISIBLE_DEVICES" not in found
    assert rank_environment(started, 1, 0, {})[0]["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("devices", "local_rank", "visible", "index"),
    [(("2", "5"), 1, "2,5", 1), (("3", "3"), 1, "3", 0), (("GPU-ab",), 0, "GPU-ab", 0)],
)
def test_given_devices_decide_which_gpu_a_rank_takes(
    devices: tuple[str, ...], local_rank: int, visible: str, index: int
) -> None:
    started = wire.StartOrder(**order(num_ranks=2, world_size=2, devices=devices))
    found, got = rank_environment(started, 0, local_rank, {"CUDA_VISIBLE_DEVICES": "0"})
    assert (found["CUDA_VISIBLE_DEVICES"], got) == (visible, index)


def test_an_unreachable_store_is_named_with_address_port_and_reason() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        _reach("127.0.0.1", port)
    with pytest.raises(StoreUnreachableError, match=rf"cannot be reached at 127\.0\.0\.1:{port}: Connection refused"):
        _reach("127.0.0.1", port)


def test_a_run_leaves_no_descriptor_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_torch(monkeypatch, tmp_path, "")

    async def main() -> None:
        async with agents(2) as (hub, _):
            before = num_descriptors()
            await conduct(hub, spec({0: 2, 1: 2}, **IMPORT), silent())
            assert num_descriptors() == before

    asyncio.run(main())


async def all_started(num_ranks: int) -> None:
    """Wait until so many rank processes live."""
    for _ in range(1500):
        if len(rank_processes()) == num_ranks:
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"{num_ranks} ranks did not start within 30 s")


def num_descriptors() -> int:
    """Open descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def order(**changes: Any) -> dict[str, Any]:
    """The body of a START for one rank."""
    return {
        "run": "1-1",
        "label": "all",
        "backend": "gloo",
        "stages": ("import",),
        "first_rank": 0,
        "num_ranks": 1,
        "world_size": 1,
        "num_nodes": 1,
        "master_addr": "127.0.0.1",
        **changes,
    }
