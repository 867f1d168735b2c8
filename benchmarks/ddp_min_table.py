"""What becomes of examples/ddp_min.py and ddp_min_plain.py under five faults.

.venv/bin/python benchmarks/ddp_min_table.py --write

Four Gloo ranks; the fault strikes rank 2 as its optimizer is about to make step 20, by a hook of torch's optimizers, so
the scripts need no code for it.  `--write` puts the table into examples/README.md.
"""

import argparse
import datetime as dt
import os
import re
import runpy
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.runtime.evaluating import wait_for  # noqa: E402

EXAMPLES = ROOT / "examples"
SIZE, VICTIM, STEP = 4, 2, 20
LIMIT_S = 90.0
LATE_S = 15.0  # longer than the deadline of the scripts, 10 s
FAULTS = {
    "killed": "is killed (SIGKILL)",
    "raises": "raises once (ValueError)",
    "late": f"is busy for {LATE_S:g} s, the deadline is 10 s",
    "stopped": "is stopped (SIGSTOP) for good",
    "leaves": "ends early (`sys.exit(0)`)",
}
BEGIN, END = "<!-- ddp_min_table -->", "<!-- end of ddp_min_table -->"


def strike(kind: str) -> None:
    """In the victim."""
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "raises":
        raise ValueError("made by the benchmark")
    elif kind == "late":
        time.sleep(LATE_S)
    else:
        sys.exit(0)


def rank_main(script: str, kind: str, rank: int, port: int) -> None:
    """One rank: the script as it is, with a hook in the victim."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(SIZE), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    seen = []

    def hook(*_: Any) -> None:
        seen.append(1)
        if rank == VICTIM and len(seen) == STEP:
            strike(kind)

    register_optimizer_step_pre_hook(hook)
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")


def fork(script: str, kind: str, rank: int, port: int, out: IO[str]) -> int:
    """Start a rank; its process."""
    pid = os.fork()
    if pid:
        return pid
    code: object = 1
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    try:
        rank_main(script, kind, rank, port)
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - shown as the interpreter would
        sys.excepthook(*sys.exc_info())
        sys.last_value = sys.exc_info()[1]
    finally:
        import atexit

        atexit._run_exitfuncs()  # noqa: SLF001 - as at the end of an interpreter
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 0)


def outcome(script: str, kind: str) -> tuple[str, str]:
    """One job: how its ranks ended and after how long, and all that they wrote."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    begin_s = time.monotonic()
    with tempfile.TemporaryFile("a+") as out:
        ranks = [fork(script, kind, rank, port, out) for rank in range(SIZE)]
        others = [r for r in range(SIZE) if not (r == VICTIM and kind == "stopped")]
        ends = wait_for(ranks, others, LIMIT_S)
        took_s = time.monotonic() - begin_s
        if kind == "stopped":
            os.kill(ranks[VICTIM], signal.SIGKILL)
            os.waitpid(ranks[VICTIM], 0)
        out.seek(0)
        text = out.read()
    done = len(re.findall(r"rank \d of \d: 60 steps", text))
    good = sum(code == 0 for rank, code in ends.items() if rank != VICTIM or kind in {"raises", "late"})
    hung = sum(code is None for code in ends.values())
    fate = f"{done} ranks did all 60 steps" if done else "lost: no rank did all steps"
    more = f", {hung} had to be killed" if hung else ""
    return f"{fate}, {good} ended with 0{more}; {took_s:.0f} s", text


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--faults", nargs="*", default=list(FAULTS))
    given = parser.parse_args()
    import torch
    import torch._dynamo
    import torch.distributed.rendezvous
    import torch.nn.parallel  # all of these before the forks

    import allready.runtime.loop  # noqa: F401

    torch.set_num_threads(1)
    lines = ["| rank 2 at step 20 | `ddp_min.py` | `ddp_min_plain.py` | verdict |", "| --- | --- | --- | --- |"]
    for kind in given.faults:
        ours, text = outcome("ddp_min.py", kind)
        plain, _ = outcome("ddp_min_plain.py", kind)
        verdict = re.search(r"RTM\d+: [^\n]*", text)
        lines.append(f"| {FAULTS[kind]} | {ours} | {plain} | {verdict[0] if verdict else '-'} |")
        print(lines[-1], flush=True)
    day = dt.datetime.now(dt.UTC).date()
    lines += ["", f"torch {torch.__version__}, {os.cpu_count()} CPUs, {day}; made by `benchmarks/ddp_min_table.py`."]
    if given.write:
        readme = EXAMPLES / "README.md"
        before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        readme.write_text(before + "\n".join([BEGIN, *lines, END]) + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
