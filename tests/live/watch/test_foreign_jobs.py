"""Jobs that were started without allready, by torchrun, by hand, with JAX."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from allready.evidence.ras import read_ras
from allready.evidence.stacks.read import read_stacks
from allready.judging.assemble import assemble
from allready.judging.engine import finding_of
from allready.judging.loading import load
from allready.live.node.stacks import spy_program
from allready.live.watch.find import found_jobs, is_agent, job_of_pids, rank_of, unranked
from allready.live.watch.foreign import ForeignJob, gpu_of, own_hosts, remarks_of, with_ras
from allready.live.watch.metrics import exposition
from allready.model import Fleet, NodeStatus, RankStatus, World
from tests.agent.jobs import LOOP, free_port, wait_for
from tests.fleets import check
from tests.live.node.test_ras import SERVER
from tests.live.watch.test_run_jobs import watch

pytestmark = [pytest.mark.torch, pytest.mark.jobs]

SLEEP = "import sys, time; print('on', flush=True); time.sleep(120)"


@contextmanager
def started(*command: str, env: Mapping[str, str] | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A process group that ends with the test."""
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
    )
    try:
        yield child
    finally:
        child.terminate()  # torchrun's ranks have sessions of their own: it ends them
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate(timeout=10)


def jobs_with(pids: set[int]) -> list[Any]:
    return [found for found in found_jobs() if pids & set(found.job.pids)]


@pytest.mark.thorough
def test_torchrun_ranks_are_one_job_with_stacks_and_an_honest_verdict(tmp_path: Path) -> None:
    script, touch = tmp_path / "train.py", tmp_path / "runs"
    script.write_text(LOOP)
    run_id = f"w{os.getpid()}-{time.monotonic_ns()}"
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
        "--rdzv-id",
        run_id,
        str(script),
    ]
    # As in a pod of a PyTorchJob, torchrun itself has a rank in its environment: that of its node.
    env = {"STEPS": "4000", "TOUCH": str(touch), "RANK": "0", "WORLD_SIZE": "1"}
    with started(*command, env=env) as launcher:
        wait_for(touch.exists, 60.0)
        arguments = ("--once", "--json", "-", *(("--stacks",) if spy_program() else ()))
        done = watch(run_id, *arguments, cwd=tmp_path)
        assert done.returncode == 3, done.stderr
        state = json.loads(done.stdout)
        assert not jobs_with({launcher.pid})
        ranks = state["statuses"][0]["ranks"]
        assert [r["rank"] for r in ranks] == [0, 1]
        assert all(r["cpu_share"] is not None for r in ranks)
        assert state["statuses"][0]["sockets"]
        assert "no operations" in state["notes"][0]
        assert state["verdict"] is None
        if spy_program():
            assert all("train.py" in state["stacks"][str(r)] for r in (0, 1)), done.stdout
            assert Path(state["stacks_folder"], "sockets.json").exists()
        # By a rank's pid it is the same job.
        by_pid = watch(str(ranks[1]["pid"]), "--once", cwd=tmp_path)
        assert run_id in by_pid.stdout


def test_a_job_started_by_hand_is_found_through_its_shells(tmp_path: Path) -> None:
    port = str(free_port())
    shell = f'"{sys.executable}" -c "import torch; {SLEEP}"; true'
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(started("bash", "-c", shell, env={**env, "RANK": str(rank)})) for rank in range(2)
        ]
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        (found,) = [f for f in found_jobs() if f.job.master == f"127.0.0.1:{port}"]
        assert sorted(found.members) == [0, 1]
        assert not {c.pid for c in children} & set(found.job.pids)  # the shells
        assert found.job.world_size == 2
        # Two jobs of one id must be distinguished by pid; a shell with the variables is none.
        with started("sleep", "60", env={**env, "RANK": "1"}) as other:
            assert not jobs_with({other.pid})


def test_what_py_spy_would_show_is_said_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with started(sys.executable, "-c", SLEEP) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for program, is_said in ((None, True), ("/bin/true", False)):
            monkeypatch.setattr("allready.live.watch.outside.spy_program", lambda program=program: program)
            found = job_of_pids((child.pid,))
            assert found is not None
            job = ForeignJob(found.job, found)
            try:
                state = job.sample()
            finally:
                job.close()
            assert state is not None
            said = [note.text("en") for note in state.notes if "py-spy" in note.text("en")]
            assert [f"{sys.executable} -m pip install py-spy" in text for text in said] == [True] * is_said


