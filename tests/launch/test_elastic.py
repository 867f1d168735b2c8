"""Attempts over torchelastic: what ranks see, how nodes meet, and that every attempt ends."""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from allready.launch import run_ranks
from allready.launch.plan import AttemptResult
from allready.launch.request import RankCommand
from allready.model import OVER, ProcessEnd
from allready.model.process import ProcessState
from allready.proc.process import read_stat
from tests.clock import Stopwatch, until
from tests.launch.attempts_of_nodes import Nodes, again, has_succeeded, is_free, plan_of, plans_of, script
from tests.launch.processes import output
from tests.ports import free_port

pytestmark = [pytest.mark.torch, pytest.mark.newest, pytest.mark.jobs]

TELL = """
    import json, os, sys
    with open(os.path.join(sys.argv[1], "env" + os.environ["RANK"]), "w") as file:
        json.dump(dict(os.environ), file)
"""
OURS = {"ALLREADY_GROUP"}
NOT_THE_SAME = {"MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "OMP_NUM_THREADS", "COLUMNS", "LINES"}
"""Ports and folders are chosen anew; OMP_NUM_THREADS is 1 under torchrun, and ours by its own rule; importing readline,
as some versions of torchrun do, sets the last two."""

SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
OLD_PYTHON = "ALLREADY_TEST_OLD_TORCH"
"""Variable: interpreters with other versions of torch, separated by colons."""


def told(folder: Path, rank: int) -> dict[str, str]:
    return dict(json.loads((folder / f"env{rank}").read_text()))


@pytest.fixture(scope="module", autouse=True)
def _preloaded() -> None:
    importlib.import_module("allready.launch.elastic_agent")


def run(folder: Path, code: str, **more: object) -> AttemptResult:
    with Nodes([plan_of(folder, script(folder, code), **more)]) as nodes:  # type: ignore[arg-type]
        return nodes.join()[0]


def test_ranks_have_exactly_torchruns_environment(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    assert has_succeeded(run(ours, TELL, max_restarts=3, job_id="job7", role="trainer"))
    command = script(theirs, TELL)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--max-restarts",
            "3",
            "--rdzv-id",
            "job7",
            "--role",
            "trainer",
            "--master-port",
            str(free_port()),
            command.target,
            str(theirs),
        ],
        check=True,
        capture_output=True,
        timeout=100,
    )
    for rank in range(2):
        mine, torchruns = told(ours, rank), told(theirs, rank)
        assert set(mine) - OURS - NOT_THE_SAME == set(torchruns) - NOT_THE_SAME
        assert {k: v for k, v in mine.items() if k not in OURS | NOT_THE_SAME} == {
            k: v for k, v in torchruns.items() if k not in NOT_THE_SAME
        }


@pytest.mark.slow
@pytest.mark.parametrize("python", [p for p in os.environ.get(OLD_PYTHON, "").split(":") if p])
def test_other_versions_of_torch_give_the_same_environment(tmp_path: Path, python: str) -> None:
    root = Path(run_ranks.__file__).parents[2]
    tests = "not other_versions"
    environ = {**os.environ, "PYTHONPATH": f"{root}:{root.parent}", OLD_PYTHON: ""}
    argv = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", __file__, "-k", tests]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=110, cwd=root.parent)
    assert done.returncode == 0, done.stdout[-3000:]


def test_nodes_with_different_numbers_of_ranks_share_one_world(tmp_path: Path) -> None:
    with Nodes(plans_of(tmp_path, script(tmp_path, TELL), [1, 3, 2])) as nodes:
        results = nodes.join()
    assert all(has_succeeded(r) for r in results.values())
    for rank, (node, local, size) in enumerate([(0, 0, 1), (1, 0, 3), (1, 1, 3), (1, 2, 3), (2, 0, 2), (2, 1, 2)]):
        env = told(tmp_path, rank)
        assert (env["RANK"], env["LOCAL_RANK"], env["GROUP_RANK"]) == (str(rank), str(local), str(node))
        assert (env["LOCAL_WORLD_SIZE"], env["WORLD_SIZE"], env["GROUP_WORLD_SIZE"]) == (str(size), "6", "3")
        assert (env["ROLE_RANK"], env["ROLE_WORLD_SIZE"]) == (str(rank), "6")


