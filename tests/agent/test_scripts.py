"""Users' scripts run unchanged under `allready run`: as under torchrun or plain Python, and no rank is accused.

The scripts are those of examples/run and a few made here.  While a job runs its report is read all the time: it may say
who is waited for, never that there is a fault.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.agent.jobs import Job, Node, free_port, wait_for

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "run"
CHATTER = re.compile(r"\[Gloo\]|^step \d+ after ")
"""Lines of libraries, and lines that tell a time."""
JAX = {"JAX_PLATFORMS": "cpu"}
NO_TORCH = ("--framework", "jax")
"""The agent itself needs no torch then: for scripts to which it makes no difference."""
DEADLINE_S = 240.0
slow = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass
class Seen:
    """What the report of a running job said: each verdict once, in order."""

    node: Node
    statuses: list[str] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)

    def look(self) -> None:
        """Read the report as it is now."""
        with contextlib.suppress(OSError):
            report = json.loads((self.node.report_dir / "report.json").read_text())  # whole at any time
            if not self.statuses or self.statuses[-1] != report["status"]:
                self.statuses.append(report["status"])
            if report["verdict"] and report["verdict"] not in self.verdicts:
                self.verdicts.append(report["verdict"])

    def through(self, expected: int = 0) -> "Seen":
        """Wait for the job's end, and read meanwhile.  The exit code must be `expected`."""
        over = threading.Event()

        def follow() -> None:
            while not over.wait(0.1):
                self.look()

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            code = self.node.wait(DEADLINE_S)
        finally:
            over.set()
            thread.join()
        self.look()
        assert code == expected, self.node.out + self.node.err
        return self

    def blames_nobody(self) -> "Seen":
        """No fault at any time, and none at the end."""
        told = json.dumps(self.verdicts, indent=1)
        assert "fault" not in self.statuses, told
        assert self.statuses[-1] == "healthy", f"{self.statuses} {told}"
        assert "✗" not in self.node.err
        return self

    def said(self, rank: int = 0, attempt: int = 0) -> str:
        """What a rank wrote."""
        return (self.node.report_dir / f"attempt{attempt}/node0/rank{rank}/out.log").read_text()


def run(job: Job, *arguments: str, ranks: int = 2, env: Mapping[str, str] | None = None) -> Seen:
    """`allready run` to its end, without a fault."""
    node = job.start("--nproc-per-node", str(ranks), *arguments, env=env)
    return Seen(node).through().blames_nobody()


def results(text: str) -> list[str]:
    """Lines that two runs of the same script have in common."""
    return [line for line in text.splitlines() if not CHATTER.search(line)]


def under_torchrun(job: Job, *arguments: str, ranks: int = 2, env: Mapping[str, str] | None = None) -> list[list[str]]:
    """Per rank: its lines of standard output under torch's own launcher."""
    logs = job.folder / "torchrun"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(ranks),
            "--log-dir",
            str(logs),
            "--redirects",
            "3",
            *arguments,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd=job.folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
    )
    errors = "".join(path.read_text() for path in logs.glob("*/attempt_0/*/stderr.log"))
    assert done.returncode == 0, done.stderr + errors
    return [results(next(logs.glob(f"*/attempt_0/{rank}/stdout.log")).read_text()) for rank in range(ranks)]


def said_on_stdout(seen: Seen, rank: int, expected: Sequence[str]) -> list[str]:
    """A rank's lines; what it wrote to standard error is in the same file and is left out where torchrun's is not."""
    wanted = set(expected)
    return [line for line in results(seen.said(rank)) if line in wanted]


def same_as_torchrun(job: Job, *arguments: str, ranks: int = 2, env: Mapping[str, str] | None = None) -> Seen:
    """Run under both; every rank says the same."""
    seen = run(job, *arguments, ranks=ranks, env=env)
    expected = under_torchrun(job, *arguments, ranks=ranks, env=env)
    assert all(expected)
    for rank in range(ranks):
        assert said_on_stdout(seen, rank, expected[rank]) == expected[rank], seen.said(rank)
    return seen


