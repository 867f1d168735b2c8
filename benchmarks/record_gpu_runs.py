"""Faults in a real NCCL job under `allready run`: what it says, and when; the reports are kept as fixtures.

    python benchmarks/record_gpu_runs.py OUT_DIR [--only NAME,...] [--nproc 2]          (4 GPUs; namespaces)
    python benchmarks/record_gpu_runs.py OUT_DIR --share [--only NAME,...]              (1 GPU; namespaces)
    python benchmarks/record_gpu_runs.py OUT_DIR --cpu                                  (Gloo: to try the program)

Two nodes (network namespaces of this machine, NCCL over sockets between them) with 2 GPUs each; with `--share` four
nodes with a rank each, which take turns on one GPU.  Every fault happens to the last rank at a step; the rank writes
the time of the deed.  `detect_s` is from there to the verdict.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRAIN = """
import os, sys, time, json, signal
import torch, torch.distributed as dist

rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
cuda = os.environ["DEVICE"] == "cuda"
if cuda:
    torch.cuda.set_device(local)
dist.init_process_group("nccl" if cuda else "gloo")
device = torch.device("cuda", local) if cuda else torch.device("cpu")
grads, flag = torch.ones(1 << 18, device=device), torch.ones(1, device=device)
fault, victim = os.environ.get("FAULT", ""), int(os.environ.get("VICTIM", "1"))
at = int(os.environ.get("AT_STEP", "80"))

def deed():
    path = os.environ["TRUTH"]
    with open(path + ".part", "w") as file:
        json.dump({"fault": fault, "rank": rank, "pid": os.getpid(), "time_s": time.time()}, file)
    os.rename(path + ".part", path)

def sync():
    if cuda:
        torch.cuda.synchronize()

for step in range(int(os.environ.get("STEPS", "600"))):
    mine = rank == victim and step == at
    if step == at and rank == 0:
        open(os.environ["TRUTH"] + ".moves", "w").close()
    if mine and fault:
        sync()
        deed()
    if mine and fault == "sigstop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if mine and fault == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if mine and fault == "spin" and cuda:
        torch.cuda._sleep(10**13)  # over an hour
    if mine and fault == "raise":
        raise ValueError("bad sample in shard 17")
    if mine and fault == "leave":
        sys.exit(0)
    if mine and fault == "gpu_oom" and cuda:
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    if mine and fault == "device_assert" and cuda:
        torch.zeros(4, device=device)[torch.tensor([7], device=device)]
    if mine and fault == "busy":
        while True:
            sum(range(100000))
    if rank == victim and step >= at and fault == "slow":
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            sum(range(10000))
    if mine and fault == "size":
        dist.all_reduce(grads[: 1 << 17])
    elif mine and fault == "dtype":
        dist.all_reduce(grads.to(torch.int32))
    elif mine and fault == "order":
        dist.broadcast(flag, 0)
    elif mine and fault == "skip":
        pass
    else:
        dist.all_reduce(grads)
    if mine and fault == "order":
        dist.all_reduce(grads)
    else:
        dist.broadcast(flag, 0)
    if mine and fault == "extra":
        dist.all_reduce(grads)
    grads.fill_(1.0)
    sync()
    time.sleep(0.02)