def test_a_rank_that_is_stopped_when_the_library_has_ended_the_job_is_continued_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed import TCPStore

    agents = importlib.import_module("allready.launch.elastic_agent")
    looks: list[bool] = []
    look = agents.ElasticAgent._has_ended_by_the_library

    def noted(agent: object) -> bool:
        looks.append(look(agent))
        return looks[-1]

    monkeypatch.setattr(agents.ElasticAgent, "_has_ended_by_the_library", noted)
    monkeypatch.setattr(agents, "_HEALTHY_S", 0.05)
    monkeypatch.setattr(agents, "_CONTINUE_S", 0.0)
    stops = "import os, signal\nif os.environ['RANK'] == '1':\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
    plan = plan_of(tmp_path, script(tmp_path, stops))
    with Nodes([plan]) as nodes:
        until(lambda: len(looks) > 3, 60.0)  # rank 1 is stopped and alone, and no word of the library is there
        assert not any(looks)
        assert (stat := read_stat(nodes.started[0][1])) is not None
        assert stat.state is ProcessState.STOPPED
        TCPStore("127.0.0.1", plan.store_port, is_master=False).set(OVER, "")
        assert has_succeeded(nodes.join()[0])


class Words:
    """A store, as far as agents tell each other how their ranks are."""

    def __init__(self, words: dict[str, str]) -> None:
        self.words = dict(words)

    def set(self, key: str, word: str) -> None:
        self.words[key] = word

    def check(self, keys: list[str]) -> bool:
        return all(key in self.words for key in keys)

    def get(self, key: str) -> bytes:
        return self.words[key].encode()


STOPPED_THERE, RUNS_THERE = {"allready/still/1": "stopped"}, {"allready/still/1": ""}
ENDED_THERE = {"allready/through/1": "1", "allready/still/1": ""}


