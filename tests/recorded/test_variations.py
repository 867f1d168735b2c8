"""Recorded runs as they come out of other hands: parts missing, together in one file, other clocks, lines of strangers.

Each case says whom the verdict must name, or that it must accuse no rank.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cases import cases
from tests.recorded.edits import (
    Edit,
    beside,
    both,
    cut,
    in_one_log,
    into,
    load,
    only,
    pods,
    renamed,
    replaced,
    shifted,
    srun,
    twice,
    without,
    write,
    zipped,
)
from tests.recorded.test_runs import judge

HEARTBEAT = (
    "[rank0]:[F1120 11:59:13.156485650 ProcessGroupNCCL.cpp:1306] [PG ID 0 PG GUID 0(default_pg) Rank 0] "
    "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."
)
CLOSED = (
    "vm:1130:1200 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer 10.77.0.2<41234>"
)
PROBES = """vm:1130:1130 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
vm:1130:1130 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v9 symbol.
vm:1130:1130 [0] NCCL INFO TUNER/Plugin: Could not find: libnccl-tuner.so
vm:1130:1130 [0] NCCL INFO Call to connect returned Connection refused, retrying
vm:1130:1130 [0] NCCL INFO Socket recv failed while polling for opId=0x0"""
OLD_XID = "[Thu Nov 19 03:12:44 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=12, name=python, GPU has fallen off the bus."
XID = "[Fri Nov 20 11:50:55 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=1192, name=python, GPU has fallen off the bus."
OOM = (
    "[Fri Nov 20 11:51:27 2026] Memory cgroup out of memory: Killed process {} ({}) total-vm:12345kB, "
    "anon-rss:1234kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0"
)
TIME_LIMIT = """slurmstepd: error: *** JOB 4242 ON gpu01 CANCELLED AT 2026-11-20T19:30:00 DUE TO TIME LIMIT ***
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: gpu01: tasks 0-1: Terminated
srun: error: gpu02: tasks 2-3: Terminated"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What must come out.  `status`: any of these words; without `classes` no fault may be reported."""

    run: str
    edit: Edit
    classes: str = ""
    ranks: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    status: str = "fault"
    at_least: str = ""  # the least confidence
    at_most: str = ""


def fault(run: str, edit: Edit, classes: str, *ranks: int, **more: object) -> Case:
    return Case(run=run, edit=edit, classes=classes, ranks=ranks, **more)  # type: ignore[arg-type]


def quiet(run: str, edit: Edit, status: str = "healthy unknown") -> Case:
    return Case(run=run, edit=edit, status=status)


OTHER_HOSTS = both(
    replaced(r"\bvm:", "gpu17:", "node0"),
    replaced(r"\bvm:", "gpu18:", "node1"),
    renamed("node0", "gpu17"),
    renamed("node1", "gpu18"),
    renamed(r"\bvm\.", ""),
)
EQUAL_PIDS = both(
    replaced(r"\b1279\b", "1278", "node1"),
    replaced(r"\b1281\b", "1280", "node1"),
    renamed("node1.vm.1279", "node1.vm.1278"),
    renamed("node1.vm.1281", "node1.vm.1280"),
    without("ras", "pyspy"),
)
FAULTS = {
    "sigstop": ("CPU-STUCK", (1,)), "sigkill": ("DEAD", (3,)), "exception": ("DEAD", (2,)),
    "eval_branch": ("DESYNC-FLOW", (0,)), "dataloader_stall": ("CPU-STUCK", (2,)), "v2_lock": ("CPU-STUCK", (3,)),
    "size_mismatch": ("DESYNC-ARGS", (3,)),
    "gloo_exception": ("DEAD", (2,)), "gloo_sigkill": ("DEAD", (3,)), "gloo_early": ("DESYNC-FLOW", (1,)),
}  # fmt: skip
HARMLESS_EDITS: dict[str, Edit] = {
    "copied twice": twice,
    "half of it compressed": zipped,
    "the clock of node 1 five hours ahead": shifted(5, "node1"),
    "the clock of node 0 five hours behind": shifted(-5, "node0"),
    "the memory killer took a stranger's process": beside("dmesg.node0.txt", OOM.format(99999, "chrome")),
    "a GPU of yesterday": beside("dmesg.node0.txt", OLD_XID),
    "the time limit hours later": beside("slurm.out", TIME_LIMIT),
    "in one log of srun": in_one_log(srun),
}

