"""Real mpirun and a real Slurm of two nodes on this machine: what they set, bind and end is what we read."""

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clock import Deadline, until

ALLREADY = f"{sys.executable} -m allready"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CPUS = sorted(os.sched_getaffinity(0))
ROOT = os.geteuid() == 0
DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo")
LIMIT_S = 120.0
SHOW = """
import os
print("RANK", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "cpus", sorted(os.sched_getaffinity(0)), flush=True)
"""
WAIT = """
import pathlib, sys, time
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


def find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


needs_mpirun = pytest.mark.skipif(find("mpirun") is None, reason="mpirun is not installed (openmpi-bin)")
needs_slurm = pytest.mark.skipif(
    not ROOT or any(find(name) is None for name in DAEMONS), reason="a Slurm of our own needs root, slurm-wlm and munge"
)
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU")


def ranks_in(text: str) -> dict[int, tuple[int, list[int]]]:
    """Rank -> world size and CPUs, of what `SHOW` prints."""
    rows = re.findall(r"RANK (\d+) of (\d+) cpus (\[[\d, ]*\])", text)
    return {int(rank): (int(size), json.loads(cpus)) for rank, size, cpus in rows}


@needs_mpirun
@two_cpus
@pytest.mark.torch
@pytest.mark.jobs
def test_ranks_under_mpirun_have_the_cores_that_it_bound_their_tasks_to(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(SHOW)
    done = subprocess.run(
        ["mpirun", *(["--allow-run-as-root"] if ROOT else []), "-np", "2", "--bind-to", "core", "--oversubscribe",
         *ALLREADY.split(), "run", "--report-dir", str(tmp_path / "r"), str(script)],
        capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=tmp_path,
    )  # fmt: skip
    found = ranks_in(done.stdout)
    if "--bind-to" in done.stderr or not found:
        pytest.skip(f"mpirun does not start or bind here: {done.stderr[-300:]}")
    assert (done.returncode, {rank: size for rank, (size, _) in found.items()}) == (0, {0: 2, 1: 2})
    assert set(found[0][1]).isdisjoint(found[1][1]), done.stdout


class Slurm:
    """munged, slurmctld and two slurmd of our own; nothing of the machine's Slurm is touched."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        ports = [self._free_port() for _ in range(3)]
        host = socket.gethostname().partition(".")[0]
        prolog = folder / "prolog.sh"
        text = (EXAMPLES / "slurm/prolog.sh").read_text().replace("/opt/allready/bin/allready", ALLREADY)
        # The nodes' names have no address here.
        text = text.replace("check --stages", "check --master-addr 127.0.0.1 --stages")
        text = text.replace("| logger -t slurm-prolog", f">> {folder}/prolog.$SLURMD_NODENAME")
        prolog.write_text(text)
        prolog.chmod(0o755)
        (folder / "key").write_bytes(secrets.token_bytes(1024))
        (folder / "key").chmod(0o400)
        (folder / "slurm.conf").write_text(
            f"ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={ports[0]}\nAuthType=auth/munge\n"
            f"AuthInfo=socket={folder}/munge.sock\nCryptoType=crypto/munge\nSlurmUser=root\nSlurmdUser=root\n"
            f"StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\nSlurmctldPidFile={folder}/ctld.pid\n"
            f"SlurmdPidFile={folder}/slurmd-%n.pid\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/affinity\n"
            "SchedulerType=sched/builtin\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nMpiDefault=none\n"
            # Ports follow from the job's number: clusters that tests beside this one start must have other numbers.
            f"FirstJobId={ports[0]}\nKillWait=20\nPrologFlags=Alloc\nProlog={prolog}\nReturnToService=2\n"
            f"NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2\n"
            f"NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2\n"
            f"PartitionName=p Nodes=n0,n1 Default=YES State=UP\n{settings}"
        )
        (folder / "state").mkdir()
        for name in ("spool-n0", "spool-n1"):
            (folder / name).mkdir()
        self.environ = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    @staticmethod
    def _free_port() -> int:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            return int(sock.getsockname()[1])

    def start(self) -> None:
        """All daemons in the foreground, so that they end with us; until both nodes are idle."""
        f = self.folder
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={f}/key",
            f"--socket={f}/munge.sock",
            f"--pid-file={f}/munge.pid",
            f"--log-file={f}/munge.log",
            f"--seed-file={f}/seed",
        )
        deadline = Deadline(20)
        while not (f / "munge.sock").exists():
            assert not deadline.passed(), "munged does not come up"
            time.sleep(0.05)
        self._daemon("slurmctld", "-D", "-c", "-f", f"{f}/slurm.conf")
        for node in ("n0", "n1"):
            self._daemon("slurmd", "-D", "-N", node, "-f", f"{f}/slurm.conf")
        deadline = Deadline(60)
        while self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() != "2":
            if deadline.passed():
                logs = "".join(path.read_text(errors="replace")[-1500:] for path in f.glob("*.out"))
                pytest.skip(f"this Slurm does not come up here: {logs[-2000:]}")
            time.sleep(0.2)

    def _daemon(self, name: str, *arguments: str) -> None:
        program = find(name)
        assert program is not None
        with (self.folder / f"{len(self.processes)}-{name}.out").open("wb") as out:
            self.processes.append(
                subprocess.Popen(
                    [program, *arguments], stdout=out, stderr=out, env=self.environ, start_new_session=True
                )
            )

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=self.environ, cwd=self.folder
        )

    def batch(self, script: str, *options: str, wait: bool = True) -> tuple[int, Path]:
        """sbatch; the job's number and its output."""
        path = self.folder / f"batch{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        out = path.with_suffix(".log")
        done = self.run("sbatch", *(["--wait"] if wait else []), "--parsable", "-o", str(out), *options, str(path))
        return int(done.stdout.split(";")[0].split()[0]), out

    def end(self) -> None:
        self.run("scancel", "--quiet", "--user=root", "--signal=KILL")
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(4)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    made = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.mark.jobs
@needs_slurm
def test_a_node_with_a_fault_is_drained_with_its_reason(tmp_path: Path) -> None:
    """HealthCheckProgram as the example has it; on n1 a process may open 30 files only."""
    check = tmp_path / "healthcheck.sh"
    text = (EXAMPLES / "slurm/healthcheck.sh").read_text()
    limited = f'bash -c \'[ "$SLURMD_NODENAME" = n1 ] && ulimit -n 30; exec {ALLREADY} "$@"\' x'
    assert "/opt/allready/bin/allready" in text
    text = text.replace("/opt/allready/bin/allready", limited)
    check.write_text(text.replace("#!/bin/bash", f"#!/bin/bash\nexport SLURM_CONF={tmp_path}/slurm.conf"))
    check.chmod(0o755)
    cluster = Slurm(tmp_path, f"HealthCheckProgram={check}\nHealthCheckInterval=5\nHealthCheckNodeState=ANY\n")
    try:
        cluster.start()
        deadline = Deadline(40)
        while "drain" not in (states := cluster.run("sinfo", "-h", "-N", "-o", "%N %T %E").stdout):
            assert not deadline.passed(), states
            time.sleep(0.5)
        states = cluster.run("sinfo", "-h", "-N", "-o", "%N %T %E").stdout
        assert re.search(r"^n1 drain\w* allready: LIM004 .* 30 files", states, re.MULTILINE), states
        assert re.search(r"^n0 idle", states, re.MULTILINE), states
    finally:
        cluster.end()