def test_a_stopped_rank_is_a_verdict_and_diagnose_reads_it_from_the_folder(tmp_path: Path) -> None:
    with started(sys.executable, "-c", SLEEP) as one, started(sys.executable, "-c", SLEEP) as two:
        for child in (one, two):
            assert child.stdout is not None
            child.stdout.readline()
        named = f"{one.pid},{two.pid}"
        os.kill(two.pid, signal.SIGSTOP)
        done = watch(named, "--once", "--json", "-", "--stacks", cwd=tmp_path)
        state = json.loads(done.stdout)
        assert (done.returncode, state["status"]) == (1, "fault")
        assert (state["verdict"]["code"], state["verdict"]["culprits"]["ranks"]) == ("LIV001", [1])
        assert f"kill -CONT {two.pid}" in state["verdict"]["remedy"]
        os.kill(two.pid, signal.SIGCONT)
        after = json.loads(watch(named, "--once", "--json", "-", cwd=tmp_path).stdout)
        assert (after["status"], after["verdict"]) == (None, None), "that all is well cannot be seen from outside"
    run = assemble(
        [read_stacks(p.read_bytes(), str(p)) for p in sorted(Path(state["stacks_folder"]).rglob("stacks.txt"))]
    )
    [hit] = check("HNG016", Fleet(world=World(num_nodes=1, world_size=2), run_evidence=run)).hits
    assert hit.culprits.ranks == (1,)
    assert [r.command for r in finding_of(load()["HNG016"], hit).remedies[1:]] == [f"kill -CONT {two.pid}"]


def test_jax_processes_tell_their_number_or_are_named_by_pid(tmp_path: Path) -> None:
    code = "import jaxlib.xla_client\n" + SLEEP
    port = str(free_port())
    told = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
    with started(sys.executable, "-c", code, env=told) as one, started(sys.executable, "-c", code) as two:
        for child in (one, two):
            assert child.stdout is not None
            assert child.stdout.readline() == "on\n"
        (found,) = jobs_with({one.pid})
        assert (found.job.framework, found.job.master, list(found.members)) == ("jax", f"127.0.0.1:{port}", [1])
        # The other one gave its number as an argument, if it has one: no rank can see it.
        assert not jobs_with({two.pid})
        assert two.pid in unranked()
        assert one.pid not in unranked()
        done = watch(f"{two.pid},{one.pid}", "--once", "--json", "-", cwd=tmp_path)
        state = json.loads(done.stdout)
        assert [(r["rank"], r["pid"]) for r in state["statuses"][0]["ranks"]] == [(0, two.pid), (1, one.pid)]
        assert "numbered in the order given" in state["notes"][0]
    assert job_of_pids((two.pid,)) is None  # gone


@pytest.mark.thorough
def test_several_jobs_are_a_choice_and_not_a_guess(tmp_path: Path) -> None:
    code = SLEEP
    env = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    run_id = f"twins{os.getpid()}"
    with contextlib.ExitStack() as stack:
        pair = [
            stack.enter_context(
                started(sys.executable, "-c", code, env={**env, "MASTER_PORT": str(p), "TORCHELASTIC_RUN_ID": run_id})
            )
            for p in (1111, 2222)
        ]
        for child in pair:
            assert child.stdout is not None
            child.stdout.readline()
        done = watch(run_id, "--once", cwd=tmp_path)
        assert done.returncode == 2
        assert all(f"allready watch {child.pid}" in done.stderr for child in pair)
        assert watch(str(pair[0].pid), "--once", cwd=tmp_path).returncode == 3
        pair[0].kill()
        pair[0].wait(5)
        assert watch(run_id, "--once", cwd=tmp_path).returncode == 3


def test_what_a_rank_starts_is_no_job_of_its_own() -> None:
    env = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "3333"}
    # A rank of `allready run` takes its own variables out before the script may start something.
    code = (
        "import os, subprocess, sys, time; os.environ.pop('ALLREADY_RANK_DIR'); "
        f"subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); time.sleep(120)"
    )
    with started(sys.executable, "-c", code, env={**env, "ALLREADY_RANK_DIR": "/nowhere"}) as rank:
        assert rank.stdout is not None
        rank.stdout.readline()
        assert not [f for f in found_jobs() if f.job.master == "127.0.0.1:3333"]
    with started(sys.executable, "-c", code.replace("'ALLREADY_RANK_DIR'", "'X', None"), env=env) as rank:
        assert rank.stdout is not None
        rank.stdout.readline()
        (found,) = [f for f in found_jobs() if f.job.master == "127.0.0.1:3333"]
        assert found.job.pids == (rank.pid,)


def test_ras_gives_operations_and_the_view_of_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4444"}
    with started(sys.executable, "-c", SERVER, "0", "json", "0", env=env) as rank:
        assert rank.stdout is not None
        port = int(rank.stdout.readline())
        monkeypatch.setattr("allready.live.node.ras.address_of", lambda _: ("127.0.0.1", port))
        (found,) = [f for f in found_jobs() if f.job.master == "127.0.0.1:4444"]
        watched = ForeignJob(found.job, found)
        try:
            state = watched.sample(ras_s=5.0)
            assert state is not None
            (status,) = state.statuses
            assert [(m.label, m.enqueued) for m in status.ranks[0].groups] == [("nccl 0xabc", 5)]
            assert "operations_total" in exposition(state)
            rank.kill()
            wait_for(lambda: watched.sample() is None, 10.0)
        finally:
            watched.close()