CASES: dict[str, Case] = {
    f"{run}: {name}": fault(run, edit, classes, *ranks)
    for run, (classes, ranks) in FAULTS.items()
    for name, edit in HARMLESS_EDITS.items()
}
CASES |= {
    f"{run}: in one log of kubectl": fault(run, in_one_log(pods), c, *r)
    for run, (c, r) in FAULTS.items()
    if not run.startswith("gloo")
}
CASES |= {
    f"{run}: other names of hosts": fault(run, OTHER_HOSTS, *FAULTS[run][:1], *FAULTS[run][1])
    for run in ("sigstop", "sigkill", "exception", "eval_branch", "v2_lock")
}
CASES |= {
    f"{run}: a heartbeat abort eight minutes later": fault(run, into("stdout.node0", HEARTBEAT), c, *FAULTS[run][1])
    for run, c in (("sigstop", "CPU-STUCK"), ("sigkill", "DEAD"), ("eval_branch", "DESYNC-FLOW"))
}

# Healthy runs: nothing that lies beside them or is missing makes a fault of them.
HEALTHY = ("ok", "v2_ok", "many_iters_coll", "jax_ok")
CASES |= {
    f"{run}: {name}": quiet(run, edit, "healthy")
    for run in HEALTHY
    for name, edit in HARMLESS_EDITS.items()
    if "time limit" not in name and "one log" not in name
}
CASES |= {f"{run}: in one log of kubectl": quiet(run, in_one_log(pods), "healthy") for run in HEALTHY}
CASES |= {f"{run}: without node {n}": quiet(run, without(f"node{n}"), "unknown") for run in HEALTHY for n in (0, 1)}
CASES |= {f"{run}: node 0 cut in the middle": quiet(run, cut(0.5, "node0")) for run in HEALTHY}
CASES |= {
    "ok: plugins probed, a socket closed at the end": quiet("ok", into("stdout.node0", f"{PROBES}\n{CLOSED}")),
    "ok: ended by the time limit in the middle": Case(
        run="ok", edit=both(cut(0.5), beside("slurm.out", TIME_LIMIT)), classes="DEAD", at_most="possible"
    ),
    "many_iters_coll: ended by the time limit in the middle": Case(
        run="many_iters_coll", edit=both(cut(0.2), beside("slurm.out", TIME_LIMIT)), classes="DEAD", at_most="possible"
    ),
}

# Parts: no rank is accused because his files are missing.
CASES |= {
    "sigstop: without the files of node 0": fault("sigstop", without("node0", "fr_0", "fr_1"), "CPU-STUCK", 1),
    "sigstop: without the files of node 1": fault("sigstop", without("node1", "fr_2", "fr_3"), "CPU-STUCK", 1),
    "sigstop: what node 1 has": fault("sigstop", only("node1", "fr_2", "fr_3"), "CPU-STUCK", at_most="possible"),
    "sigstop: what node 0 has": fault("sigstop", only("node0", "fr_0"), "CPU-STUCK", at_most="possible"),
    "sigstop: a dump was lost": fault("sigstop", without("fr_3"), "CPU-STUCK", 1),
    "sigstop: two dumps of four": quiet("sigstop", only("fr_0", "fr_2"), "unknown"),
    "sigstop: three dumps of four are a guess": fault("sigstop", only("fr_"), "CPU-STUCK", 1, at_most="possible"),
    "sigkill: without the files of node 1": fault(
        "sigkill", without("node1", "fr_2", "fr_3"), "DEAD", at_most="possible"
    ),
    "sigkill: without the files of node 0": fault("sigkill", without("node0", "fr_0", "fr_1"), "DEAD", 3),
    "sigkill: equal pids in two containers": fault("sigkill", EQUAL_PIDS, "DEAD", 3),
    "exception: without the files of node 1": fault(
        "exception", without("node1", "fr_2", "fr_3"), "DEAD", at_most="possible"
    ),
    "dataloader_stall: without the files of node 1": fault(
        "dataloader_stall", without("node1", "fr_2", "fr_3"), "CPU-STUCK", 2
    ),
    "dataloader_stall: what node 0 has": fault(
        "dataloader_stall", only("node0", "fr_0", "fr_1"), "CPU-STUCK", at_most="possible"
    ),
    "dataloader_stall: its dump was lost": fault(
        "dataloader_stall", both(only("fr_"), without("fr_2")), "CPU-STUCK", 2, at_most="possible"
    ),
    "v2_lock: what node 0 has": fault("v2_lock", only("node0", "fr_0", "fr_1"), "CPU-STUCK", at_most="possible"),
    "v2_lock: its dump was lost": fault("v2_lock", without("fr_3"), "CPU-STUCK", 3),
    "eval_branch: of four ranks two that differ are known, which accuses neither": fault(
        "eval_branch", without("node1", "fr_2", "fr_3"), "DESYNC-FLOW"
    ),
    "link_down: without the files of node 1": fault(
        "link_down", without("node1", "fr_2", "fr_3"), "NET-BROKEN", nodes=(1,)
    ),
    "link_down: a stranger's out of memory": fault(
        "link_down", beside("dmesg.node1.txt", OOM.format(99999, "chrome")), "NET-BROKEN", nodes=(1,)
    ),
    "gloo_sigstop: what node 1 printed": fault("gloo_sigstop", only("node1"), "CPU-STUCK", at_most="possible"),
    "gloo_exception: what node 0 printed": fault("gloo_exception", only("node0"), "DEAD", at_most="possible"),
    "shm_tiny: what node 1 has": fault("shm_tiny", only("node1"), "ENV-LIMIT", nodes=(1,)),
}