@needs_slurm
@pytest.mark.torch
def test_slurm_tasks_of_two_nodes_become_one_world_and_keep_their_cpus(slurm: Slurm) -> None:
    script = slurm.folder / "show.py"
    script.write_text(SHOW)
    done = slurm.run(
        "srun",
        "--nodes=2",
        "--ntasks-per-node=2",
        "--cpu-bind=cores",
        "--export=ALL,MASTER_ADDR=127.0.0.1",
        *ALLREADY.split(),
        "run",
        "--report-dir",
        str(slurm.folder / "r"),
        str(script),
    )
    found = ranks_in(done.stdout)
    assert (done.returncode, {rank: size for rank, (size, _) in found.items()}) == (0, dict.fromkeys(range(4), 4)), done
    if len(CPUS) > 1 and len(found[0][1]) < len(CPUS):
        assert set(found[0][1]).isdisjoint(found[1][1])
        assert set(found[2][1]).isdisjoint(found[3][1])


@needs_slurm
def test_a_batch_script_of_two_nodes_without_srun_is_sent_to_srun(slurm: Slurm) -> None:
    script = f"{ALLREADY} check --stages roll,facts; echo code $?\n{ALLREADY} run show.py; echo code $?"
    _, out = slurm.batch(script, "--nodes=2")
    text = out.read_text()
    assert text.count("put srun --nodes=2 --ntasks-per-node=1 before the command") == 2
    assert re.findall(r"code (\d+)", text) == ["2", "2"]
    alone = f"export MASTER_ADDR=127.0.0.1\n{ALLREADY} check --stages roll,facts -q; echo code $?"
    _, out = slurm.batch(alone, "--nodes=1")
    assert "code 0" in out.read_text()


