"""Runs as process 1 of a PID namespace of its own, so that "nothing else is there" can be seen exactly.

    leftovers.py SCENE     prints {"before": {...}, "after": {...}, "note": ...}

It compares everything that a lab could leave: processes, net namespaces, mounts, interfaces, files.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from allready.errors import LabError
from allready.lab import Lab, names, take_down
from allready.lab.faults import PortDropped, SecondInterface, TinyShm
from tests.clock import Deadline

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
STATE = Path("/tmp") / f"leftovers-{os.environ['LEFTOVERS_ID']}"
CREATOR = "import sys, pathlib; from allready.lab import Lab; print(flush=True); Lab.up({n}, name={name!r}, "
CREATOR += "state_dir=pathlib.Path({state!r})); print('up', flush=True); sys.stdin.read()"


def _mounts() -> Counter[str]:
    return Counter(Path("/proc/self/mounts").read_text().splitlines())


# Mounts are compared with these and not with a text: when another process on the machine deletes a named network
# namespace (ip netns, containers), its mount vanishes from this mount namespace too. None can appear from outside.
MOUNTS_AT_START = _mounts()


def _net_namespace(pid: int) -> str | None:
    """None: the process has ended since it was listed, and the next snapshot has it no more."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    return None


def snapshot() -> dict[str, Any]:
    """Everything there is now, after the ended processes that were handed to process 1 are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return {
        "processes": pids,
        "net namespaces": sorted(set(filter(None, map(_net_namespace, pids)))),
        "new mounts": sorted((_mounts() - MOUNTS_AT_START).elements()),
        "interfaces": Path("/proc/net/dev").read_text(),
        "files": sorted(str(path) for path in STATE.parent.glob(f"{STATE.name}*")),
        "shared memory": sorted(path.name for path in Path("/dev/shm").iterdir()),
        "listeners": sum(" 0A " in line for line in Path("/proc/net/tcp").read_text().splitlines()),
        "control groups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob("**/allready-lab-*")),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


def up(num_nodes: int = 2, name: str = "a") -> Lab:
    return Lab.up(num_nodes, name=name, state_dir=STATE)


def normal() -> str:
    lab = up(4)
    lab.run(0, ["true"])
    lab.apply(SecondInterface(nodes=(0, 1)))
    lab.apply(TinyShm(node=0))
    lab.down()
    lab.down()
    return "down"


def exception() -> str:
    with contextlib.suppress(ZeroDivisionError), up():
        raise ZeroDivisionError
    return "down"


def _sleepers() -> int:
    num = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            num += entry.name.isdecimal() and (entry / "cmdline").read_bytes().startswith(b"sleep\x00100")
    return num


def commands() -> str:
    """Commands with children that hide: in the background, in another session, left by a parent that ended."""
    lab = up()
    lab.apply(PortDropped(node=0, port=1))
    hide = "sleep 1000 & setsid sleep 1001 & (setsid sh -c 'sleep 1002 & sleep 1003; :' &) ; exec sleep 1004"
    running = [lab.popen(node, ["sh", "-c", hide]) for node in (0, 1)]
    assert lab.run(0, ["sh", "-c", "setsid sleep 1005 >/dev/null 2>&1 </dev/null &"]).returncode == 0
    deadline = Deadline(20)
    while _sleepers() < 11 and not deadline.passed():
        time.sleep(0.02)
    num = _sleepers()
    lab.down()
    assert [process.returncode for process in running] == [-9, -9]
    return f"{num} hidden commands"


def two_labs() -> str:
    first, second = up(name="a"), up(name="b")
    process = second.popen(0, ["sleep", "1000"])
    first.down()
    assert process.poll() is None, "the other lab's command was ended too"
    assert second.run(1, ["hostname"]).stdout == "node1\n"
    second.down()
    return "down"


def _killed_after(delay_s: float) -> bool:
    """SIGKILL a creator so long after it began; True when there was something to clean up."""
    script = CREATOR.format(n=3, name="a", state=str(STATE))
    creator = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert creator.stdout
    assert creator.stdin
    creator.stdout.readline()
    if delay_s < 0:
        assert creator.stdout.readline() == b"up\n"
    else:
        time.sleep(delay_s)  # not a wait: the moment of the kill is what is tested
    creator.kill()
    creator.wait()
    creator.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        creator.stdin.close()
    found = names(STATE)
    for name in found:
        take_down(name, STATE)
    return bool(found)


def killed_half_way() -> str:
    partial = [_killed_after(n * 0.05) for n in range(7)]
    assert any(partial), "no creator was killed half-way"
    return f"{sum(partial)} of {len(partial)} had begun"


def killed_when_up() -> str:
    assert _killed_after(-1)
    return "down"


def killed_with_commands() -> str:
    """The creator of the lab and the process that started a command in it are both killed."""
    up()
    script = (
        f"import pathlib; from allready.lab import Lab; lab = Lab.attach('a', state_dir=pathlib.Path({str(STATE)!r})); "
    )
    script += (
        "lab.popen(0, ['sh', '-c', 'setsid sleep 1000 & sleep 1001']); print(flush=True); import time; time.sleep(1000)"
    )
    user = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert user.stdout
    user.stdout.readline()
    user.kill()
    user.wait()
    user.stdout.close()
    take_down("a", STATE)
    return "down"


def holder_killed() -> str:
    """A node dies under the lab; the rest still goes down, and commands in it as well."""
    lab = up()
    lab.popen(0, ["sleep", "1000"])
    os.kill(lab.record().nodes[0].pid, signal.SIGKILL)
    lab.down()
    return "down"


def refused() -> str:
    """The second node cannot be made."""
    import allready.lab.holders

    real: Callable[..., Any] = allready.lab.holders.node
    calls = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return real(*args, **(kwargs | {"hosts": STATE / "missing"} if len(calls) == 2 else kwargs))

    allready.lab.holders.node = broken
    try:
        up(3)
    except LabError as error:
        return f"LabError: {error}"
    finally:
        allready.lab.holders.node = real
    return "it came up"


def _scored(row: str, *run_argv: str, **fake: object) -> str:
    from fault_suite.play import Options, play
    from fault_suite.rows import ROWS

    os.environ["FAKE"] = json.dumps(fake)
    with tempfile.TemporaryDirectory() as folder:
        options = Options(out=Path(folder), state_dir=STATE)
        if run_argv:
            options = replace(options, run_argv=run_argv, run_flags=())
        result = play(replace(ROWS[row], make=_short(ROWS[row].make)), 0, options)
    return f"{result.outcome} {result.problem}".strip()


def _short(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda pick: replace(make(pick), limit_s=2.0 if "fake" in os.environ["FAKE"] else 20.0)


def scored_stand_in() -> str:
    """A scenario of the scoreboard whose commands hide and ignore SIGTERM."""
    return _scored("B02", sys.executable, str(Path(__file__).with_name("fake_run.py")), fake=True, hide=True)


def scored() -> str:
    """A real one: four ranks, one of them stopped for good."""
    return _scored("B02")


def scored_for_memory() -> str:
    """A real one: a rank in a control group of its own, killed by the kernel."""
    return _scored("B07")


SCORE = """
import functools, sys
sys.path.insert(0, sys.argv[3])
from fault_suite import play
from fault_suite.command import main
play.Options = functools.partial(play.Options, run_argv=(sys.executable, sys.argv[1]), run_flags=())
sys.exit(main(["--only", "K0,B02", "--out", sys.argv[2]]))
"""


def score_ended_by_a_signal() -> str:
    """The fault suite gets SIGTERM while its first scenario runs; a stand-in takes the place of the job."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-c", SCORE, str(Path(__file__).with_name("fake_run.py")), folder, str(BENCHMARKS)]
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"COLUMNS": "80", "FAKE": "{}"}
        )
        try:
            deadline = Deadline(40)
            while not deadline.passed() and not list(Path(folder).glob("K0-0/enter/enter-*")):
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
        saved = json.loads((Path(folder) / "scoreboard.json").read_text())
        return f"exit code {process.returncode}, {len(saved['results'])} results"


def main(scene: str) -> None:
    # Others on this machine use the shared one meanwhile.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
    before = snapshot()
    note = globals()[scene]()
    deadline = Deadline(5)
    while (after := snapshot()) != before and not deadline.passed():
        time.sleep(0.02)  # the kernel and the last holders take a moment
    sys.stdout.write(json.dumps({"before": before, "after": after, "note": note}))


if __name__ == "__main__":
    main(sys.argv[1])