def example(name: str) -> str:
    """A script of examples/run, where it lies."""
    return str(EXAMPLES / name)


# Without torch: a second or two each.


def test_flags_are_the_scripts_own_its_input_is_at_its_end_and_nothing_is_said_besides(job: Job) -> None:
    script = job.script(
        "import sys\nprint(sys.argv[1:])\nprint(repr(sys.stdin.read()))\n"
        "try:\n    input('? ')\nexcept EOFError:\n    print('eof')\n"
    )
    flags = ["--nproc-per-node", "7", "--lr=1e-3", "-vv", "a b"]
    flags += [word for flag in ("--report", "--jax") for word in (flag, "x", f"{flag}=y")]  # ours begin with these
    flags += ["--", "--json"]
    seen = run(job, script, *flags)
    for rank in (0, 1):
        assert seen.said(rank) == f"{flags}\n''\n? eof\n"
    assert sorted(seen.node.out.splitlines()) == [
        f"[rank{rank}] {words}" for rank in (0, 1) for words in ("''", "? eof", flags)
    ]
    ours = seen.node.err.splitlines()  # OMP_NUM_THREADS is set here; where it is not, one more line says so
    assert [line.partition(": ")[0] for line in ours] == ["allready run"] * 2
    assert "live view: allready watch" in ours[0]
    assert "the job ended well after" in ours[1]
    assert seen.verdicts == []


def test_lines_reach_the_terminal_while_the_job_runs(job: Job) -> None:
    script = job.script("import time\nprint('first')\ntime.sleep(30)\nprint('last')\n")
    node = job.start("--nproc-per-node", "2", "--grace", "2", *NO_TORCH, script)
    assert node.process.stdout
    assert sorted(node.process.stdout.readline() for _ in range(2)) == ["[rank0] first\n", "[rank1] first\n"]
    node.process.send_signal(signal.SIGTERM)
    assert node.wait() == 143
    assert "last" not in node.out  # it was far from over


@pytest.mark.slow
def test_a_module_of_a_package_finds_its_neighbours(job: Job) -> None:
    package = job.folder / "trainer"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "data.py").write_text("SIZE = 3\n")
    (package / "main.py").write_text(
        "import sys\nfrom .data import SIZE\nprint(__name__, __package__, SIZE, sys.argv[1:])\n"
    )
    assert run(job, "-m", "trainer.main", "--x", "1", ranks=1).said() == "__main__ trainer 3 ['--x', '1']\n"


def test_classes_of_the_script_pickle_and_reach_child_processes_by_every_start_method(job: Job) -> None:
    script = job.script(
        "import multiprocessing as mp, pickle, os\n"
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Sample:\n    x: int\n"
        "def double(sample):\n    return Sample(2 * sample.x)\n"
        "if __name__ == '__main__':\n"
        "    sample = pickle.loads(pickle.dumps(Sample(4)))\n"
        "    assert type(sample) is Sample and Sample.__module__ == '__main__'\n"
        "    for method in ('fork', 'spawn', 'forkserver'):\n"
        "        with mp.get_context(method).Pool(2) as pool:\n"
        "            print(method, pool.map(double, [sample, Sample(5)]))\n"
    )
    seen = run(job, *NO_TORCH, script, env={"PYTHONWARNINGS": "ignore"})
    plain = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert len(plain.stdout.splitlines()) == 3
    assert seen.said(0) == seen.said(1) == plain.stdout