@needs_slurm
def test_the_prolog_calls_the_roll_of_the_jobs_nodes(slurm: Slurm) -> None:
    done = slurm.run("srun", "--nodes=2", "true")
    assert done.returncode == 0, done.stderr
    for node in ("n0", "n1"):
        lines = (slurm.folder / f"prolog.{node}").read_text().splitlines()
        assert lines[-1].startswith("allready: exit code 0: "), lines
        assert "2 nodes" in lines[-1]


@pytest.mark.slow
@needs_slurm
@pytest.mark.torch
@pytest.mark.slow
def test_steps_of_a_job_that_run_at_once_are_worlds_of_their_own(slurm: Slurm) -> None:
    """Seen: the second wanted the first one's port, and its nodes were taken for the first one's."""
    (slurm.folder / "show.py").write_text(SHOW)
    step = f"srun --overlap --nodes=2 --ntasks-per-node=1 {ALLREADY} run --nproc-per-node 1 --report-dir"
    script = f"export MASTER_ADDR=127.0.0.1\n{step} {slurm.folder}/s0 show.py > s0.out &\n"
    _, out = slurm.batch(f"{script}{step} {slurm.folder}/s1 show.py > s1.out &\nwait", "--nodes=2")
    for name in ("s0.out", "s1.out"):
        found = ranks_in((slurm.folder / name).read_text())
        assert {rank: size for rank, (size, _) in found.items()} == {0: 2, 1: 2}, out.read_text()


ENDS = {"cancelled": ("scancel",), "requeued": ("scontrol", "requeue")}


@needs_slurm
@pytest.mark.torch
@pytest.mark.parametrize("cause", list(ENDS))
def test_a_job_that_slurm_ends_says_how(slurm: Slurm, cause: str) -> None:
    (slurm.folder / "wait.py").write_text(WAIT)
    touched, report = slurm.folder / f"waits-{cause}", slurm.folder / cause
    number, _ = slurm.batch(
        f"srun {ALLREADY} run --report-dir {report} --nproc-per-node 1 wait.py {touched}",
        "--nodes=1",
        "--requeue",
        wait=False,
    )
    deadline = Deadline(60)
    while not touched.exists():
        assert not deadline.passed(), "the job does not start"
        time.sleep(0.1)
    slurm.run(*ENDS[cause], str(number))
    deadline = Deadline(60)
    found: dict[str, object] | None = None
    while found is None:
        assert not deadline.passed(), "no report of the end"
        time.sleep(0.2)
        found = json.loads((report / "report.json").read_text())["job"]
    slurm.run("scancel", str(number))
    assert found["ended_by"]["cause"] == cause  # type: ignore[index]


def reason_of(slurm: Slurm, node: str) -> str:
    """Why a node is drained; "none" of one that is not."""
    return slurm.run("sinfo", "-h", "-n", node, "-o", "%E").stdout.strip()


@pytest.mark.jobs
@needs_slurm
def test_the_health_check_drains_the_node_with_the_fault_and_says_why(tmp_path: Path) -> None:
    script = tmp_path / "healthcheck.sh"
    text = (EXAMPLES / "slurm/healthcheck.sh").read_text().replace("/opt/allready/bin/allready", ALLREADY)
    # Both nodes are this machine: the marks tell which one is asked, and that it was; one gets too few files.
    # slurmd gives no SLURM_CONF on, and this one is not where scontrol looks.
    mark = f"export SLURM_CONF={tmp_path}/cluster/slurm.conf\necho asked >> {tmp_path}/asked.$SLURMD_NODENAME\n"
    fault = f'[ ! -e {tmp_path}/broken ] || [ "$SLURMD_NODENAME" != n1 ] || ulimit -n 30\n'
    script.write_text(text.replace("line=$(", f"{mark}{fault}line=$(", 1))
    script.chmod(0o755)
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    slurm = Slurm(cluster, f"HealthCheckProgram={script}\nHealthCheckInterval=1\nHealthCheckNodeState=ANY\n")

    def asked(node: str) -> int:
        file = tmp_path / f"asked.{node}"
        return file.read_text().count("asked") if file.exists() else 0

    try:
        slurm.start()
        until(lambda: min(asked("n0"), asked("n1")) >= 2, 60.0, what=lambda: "both nodes were asked twice")
        assert (reason_of(slurm, "n0"), reason_of(slurm, "n1")) == ("none", "none")
        (tmp_path / "broken").touch()
        until(lambda: "LIM004" in reason_of(slurm, "n1"), 60.0, what=lambda: reason_of(slurm, "n1"))
        assert reason_of(slurm, "n1").startswith("allready: LIM004 ")
        assert reason_of(slurm, "n0") == "none"
    finally:
        slurm.end()