def test_counters_of_another_host_with_the_same_pid_are_not_taken() -> None:
    def answer(host: str) -> Any:
        ranks = [
            {"rank": n, "host": h, "pid": 7, "status": {}, "collective_counts": {"AllReduce": c}}
            for n, h, c in ((0, host, 9), (1, "10.255.0.9", 4))
        ]
        text = json.dumps(
            {
                "nccl_version": "2.28",
                "communicators_count": 1,
                "communicators": [{"hash": "0x1", "size": 3, "ranks": ranks, "missing_ranks": [{"rank": 2, "pid": 7}]}],
            }
        )
        (one,) = read_ras(text.encode(), "ras").ras
        return one

    status = NodeStatus(node_rank=0, ranks=(RankStatus(rank=0, pid=7),))
    here = with_ras(status, answer("127.0.0.1"), own_hosts())
    assert [m.enqueued for m in here.ranks[0].groups] == [9]
    assert with_ras(status, answer("10.255.0.8"), own_hosts()).ranks[0].groups == ()
    (note,) = remarks_of(answer("127.0.0.1"))
    assert (
        note.text("en") == "NCCL RAS: nccl 0x1, 3 ranks: no answer of 2 (its own numbers); the others up to operation 9"
    )


def test_metrics_of_such_a_job_say_nothing_of_operations_or_faults() -> None:
    env = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "5555"}
    with started(sys.executable, "-c", SLEEP, env=env):
        found = wait_for(lambda: [f for f in found_jobs() if f.job.master == "127.0.0.1:5555"], 10.0)[0]
        watched = ForeignJob(found.job, found)
        try:
            state = watched.sample()
            assert state is not None
            text = exposition(state)
        finally:
            watched.close()
    assert "allready_up" in text
    assert "allready_rank_memory_bytes" in text
    assert "operations_total" not in text
    assert "allready_fault" not in text


def test_ranks_and_gpus_from_environments_that_cannot_be_true() -> None:
    assert rank_of({"RANK": "1", "WORLD_SIZE": "2"}) == (1, 2)
    assert rank_of({"RANK": "-1", "WORLD_SIZE": "2"}) is None
    assert rank_of({"RANK": "9" * 5000, "WORLD_SIZE": "2"}) is None
    assert rank_of({"JAX_PROCESS_ID": "2", "JAX_NUM_PROCESSES": "2"}) is None
    assert rank_of({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}) == (3, 4)
    assert rank_of({"RANK": "²", "WORLD_SIZE": "2"}) is None
    assert gpu_of({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,6"}) == 6
    assert gpu_of({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "GPU-1234,GPU-5678"}) is None
    assert gpu_of({"LOCAL_RANK": "3"}) == 3
    assert gpu_of({}) is None


def test_knows_its_own_program(tmp_path: Path) -> None:
    for words, yes in (
        (["python3", "/x/bin/allready", "run", "t.py"], True),
        (["python3", "-m", "allready", "watch"], True),
        (["python3", "-u", "-m", "allready.run"], True),
        (["python3", "train.py", "--name", "allready"], False),
    ):
        (tmp_path / "1").mkdir(exist_ok=True)
        (tmp_path / "1" / "cmdline").write_bytes(b"\0".join(w.encode() for w in words) + b"\0")
        assert is_agent(1, str(tmp_path)) is yes


RAY_WORKER = "import torch, time; print('on', flush=True); time.sleep(120)"


@pytest.mark.slow
def test_workers_of_ray_train_are_one_job_although_their_environment_has_no_rank() -> None:
    """Ray renames its processes and sets their ranks after their start; the title is what can be seen."""
    number = f"{time.monotonic_ns():x}"

    def worker(title: str, job: str) -> tuple[str, ...]:
        # Python finds its packages by its own name, which is another one here.
        command = f'RAY_JOB_ID={job} PYTHONPATH={":".join(filter(None, sys.path))} exec -a "$0" "$1" -c "$2"'
        return ("bash", "-c", command, title, sys.executable, RAY_WORKER)

    with (
        started(*worker("ray::RayTrainWorker.run_train_fn", number)) as first,
        started(*worker("ray::_RayTrainWorker__execute.get_next", number)) as second,
        started(*worker("ray::RayTrainWorker", number + "b")) as other,
        started(*worker("ray::IDLE", number)) as idle,
    ):
        pids = {child.pid for child in (first, second, other, idle)}
        for child in (first, second, other, idle):
            assert child.stdout is not None
            assert child.stdout.readline() == "on\n"
        found = {job.job.job_id: job for job in jobs_with(pids)}
        assert found.keys() == {f"ray-{number}", f"ray-{number}b"}
        job = found[f"ray-{number}"]
        assert {pid for pid, _ in job.members.values()} == {first.pid, second.pid}
        assert job.job.is_numbered
        shown = watch(f"ray-{number}", "--once", cwd=Path.cwd())
        assert str(first.pid) in shown.stdout
        assert str(second.pid) in shown.stdout