def test_progress_bars_reach_the_terminal_and_the_log(job: Job) -> None:
    script = job.script(
        "import sys, time\n"
        "for i in range(11):\n"  # as tqdm does it: carriage returns on standard error, a line's end only at the end
        "    sys.stderr.write(f'\\rloading: {10 * i:3d}%|{\"#\" * i:<10}| {i}/10')\n"
        "    sys.stderr.flush(); time.sleep(0.02)\n"
        "sys.stderr.write('\\n'); print('loaded')\n"
    )
    seen = run(job, *NO_TORCH, script)
    for rank in (0, 1):
        written = (seen.node.report_dir / f"attempt0/node0/rank{rank}/out.log").read_bytes()
        assert written.count(b"\r") == 11
        assert written.endswith(b"10/10\nloaded\n")
        assert f"[rank{rank}] loaded\n" in seen.node.out
    shown = seen.node.out + seen.node.err
    assert shown.count("100%|##########| 10/10") == 2
    assert all(line.startswith(("[rank", "allready run:")) for line in shown.splitlines() if line)


def test_a_script_may_use_sigusr1_and_save_on_sigterm(job: Job) -> None:
    script = job.script(
        "import os, signal, sys, time\n"
        "state = {'step': 0, 'stop': False}\n"
        "def stop(number, frame): state['stop'] = True\n"
        "def tell(number, frame): print('usr1 at', state['step'] > 0, flush=True)\n"
        "signal.signal(signal.SIGTERM, stop); signal.signal(signal.SIGUSR1, tell)\n"
        "print('pid', os.getpid(), flush=True)\n"
        "while not state['stop']:\n    state['step'] += 1; time.sleep(0.01)\n"
        "time.sleep(1.5)\n"  # a checkpoint takes its time
        "open(sys.argv[1] + os.environ['RANK'], 'w').write('saved')\n"
        "print('saved', flush=True)\n"
    )
    node = job.start("--nproc-per-node", "2", "--grace", "20", script, str(job.folder / "checkpoint"))
    seen = Seen(node)

    def both(word: str) -> bool:
        with contextlib.suppress(OSError):
            return all(word in seen.said(rank) for rank in (0, 1))
        return False

    wait_for(lambda: both("pid"))
    for rank in (0, 1):
        os.kill(int(seen.said(rank).split()[1]), signal.SIGUSR1)
    wait_for(lambda: both("usr1 at True"))
    node.process.send_signal(signal.SIGTERM)
    seen.through(expected=143)
    assert "fault" not in seen.statuses, seen.verdicts
    assert [(job.folder / f"checkpoint{rank}").read_text() for rank in (0, 1)] == ["saved", "saved"]
    assert both("saved\n")


# With torch.  One of each kind here; the others are slow.