# The kernel and the rank that vanished.
CASES |= {
    "sigkill: the memory killer names its pid": fault(
        "sigkill", beside("dmesg.node1.txt", OOM.format(1281, "python3")), "DEAD", 3, at_least="certain"
    ),
    "sigkill: the memory killer names the host's pid": fault(
        "sigkill", beside("dmesg.node1.txt", OOM.format(48231, "python3")), "DEAD", 3
    ),
    "sigkill: the memory killer of the other node": fault(
        "sigkill", beside("dmesg.node0.txt", OOM.format(48231, "python3")), "DEAD", 3
    ),
    "sigstop: a GPU fell off the bus in time": fault("sigstop", beside("dmesg.node1.txt", XID), "HW-HANG", nodes=(1,)),
    "jax_kill: without the log of process 0": fault("jax_kill", without("rank0"), "DEAD", 1),
    "jax_exc: the process that raised left no log": quiet("jax_exc", without("rank1"), "unknown fault"),
    "jax_absent: two logs of two": fault("jax_absent", without("nothing"), "START-ABSENT", 1),
}


def begun_again(last: str) -> Edit:
    """The first attempt of `gloo_restart` (a ValueError on rank 2), and another run's output as the second one."""

    def edit(files: dict[str, bytes]) -> dict[str, bytes]:
        second = load(last)
        found = {}
        for name, text in files.items():
            if not name.endswith(".log"):
                continue
            at = text.index(b"failed (exitcode:")
            found[name] = text[: text.index(b"\n", at) + 1] + second[name]
        return found

    return edit


CASES |= {
    "started again, and the second attempt went through": quiet("gloo_restart", begun_again("gloo_ok")),
    "started again, and another rank was killed": fault("gloo_restart", begun_again("gloo_sigkill"), "DEAD", 3),
    "started again, and another rank was stopped": fault("gloo_restart", begun_again("gloo_sigstop"), "CPU-STUCK", 1),
    "started again, and another rank raised": fault("gloo_restart", begun_again("gloo_key"), "DEAD", 1),
}

CI = [name for number, name in enumerate(CASES) if (number + number // len(HARMLESS_EDITS)) % 2 == 0]
"""Of each run, and of each edit, every second."""
WEIGHT = {"possible": 0, "likely": 1, "certain": 2}


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 40


def _check(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    folder = write(case.edit(load(case.run)), tmp_path / "run")
    _, report = judge([folder], tmp_path)
    verdict = report["verdict"]
    assert report["status"] in case.status.split(), verdict
    if not case.classes:
        assert verdict is None or not (verdict["culprits"]["ranks"] or verdict["culprits"]["nodes"]), verdict
        return
    assert verdict["fault_class"] in case.classes.split(), verdict
    assert verdict["culprits"]["ranks"] == list(case.ranks), verdict
    if case.nodes or not case.ranks:
        assert verdict["culprits"]["nodes"] == list(case.nodes), verdict
    weight = WEIGHT[verdict["confidence"]]
    assert weight >= WEIGHT[case.at_least or "possible"], verdict
    assert weight <= WEIGHT[case.at_most or "certain"], verdict


@cases("name", CI, parts=6)
def test_other_hands_change_nothing_or_make_it_say_less(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)


@pytest.mark.slow
@cases("name", sorted(set(CASES) - set(CI)), parts=6)
def test_the_other_half_as_well(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)


def test_the_memory_killer_is_joined_with_the_rank_that_vanished(tmp_path: Path) -> None:
    files = beside("dmesg.node1.txt", OOM.format(48231, "python3"))(load("sigkill"))
    _, report = judge([write(files, tmp_path / "run")], tmp_path)
    assert report["verdict"]["code"] == "DTH003"
    files = beside("dmesg.node1.txt", OOM.format(99999, "chrome"))(load("sigstop"))
    _, report = judge([write(files, tmp_path / "other")], tmp_path)
    assert [f["code"] for f in report["findings"] if f["code"] == "DTH003"] == []