@pytest.mark.parametrize(
    ("there", "ended", "woken"),
    [
        (None, [0], [1, 2]),
        (None, [], []),
        ({}, [0], []),
        (RUNS_THERE, [0], []),
        (STOPPED_THERE, [0], [1, 2]),
        (STOPPED_THERE, [], []),
        ({"allready/still/1": "ended"}, [], [0, 1, 2]),
        (ENDED_THERE, [], [0, 1, 2]),
    ],
)
def test_ranks_are_not_continued_while_others_may_work(
    there: dict[str, str] | None, ended: list[int], woken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank that leaves the job early leaves the same word; who stops the others knows why."""
    agents = importlib.import_module("allready.launch.elastic_agent")
    found: list[int] = []
    agent = agents.ElasticAgent.__new__(agents.ElasticAgent)
    agent._result = SimpleNamespace(pids={0: 70, 1: 71, 2: 72})
    agent._plan = SimpleNamespace(num_nodes=1 if there is None else 2, node_rank=0)
    agent._over_s, agent._told, agent._store, agent._job = None, "", Words(there or {}), None
    agent._ours = SimpleNamespace(wake_up=found.extend)
    state = ProcessState.STOPPED
    monkeypatch.setattr(agents.ElasticAgent, "_has_ended_by_the_library", lambda _: True)
    monkeypatch.setattr(agents, "_CONTINUE_S", 0.0)
    monkeypatch.setattr(agents, "read_stat", lambda _: SimpleNamespace(state=state))
    for _ in range(2):
        agent._continue_stopped(dict.fromkeys(ended))
    assert found == woken
    if there is not None:
        assert agent._store.words["allready/still/0"] == ("ended" if ended else "stopped")
        state = ProcessState.RUNNING  # a person lets one go on: the other node learns it
        agent._continue_stopped(dict.fromkeys(ended))
        assert agent._store.words["allready/still/0"] == ""


GLOO = """
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    t = torch.ones(3) * dist.get_rank()
    dist.all_reduce(t)
    print("sum", int(t[0]), flush=True)
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_gloo_works_through_the_agents_store_attempt_after_attempt(tmp_path: Path) -> None:
    plans = plans_of(tmp_path, script(tmp_path, GLOO), [1, 1])
    for _ in range(2):
        with Nodes(plans) as nodes:
            results = nodes.join(100.0)
        assert all(has_succeeded(r) for r in results.values()), results
        plans = [again(p) for p in plans]
    assert output(tmp_path).count(b"sum 1\n") == 2


def test_a_failing_rank_ends_its_node_and_stop_the_others(tmp_path: Path) -> None:
    code = f"import os, sys\nif os.environ['RANK'] == '1': sys.exit(9)\n{SLEEPS}"
    with Nodes(plans_of(tmp_path, script(tmp_path, code), [2, 1])) as nodes:
        until(lambda: 0 in nodes.results, 60.0)
        first = nodes.results[0]
        assert first.ends[1].exit_code == 9
        assert first.ends[0].signal == "SIGTERM"
        assert first.ended_by_us == {0}
        assert not first.is_stopped
        until(lambda: b"up" in output(tmp_path, 2))
        assert 1 not in nodes.results
        nodes.stops[1].set()
        second = nodes.join()[1]
    assert second.is_stopped
    assert second.ends[2].signal == "SIGTERM"
    assert second.ended_by_us == {2}


def test_there_is_time_to_look_before_living_ranks_are_ended(tmp_path: Path) -> None:
    looks: list[tuple[Mapping[int, ProcessEnd], bytes]] = []

    def look(ends: Mapping[int, ProcessEnd]) -> None:
        until(lambda: b"up" in output(tmp_path, 0))
        looks.append((dict(ends), output(tmp_path, 0)))

    code = f"import os, sys\nif os.environ['RANK'] == '1': sys.exit(9)\n{SLEEPS}"
    with Nodes([plan_of(tmp_path, script(tmp_path, code))], before_stop=look) as nodes:
        nodes.join()
    assert [(list(ends), text) for ends, text in looks] == [([1], b"up\n")]


def test_stop_ends_ranks_within_the_grace(tmp_path: Path) -> None:
    code = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS
    with Nodes([plan_of(tmp_path, script(tmp_path, code), grace_s=0.5)]) as nodes:
        until(lambda: all(b"up" in output(tmp_path, r) for r in range(2)), 60.0)
        begun = Stopwatch()
        nodes.stops[0].set()
        result = nodes.join()[0]
    assert {e.signal for e in result.ends.values()} == {"SIGKILL"}
    assert begun.s < 15.0
    assert result.is_stopped
    assert not has_succeeded(result)


def test_a_store_whose_agent_is_stopped_holds_no_other_agent_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch waits for it without limit: also for whether all ranks have ended, and while the nodes meet."""
    from torch.distributed import TCPStore

    agents = importlib.import_module("allready.launch.elastic_agent")
    monkeypatch.setattr(agents.ElasticAgent._answered, "__defaults__", (0.3,))
    port = free_port()
    pid = os.fork()
    if not pid:
        kept = TCPStore("127.0.0.1", port, 2, is_master=True, wait_for_workers=False)
        while kept:
            time.sleep(60)
    try:
        until(lambda: not is_free(port), 60.0, what=lambda: "the store listens")
        agent = agents.ElasticAgent.__new__(agents.ElasticAgent)
        agent._plan = SimpleNamespace(
            num_nodes=2, node_rank=1, master_addr="127.0.0.1", store_port=port, join_timeout_s=60.0, attempt=0
        )
        agent._handler, agent._job, agent._told = SimpleNamespace(_store=None), None, ""
        agent._result, agent._stop = AttemptResult(), threading.Event()
        agent._open_store()
        agent._store = agent._handler._store
        assert not agent._has_ended_by_the_library()
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.3 s"):
            agent._await_nodes(agent._store, "here", 60.0, is_needed=True)
        assert not agent._has_ended_by_the_library()
        assert not agent._is_all_still(True, has_ended=True)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_stop_ends_the_wait_for_a_node_that_never_comes(tmp_path: Path) -> None:
    plans = plans_of(tmp_path, script(tmp_path, SLEEPS), [1, 1])
    with Nodes(plans[:1]) as nodes:
        until(lambda: not is_free(plans[0].store_port), 60.0, what=lambda: "the store listens")
        begun = Stopwatch()
        nodes.stops[0].set()
        result = nodes.join()[0]
    assert begun.s < 10.0
    assert result.is_stopped
    assert result.pids == {}
    assert is_free(plans[0].store_port)


def test_a_node_that_never_comes_is_named_at_the_deadline(tmp_path: Path) -> None:
    plans = plans_of(tmp_path, script(tmp_path, SLEEPS), [1, 1, 1], join_timeout_s=0.5)
    with Nodes(plans[:2]) as nodes:
        results = nodes.join()
    assert {r.problem_kind for r in results.values()} == {"rendezvous"}
    assert "node 2 did not come" in results[0].problem
    assert all(r.pids == {} for r in results.values())


def test_a_store_that_never_opens_is_told_at_the_deadline_and_stop_ends_the_wait(tmp_path: Path) -> None:
    plans = plans_of(tmp_path, script(tmp_path, SLEEPS), [1, 1], join_timeout_s=0.5)
    with Nodes(plans[1:]) as nodes:
        assert "node 0 did not open the store" in nodes.join()[0].problem
    with Nodes([replace(plans[1], join_timeout_s=600.0)]) as nodes:
        begun = Stopwatch()
        nodes.stops[0].set()
        assert nodes.join()[0].is_stopped
    assert begun.s < 10.0


def test_a_node_that_is_through_waits_for_the_others(tmp_path: Path) -> None:
    code = """
        import os, sys, time
        while os.environ["RANK"] == "1" and not os.path.exists(sys.argv[1] + "/go"): time.sleep(0.02)
    """
    with Nodes(plans_of(tmp_path, script(tmp_path, code), [1, 1])) as nodes:
        until(lambda: len(nodes.groups[0].poll()) == 1 and 1 in nodes.started, 60.0)
        assert not nodes.results
        (tmp_path / "go").touch()
        assert all(has_succeeded(r) and not r.ended_by_us for r in nodes.join().values())


def test_stop_ends_the_wait_of_a_node_that_is_through_and_it_stays_a_success(tmp_path: Path) -> None:
    code = f"import os\nif os.environ['RANK'] == '1':\n    exec({SLEEPS!r})"
    with Nodes(plans_of(tmp_path, script(tmp_path, code), [1, 1])) as nodes:
        until(lambda: len(nodes.groups[0].poll()) == 1 and 1 in nodes.started, 60.0)
        nodes.stops[0].set()
        until(lambda: 0 in nodes.results)
        assert has_succeeded(nodes.results[0])
        assert not nodes.results[0].is_stopped


def test_the_port_is_free_after_every_kind_of_end(tmp_path: Path) -> None:
    port = free_port()
    for code, is_success in (("", True), ("raise SystemExit(1)", False), ("import os; os.kill(os.getpid(), 9)", False)):
        assert has_succeeded(run(tmp_path, code, store_port=port)) == is_success
        assert is_free(port)


def test_a_taken_port_is_called_that(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        result = run(tmp_path, "", store_port=taken.getsockname()[1])
    assert result.problem_kind == "port", result.problem
    assert result.pids == {}


def test_a_program_that_is_not_there_is_called_that(tmp_path: Path) -> None:
    command = RankCommand(target="no-such-program-here", is_program=True)
    with Nodes([plan_of(tmp_path, command)]) as nodes:
        result = nodes.join()[0]
    assert result.problem_kind == "program"
    assert "no-such-program-here" in result.problem


def test_ranks_of_the_store_and_of_the_roll_call_must_agree(tmp_path: Path) -> None:
    result = run(tmp_path, "", first_rank=4, world_size=8)
    assert "the roll call" in result.problem
    assert result.pids == {}


def test_programs_modules_and_macros_run_as_under_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "some_module.py").write_text("import sys\nprint(sys.argv[1:])\n")
    environ = {"PYTHONPATH": str(tmp_path)}
    for command, expected in (
        (RankCommand(target="some_module", arguments=("${local_rank}", "$x"), is_module=True), b"['1', '$x']\n"),
        (RankCommand(target="echo", arguments=("rank", "${local_rank}"), is_program=True), b"rank 1\n"),
        (RankCommand(target=str(tmp_path / "some_module.py"), arguments=("a",), run_path=True), b"['a']\n"),
    ):
        with Nodes([plan_of(tmp_path, command, env=environ)]) as nodes:
            assert has_succeeded(nodes.join()[0])
        assert output(tmp_path, 1).endswith(expected)


def test_virtual_local_ranks_see_one_gpu_each(tmp_path: Path) -> None:
    assert has_succeeded(run(tmp_path, TELL, virtual_local_rank=True, env={"CUDA_VISIBLE_DEVICES": "5,7"}))
    assert [(told(tmp_path, r)["LOCAL_RANK"], told(tmp_path, r)["CUDA_VISIBLE_DEVICES"]) for r in range(2)] == [
        ("0", "5"),
        ("0", "7"),
    ]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be divided")
def test_numa_binding_is_torchs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch chooses the CPUs and wraps the command; here without GPUs, and by `taskset` in numactl's place."""
    binding = pytest.importorskip("torch.numa.binding")
    cpus = sorted(os.sched_getaffinity(0))[:2]

    def of_device(numa_options: object, **index: int) -> set[int]:
        return {cpus[at] for at in index.values()}

    monkeypatch.setattr(binding, "_get_logical_cpus_to_bind_to", of_device)
    program = tmp_path / "numactl"
    program.write_text('#!/bin/sh\nlist=${1#--physcpubind=}; shift; exec taskset -c "$list" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code = "import os\nprint(sorted(os.sched_getaffinity(0)), flush=True)\n"
    assert has_succeeded(run(tmp_path, code, numa_binding="node"))
    assert [output(tmp_path, rank) for rank in range(2)] == [f"[{cpu}]\n".encode() for cpu in cpus]


@pytest.mark.slow
def test_numa_binding_that_torch_cannot_do_has_torchs_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binding = pytest.importorskip("torch.numa.binding")

    def fails(**_: object) -> set[int]:
        raise RuntimeError("no such GPU")

    monkeypatch.setattr(binding, "_get_validated_logical_cpus_to_bind_to", fails)
    result = run(tmp_path, "print('never')", numa_binding="node")
    assert (result.problem_kind, "no such GPU" in result.problem) == ("program", True)
    monkeypatch.delattr(binding, "_maybe_wrap_command_args_with_numa_binding")
    result = run(tmp_path, "print('never')", numa_binding="node")
    assert (result.problem_kind, "cannot do that" in result.problem) == ("program", True)


def test_what_record_writes_about_an_exception_is_brought_back(tmp_path: Path) -> None:
    code = """
        from torch.distributed.elastic.multiprocessing.errors import record
        @record
        def main():
            raise ValueError("shard 17")
        main()
    """
    result = run(tmp_path, code, nproc=1)
    assert "ValueError: shard 17" in json.loads(result.errors[0])["message"]["message"]


def test_a_rank_stopped_by_sigstop_is_no_end(tmp_path: Path) -> None:
    with Nodes([plan_of(tmp_path, script(tmp_path, SLEEPS), nproc=1)]) as nodes:
        until(lambda: b"up" in output(tmp_path), 60.0)
        os.kill(nodes.started[0][0], signal.SIGSTOP)
        time.sleep(0.3)
        assert not nodes.results
        nodes.stops[0].set()
        assert nodes.join()[0].ends[0].signal == "SIGTERM"


BROKEN = """
import sys, threading
from pathlib import Path
from allready.launch import run_ranks
from allready.launch.plan import AttemptPlan
from allready.launch.request import RankCommand
from allready.launch.workers import WorkerGroup
plan = AttemptPlan(command=RankCommand(target="x"), num_nodes=1, node_rank=0, nproc_per_node=1, log_dirs=(Path("log"),))
group = WorkerGroup()
result = run_ranks.run_ranks(plan, group, over_torch=True, stop=threading.Event())
group.close()
print(result.problem_kind, result.problem)
"""


def test_a_broken_installation_of_torch_is_told_and_not_raised(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    done = subprocess.run(
        [sys.executable, "-c", BROKEN], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith("torch ImportError: libcudart.so.12"), done.stdout + done.stderr