def test_ddp_trains_as_under_torchrun(job: Job) -> None:
    seen = same_as_torchrun(job, example("ddp.py"), "--steps", "30", "--lr", "0.1")
    assert "weights" in seen.said(0)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_loader_workers_are_nobodys_fault(job: Job, start: str) -> None:
    env = {"PYTHONWARNINGS": "ignore"}
    same_as_torchrun(job, example("dataloader.py"), "--context", start, "--workers", "2", env=env)


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("eager", marks=slow),
        pytest.param("aot_eager", marks=slow),
        pytest.param("inductor", marks=[*slow, pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")]),
    ],
)
def test_compilation_is_not_a_hang(job: Job, backend: str, tmp_path: Path) -> None:
    # Each launcher compiles anew, so that the first step is slow in both.
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    seen = run(job, example("compiled.py"), "--backend", backend, env=env)
    if backend != "eager":
        expected = under_torchrun(job, example("compiled.py"), "--backend", backend, env=env)
        assert [said_on_stdout(seen, rank, expected[rank]) for rank in (0, 1)] == expected
    assert re.search(r"rank 1 weights \d+\.\d+", seen.said(1))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fsdp_trains_as_under_torchrun(job: Job) -> None:
    same_as_torchrun(job, example("fsdp.py"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hugging_face_trainer_trains_as_under_torchrun(job: Job, tmp_path: Path) -> None:
    if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("accelerate") is None:
        pytest.skip("pip install transformers accelerate, then this test runs")
    env = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    seen = run(job, example("hf_trainer.py"), "--output", str(tmp_path / "a"), env=env)
    expected = under_torchrun(job, example("hf_trainer.py"), "--output", str(tmp_path / "b"), env=env)
    for rank in (0, 1):
        last = next(line for line in expected[rank] if line.startswith(f"rank {rank} of 2 eval_loss"))
        assert last in seen.said(rank).splitlines()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(p.name for p in (tmp_path / "b").iterdir())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_script_may_spawn_its_own_ranks(job: Job) -> None:
    seen = run(job, example("spawns.py"), ranks=1)
    done = subprocess.run(
        [sys.executable, example("spawns.py")], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    expected = sorted(results(done.stdout))
    assert len(expected) == 3
    assert sorted(said_on_stdout(seen, 0, expected)) == expected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_preempted_job_saves_and_goes_on_from_there(job: Job) -> None:
    arguments = ("--nproc-per-node", "2", "--grace", "30", example("saves_on_sigterm.py"), "--folder", str(job.folder))
    seen = Seen(job.start(*arguments))

    def begins_with(found: Seen, step: str) -> bool:
        with contextlib.suppress(OSError):
            return all(f"begins at step {step}" in found.said(rank) for rank in (0, 1))
        return False

    wait_for(lambda: begins_with(seen, "0"), 120.0)
    for rank in (0, 1):
        pid = re.search(r"\(pid (\d+)\)", seen.said(rank))
        assert pid
        os.kill(int(pid[1]), signal.SIGUSR1)
    wait_for(lambda: all("is at step" in seen.said(rank) for rank in (0, 1)), 30.0)
    seen.node.process.send_signal(signal.SIGTERM)
    seen.through(expected=143)
    assert "fault" not in seen.statuses, seen.verdicts
    assert all("saved and leaves" in seen.said(rank) for rank in (0, 1))
    step = int((job.folder / "step.txt").read_text())
    again = Seen(job.start(*arguments, "--steps", str(step + 20))).through().blames_nobody()
    assert begins_with(again, str(step + 1))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_error_kept_by_torchelastics_record_is_the_verdict(job: Job) -> None:
    script = job.script(
        "import os\nfrom torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n"
        "    if os.environ['RANK'] == '1': raise ValueError('shard 17 is empty')\n"
        "    import time; time.sleep(60)\n"
        "main()\n"
    )
    seen = Seen(job.start("--nproc-per-node", "2", "--grace", "2", script)).through(expected=1)
    verdict = seen.node.report()["verdict"]
    assert (verdict["fault_class"], verdict["culprits"]["ranks"]) == ("DEAD", [1])
    assert "ValueError: shard 17 is empty" in verdict["sentence"]


# JAX


def test_jax_pmap_needs_no_arguments(job: Job) -> None:
    seen = run(job, "--framework", "jax", example("jax_pmap.py"), env=JAX)
    found = [re.search(r"process (\d) of 2, 2 devices, (.*)", seen.said(rank)) for rank in (0, 1)]
    assert [match and match[1] for match in found] == ["0", "1"]
    assert found[0]
    assert found[1]
    assert found[0][2] == found[1][2]


def test_jax_processes_of_two_nodes_meet_through_their_agents(job: Job) -> None:
    script = job.script("import jax\njax.distributed.initialize()\nprint('COUNT', jax.process_count(), flush=True)\n")
    nodes = [job.node(n, *NO_TORCH, script, env=JAX) for n in (0, 1)]
    assert [node.wait(DEADLINE_S) for node in nodes] == [0, 0], nodes[0].err + nodes[1].err
    assert ["COUNT 2" in node.out for node in nodes] == [True, True]


def test_a_jax_process_that_never_comes_is_named_in_the_log_of_the_other(job: Job) -> None:
    script = job.script(
        "import os, time\nif os.environ['RANK'] == '1':\n    time.sleep(1000)\n"
        "import jax\njax.distributed.initialize()\n"
    )
    nodes = [
        job.node(n, *NO_TORCH, "--jax-attempts", "1", "--jax-timeout", "3", "--grace", "2", script, env=JAX)
        for n in (0, 1)
    ]
    assert [node.wait(DEADLINE_S) for node in nodes] == [1, 1]
    said = (nodes[0].report_dir / "attempt0/node0/rank0/out.log").read_text()
    assert "is missing, 1 of 2 are here" in said
    assert "after 1 attempt (" in said


@pytest.mark.slow
def test_jax_needs_no_diagnosis_either(job: Job) -> None:
    node = job.start("--nproc-per-node", "2", "--no-diagnosis", example("jax_pmap.py"), env=JAX)
    assert node.wait(DEADLINE_S) == 0, node.out + node.err
    assert sorted(re.findall(r"process (\d) of 2, 2 devices", node.out)) == ["0", "1"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_jax_shard_map_gives_what_processes_started_by_hand_give(job: Job) -> None:
    seen = run(job, example("jax_shard_map.py"), env=JAX)  # that it is JAX is seen in the script
    address = f"127.0.0.1:{free_port()}"
    children = [
        subprocess.Popen(
            [
                sys.executable,
                example("jax_shard_map.py"),
                "--coordinator",
                address,
                "--processes",
                "2",
                "--process",
                str(process),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **JAX},
            start_new_session=True,
        )
        for process in (0, 1)
    ]
    try:
        expected = [results(child.communicate(timeout=DEADLINE_S)[0]) for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait(10)
    assert [child.returncode for child in children] == [0, 0]
    assert all(expected)
    assert [said_on_stdout(seen, rank, expected[rank]) for rank in (0, 1)] == expected


# Phases that look like hangs

PHASES = ("--steps", "40", "--step-s", "0.05", "--first-step-s", "0.5")


def phases(job: Job, *arguments: str) -> Seen:
    """examples/run/phases.py."""
    seen = run(job, example("phases.py"), *PHASES, *arguments)
    assert all(f"rank {rank} is through" in seen.said(rank) for rank in (0, 1))
    return seen


@pytest.mark.slow
def test_a_slow_first_step_an_evaluation_and_a_rank_that_saves_are_no_faults(job: Job) -> None:
    phases(job, "--steps", "20", "--evaluation-s", "3", "--saving-s", "4", "--late-s", "2")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_evaluation_without_collectives_is_no_fault(job: Job) -> None:
    phases(job, "--evaluation-s", "20", "--saving-s", "0", "--late-s", "0")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rank_that_comes_late_is_waited_for(job: Job) -> None:
    phases(job, "--evaluation-s", "0", "--saving-s", "0", "--late-s", "15")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rank_that_saves_while_all_wait_is_named_and_not_accused(job: Job) -> None:
    seen = phases(job, "--evaluation-s", "0", "--saving-s", "15", "--late-s", "0")
    assert "waiting" in seen.statuses
    named = [verdict for verdict in seen.verdicts if verdict["culprits"]["ranks"]]
    assert named
    assert {tuple(verdict["culprits"]["ranks"]) for verdict in named} == {(0,)}
    assert "rank 0" in named[-1]["sentence"]
    assert "rank 0" in seen.node.err


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hang_after_ends_the_patience(job: Job) -> None:
    arguments = (*PHASES, "--evaluation-s", "0", "--saving-s", "60", "--late-s", "0")
    node = job.start(
        "--nproc-per-node",
        "2",
        "--hang-after",
        "5",
        "--on-hang",
        "abort",
        "--grace",
        "2",
        example("phases.py"),
        *arguments,
    )
    seen = Seen(node)
    node.wait(DEADLINE_S)
    seen.look()
    verdict = node.report()["verdict"]
    assert node.process.returncode != 0
    assert verdict["culprits"]["ranks"] == [0]