print("through", rank, flush=True)
"""

EXPECTED: dict[str, tuple[str, ...]] = {
    "healthy": (),
    "sigstop": ("CPU-STUCK",),
    "sigkill": ("DEAD",),
    "skip": ("DESYNC-FLOW",),
    "extra": ("DESYNC-FLOW",),
    "size": ("DESYNC-ARGS",),
    "dtype": ("DESYNC-ARGS",),
    "order": ("DESYNC-FLOW",),
    "raise": ("DEAD",),
    "leave": ("DESYNC-FLOW", "DEAD"),
    "gpu_oom": ("DEAD",),
    "device_assert": ("DEAD",),
    "busy": ("CPU-BUSY",),
    "slow": ("SLOW-COMP",),
    "spin": ("HW-HANG",),
    "link_down": ("NET-BROKEN",),
}
"""Fault -> classes that are right.  The culprit is rank VICTIM, for `link_down` the last node: node 0 cannot know whose
end of the path is broken and names the path, the last node sees that it is its own."""
ON_ONE_GPU = tuple(name for name in EXPECTED if name != "spin")
"""A rank that keeps the GPU to itself stops all that share it: no rank can be distinguished from the others."""
ON_CPU = tuple(name for name in EXPECTED if name not in {"spin", "gpu_oom", "device_assert"})

LIMIT_S = 25.0
SLOW_LIMIT_S = 90.0


@dataclass
class Result:
    """What one run gave."""

    name: str
    verdict: dict[str, Any] | None = None
    status: str = ""
    detect_s: float | None = None
    right: bool = False
    exit_codes: list[int] = field(default_factory=list)
    first: dict[str, Any] | None = None
    own_verdict: dict[str, Any] | None = None


@dataclass(frozen=True)
class Place:
    """Where the ranks run.  `share`: all on GPU 0."""

    nodes: int = 2
    nproc: int = 2
    cpu: bool = False
    share: bool = False

    @property
    def victim(self) -> int:
        return self.nodes * self.nproc - 1

    def devices(self, node: int) -> str:
        """CUDA_VISIBLE_DEVICES of a node."""
        if self.cpu:
            return ""
        return "0" if self.share else ",".join(str(self.nproc * node + i) for i in range(self.nproc))


def run(name: str, out: Path, place: Place) -> Result:
    """One job with one fault; everything is gone when this returns."""
    from allready.lab import Lab
    from allready.lab.faults import from_words
    from allready.lab.lab import end_group

    folder = out / name
    folder.mkdir(parents=True)
    script = folder / "train.py"
    script.write_text(TRAIN)
    truth, result = folder / "truth.json", Result(name)
    processes: list[subprocess.Popen[bytes]] = []
    with Lab.up(place.nodes, name=f"rec{os.getpid()}") as lab:
        try:
            for node in range(place.nodes):
                env = {
                    "CUDA_VISIBLE_DEVICES": place.devices(node),
                    **({"NCCL_HOSTID": f"host{node}"} if place.share else {}),
                    "NCCL_SOCKET_IFNAME": "eth0",
                    "GLOO_SOCKET_IFNAME": "eth0",
                    "DEVICE": "cpu" if place.cpu else "cuda",
                    "FAULT": "" if name in {"healthy", "link_down"} else name,
                    "VICTIM": str(place.victim),
                    "TRUTH": str(truth),
                    "OMP_NUM_THREADS": "1",
                    "STEPS": "150" if name == "healthy" else "100000",
                    "NCCL_RAS_ENABLE": "1",
                }
                argv = [
                    sys.executable,
                    "-m",
                    "allready",
                    "run",
                    "--nnodes",
                    str(place.nodes),
                    "--node-rank",
                    str(node),
                    "--nproc-per-node",
                    str(place.nproc),
                    "--master-addr",
                    lab.view.address(0),
                    "--master-port",
                    "29600",
                    "--grace",
                    "2",
                    "-q",
                    "--report-dir",
                    str(folder / f"node{node}"),
                    str(script),
                ]
                with (folder / f"node{node}.out").open("wb") as log:
                    processes.append(lab.popen(node, argv, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
            deadline = time.monotonic() + 60.0
            if name == "link_down":
                while not Path(f"{truth}.moves").exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
                truth.write_text(json.dumps({"fault": name, "node": place.nodes - 1, "time_s": time.time()}))
                lab.apply(from_words(["link_down", f"node={place.nodes - 1}"]))
            while not truth.exists() and time.monotonic() < deadline and name != "healthy":
                time.sleep(0.05)
            _follow(result, folder, truth, processes, place)
        finally:
            for process in processes:
                if process.poll() is None:
                    os.kill(process.pid, signal.SIGTERM)
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(15.0)
                end_group(process)
            result.exit_codes = [p.returncode for p in processes]
    return result


def _verdict(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())["verdict"] or {}
    except (OSError, ValueError):
        return {}
    return found


def _is_path_to(culprits: dict[str, Any], node: int) -> bool:
    """Whether paths are named, all of them to or from this node."""
    return culprits["nodes"] == [node] or (bool(culprits["links"]) and all(node in link for link in culprits["links"]))


def _follow(result: Result, folder: Path, truth: Path, processes: list[Any], place: Place) -> None:
    """Read the report as it is rewritten, until the right verdict stands or the time is up."""
    path, classes = folder / "node0" / "report.json", EXPECTED[result.name]
    began_s = json.loads(truth.read_text())["time_s"] if truth.exists() else time.time()
    limits = {"healthy": 60.0, "slow": SLOW_LIMIT_S}
    deadline = time.monotonic() + limits.get(result.name, LIMIT_S)
    states = {"fault", "waiting"} if result.name == "busy" else {"fault"}  # it may compute cleanly
    while time.monotonic() < deadline:
        if result.name == "healthy" and all(p.poll() is not None for p in processes):
            break
        try:
            report = json.loads(path.read_bytes())
        except (OSError, ValueError):
            time.sleep(0.05)
            continue
        verdict = report["verdict"]
        result.status, result.verdict = report["status"], verdict
        if verdict is not None and result.first is None:
            result.first = {"after_s": round(time.time() - began_s, 2), "verdict": verdict}
        if verdict is not None and report["status"] in states and classes:
            culprits = verdict["culprits"]
            whom = culprits["ranks"] == [place.victim]
            if result.name == "link_down":
                last = place.nodes - 1
                own = _verdict(folder / f"node{last}" / "report.json")
                whom = _is_path_to(culprits, last) and bool(own) and own["culprits"]["nodes"] == [last]
                result.own_verdict = own
            if verdict["fault_class"] in classes and whom:
                result.right, result.detect_s = True, round(time.time() - began_s, 2)
                break
        time.sleep(0.05)
    if result.name == "healthy":
        report = json.loads(path.read_bytes())
        result.status, result.verdict = report["status"], report["verdict"]
        result.right = report["status"] == "healthy"


def main() -> int:
    """Run them all; a line for each, and `results.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--nproc", type=int, default=2, help="ranks per node")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--share", action="store_true", help="four ranks on one GPU, a node each")
    args = parser.parse_args()
    place = Place(nodes=4, nproc=1, share=True) if args.share else Place(nproc=args.nproc, cpu=args.cpu)
    names = args.only.split(",") if args.only else ON_ONE_GPU if args.share else ON_CPU if args.cpu else EXPECTED
    args.out.mkdir(parents=True, exist_ok=True)
    results = []
    for name in names:
        began = time.monotonic()
        result = run(name, args.out, place)
        results.append(result)
        verdict = result.verdict or {}
        sys.stdout.write(
            f"{name:10} {'right' if result.right else 'WRONG'} {result.status:8} after {result.detect_s} s  "
            f"{verdict.get('code')} {verdict.get('fault_class')} {verdict.get('confidence')} "
            f"{verdict.get('culprits')}  "
            f"[{time.monotonic() - began:.0f} s]  {str(verdict.get('sentence'))[:200]}\n"
        )
        sys.stdout.flush()
    rows = {"platform": platform.platform(), "python": platform.python_version(), "results": [vars(r) for r in results]}
    (args.out / "results.json").write_text(json.dumps(rows, indent=1))
    return 0 if all(r.right for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
