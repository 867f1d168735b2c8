"""Run `allready check` on a machine with 4 GPUs and keep what it reported, beside a plain torch loop as reference.

    python benchmarks/record_gpu_checks.py OUT_DIR

One node with all GPUs, two nodes (network namespaces) with two GPUs each and NCCL over sockets, and faults on both.
Writes OUT_DIR/SCENE.nodeN.json (report.json), OUT_DIR/summary.json, and prints a table.  Needs root or user namespaces.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from allready.lab import Lab, probe
from allready.lab.faults import DataPortsDropped, LinkDown, SecondInterface
from allready.lab.lab import end_group

SIZES = [2**n for n in range(20, 31)]
SCENES = {"one", "two", "faults", "jax", "grow", "interfaces"}
PLAIN = """
import json, os, sys
import torch, torch.distributed as dist
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
times = {}
for size in map(int, sys.argv[1:]):
    x = torch.zeros(size // 4, device="cuda")
    iters = 20
    for _ in range(5):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    dist.barrier()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(iters):
        dist.all_reduce(x)
    end.record()
    torch.cuda.synchronize()
    took = torch.tensor([begin.elapsed_time(end) / 1e3 / iters], device="cuda")
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    times[size] = took.item()
if dist.get_rank() == 0:
    print("TIMES " + json.dumps(times), flush=True)
dist.destroy_process_group()
"""

Popen = Callable[..., "subprocess.Popen[str]"]


def say(text: str) -> None:
    """One line on stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def finish(processes: Sequence["subprocess.Popen[str]"], limit_s: float) -> list[str]:
    """Output of all, ended by group at the limit."""
    texts: list[str] = [""] * len(processes)

    def read(i: int) -> None:
        texts[i] = processes[i].communicate()[0]

    threads = [threading.Thread(target=read, args=(i,)) for i in range(len(processes))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    for thread in threads:
        thread.join(10)
    return texts


def plain(
    popens: Sequence[Popen], nproc: int, master: str, sizes: Sequence[int], env: Mapping[str, str]
) -> dict[int, float]:
    """Seconds of one all_reduce by size from a plain torch loop under torchrun on all nodes."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "plain.py"
        script.write_text(PLAIN)
        processes = [
            popen(
                [
                    sys.executable,
                    "-m",
                    "torch.distributed.run",
                    "--nnodes",
                    str(len(popens)),
                    "--node-rank",
                    str(n),
                    "--nproc-per-node",
                    str(nproc),
                    "--master-addr",
                    master,
                    "--master-port",
                    "29600",
                    str(script),
                    *map(str, sizes),
                ],
                env={**env, **visible(n, nproc, len(popens))},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for n, popen in enumerate(popens)
        ]
        texts = finish(processes, 120.0)
    found = re.search(r"TIMES (\{.*\})", texts[0])
    if not found:
        say(texts[0][-3000:])
        return {}
    return {int(k): v for k, v in json.loads(found.group(1)).items()}


def visible(node: int, nproc: int, num_nodes: int) -> dict[str, str]:
    """The GPUs of one node, where several share a machine."""
    if num_nodes == 1:
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(node * nproc + i) for i in range(nproc))}


def check(
    scene: str,
    popens: Sequence[Popen],
    nproc: int,
    master: str,
    out: Path,
    *extra: str,
    env: Mapping[str, str] | None = None,
    disturb: Callable[[str, Sequence["subprocess.Popen[str]"]], None] | None = None,
) -> list[dict[str, Any]]:
    """One check on all nodes; `disturb` sees each line of node 0 and the agents."""
    num_nodes = len(popens)
    files = [out / f"{scene}.node{n}.json" for n in range(num_nodes)]
    processes = [
        popen(
            [
                sys.executable,
                "-m",
                "allready",
                "check",
                "--nnodes",
                str(num_nodes),
                "--node-rank",
                str(n),
                "--nproc-per-node",
                str(nproc),
                "--master-addr",
                master,
                "--master-port",
                "29500",
                "--wait",
                "20",
                "--json",
                str(files[n]),
                "--html",
                str(out / f"{scene}.node{n}.html"),
                *extra,
            ],
            env={**(env or {}), **visible(n, nproc, num_nodes)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for n, popen in enumerate(popens)
    ]
    lines: list[str] = []
    began = time.monotonic()

    def watch() -> None:
        assert processes[0].stdout is not None
        for line in processes[0].stdout:
            lines.append(line)
            if disturb is not None:
                disturb(line, processes)

    watcher = threading.Thread(target=watch)
    watcher.start()
    rest = finish(processes[1:], 150.0)
    watcher.join(max(1.0, 150.0 - (time.monotonic() - began)))
    for process in processes:
        end_group(process)
    watcher.join(5)
    took_s = time.monotonic() - began
    (out / f"{scene}.txt").write_text("".join(lines) + "\n----\n" + "\n----\n".join(rest))
    reports = [json.loads(f.read_bytes()) for f in files if f.exists()]
    for report in reports[:1]:
        verdict = report["verdict"] or {}
        say(
            f"{scene:24} {report['status']:8} {took_s:5.1f} s  {[p.returncode for p in processes]}  "
            f"{verdict.get('code', '')} {verdict.get('fault_class', '')} {verdict.get('culprits', '')} "
            f"detect_s {verdict.get('detect_s', '')}  {verdict.get('sentence', '')[:200]}"
        )
    if not reports:
        say(f"{scene}: no report\n" + "".join(lines)[-3000:])
    return reports


def stop_rank(rank: int, sign: int) -> Callable[[str, Sequence["subprocess.Popen[str]"]], None]:
    """Send a signal to one rank once the sweep runs."""
    done: list[int] = []

    def disturb(line: str, processes: Sequence["subprocess.Popen[str]"]) -> None:
        import psutil

        if "sweep" not in line or done:
            return
        for process in processes:
            for child in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if child.environ().get("RANK") == str(rank) and "rank" in " ".join(child.cmdline()):
                        done.append(child.pid)
                        child.send_signal(sign)
                        return

    return disturb


def compare(name: str, ours: list[list[dict[str, Any]]], plain_s: list[dict[int, float]]) -> list[dict[str, Any]]:
    """Median of the checks beside the median of the plain loops, which ran in turn with them, by size."""
    rows = []
    times: dict[int, list[float]] = {}
    for reports in ours:
        found = reports[0]["collectives"] if reports else None
        for point in found["runs"][0]["points"] if found else []:
            times.setdefault(point["size_bytes"], []).append(point["time_s"])
    for size, measured in sorted(times.items()):
        reference = [p[size] for p in plain_s if size in p]
        if reference:
            ratio = statistics.median(measured) / statistics.median(reference)
            rows.append({"size_bytes": size, "ours_s": measured, "plain_s": reference, "ratio_of_medians": ratio})
            say(
                f"  {name} {size:>11} B  ours {min(measured):.3e} to {max(measured):.3e} s  "
                f"plain {min(reference):.3e} to {max(reference):.3e} s  ratio of medians {ratio:.3f}"
            )
    return rows


def in_turn(
    scene: str, popens: Sequence[Popen], nproc: int, master: str, out: Path, sizes: Sequence[int], times: int
) -> list[dict[str, Any]]:
    """Plain loop, check, plain loop, check, ...: what drifts, drifts for both."""
    ours, reference = [], []
    for turn in range(times):
        reference.append(plain(popens, nproc, master, sizes, {}))
        sweep = ("--min-bytes", str(sizes[0]), "--max-bytes", str(sizes[-1]), "--iters", "20", "--warmup", "5")
        ours.append(check(scene if turn == 0 else f"{scene}_{turn}", popens, nproc, master, out, *sweep))
    return compare(scene, ours, reference)


CHOICES: tuple[dict[str, str], ...] = (
    {},
    {"NCCL_SOCKET_IFNAME": "eth"},
    {"NCCL_SOCKET_IFNAME": "^eth"},
    {"NCCL_SOCKET_IFNAME": "=eth0"},
    {"NCCL_SOCKET_IFNAME": "=eth"},
    {"NCCL_SOCKET_IFNAME": "docker"},
    {"NCCL_SOCKET_IFNAME": "docker0,eth0"},
    {"NCCL_SOCKET_IFNAME": "^docker"},
    {"NCCL_SOCKET_IFNAME": "^lo,docker0"},
    {"NCCL_SOCKET_IFNAME": "nosuch"},
    {"NCCL_SOCKET_FAMILY": "AF_INET6"},
)
CHOICE_CODE = """
import json, os
from allready.facts.live import LiveHost
from allready.facts.names import collect_names
from allready.facts.net import collect_net
from allready.facts.software import collect_software
from allready.facts.transport import collect_transport
host = LiveHost()
net, names = collect_net(host), collect_names(host, "10.77.0.1", timeout_s=3)
version = collect_software(host).versions.get("nccl")
choice = collect_transport(host, net=net, names=names, nccl_version=version).nccl
print("CHOICE " + json.dumps([version, choice.interfaces, choice.addresses, choice.reason, choice.error]))
"""


def interfaces(popen: Popen, scene: str) -> list[dict[str, Any]]:
    """The interfaces that we say NCCL will use beside those that NCCL says it uses."""
    rows = []
    for env in CHOICES:
        argv = [sys.executable, "-c", CHOICE_CODE]
        [said] = finish([popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)], 30.0)
        found = re.search(r"CHOICE (.*)", said)
        ours = json.loads(found.group(1)) if found else [said[-300:]] * 5
        debug = {
            **env,
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET,BOOTSTRAP",
            "CUDA_VISIBLE_DEVICES": "0,1",
            "NCCL_IB_DISABLE": "1",
        }
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "plain.py"
            script.write_text(PLAIN)
            argv = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--nnodes",
                "1",
                "--nproc-per-node",
                "2",
                "--master-addr",
                "10.77.0.1",
                "--master-port",
                "29600",
                str(script),
                "1048576",
            ]
            [text] = finish([popen(argv, env=debug, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)], 60.0)
        bootstrap = re.search(r"Bootstrap ?: Using (\S+?):(\S+?)<", text)
        used = re.search(r"NET/Socket ?: Using (.*)", text)
        names = re.findall(r"\[\d+\]([^:]+):", used.group(1)) if used else None
        warn = re.search(r"NCCL WARN (.*)", text)
        row = {
            "scene": scene,
            "env": env,
            "ours": ours,
            "bootstrap": bootstrap.group(1) if bootstrap else None,
            "data": names,
            "warning": warn.group(1) if warn else None,
        }
        first = ours[1][0] if ours[1] else None
        row["agrees"] = first == row["bootstrap"] and (names is None or list(ours[1]) == names)
        rows.append(row)
        say(
            f"  {scene} {env}: ours {ours[1]} ({ours[4] or ours[3]}); NCCL bootstrap {row['bootstrap']} data {names} "
            f"{row['warning'] or ''} {'AGREES' if row['agrees'] else 'DIFFERS'}"
        )
    return rows


@contextlib.contextmanager
def nodes(num_nodes: int) -> Iterator[tuple[list[Popen], str, Any]]:
    """This machine itself, or a lab of several nodes."""

    def here(argv: Sequence[str], env: Mapping[str, str], **options: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(argv, env={**os.environ, **env}, text=True, start_new_session=True, **options)

    if num_nodes == 1:
        yield [here], "127.0.0.1", None
        return
    with Lab.up(num_nodes, name=f"gpu{os.getpid()}") as lab:

        def at(node: int) -> Popen:
            return lambda argv, env, **options: lab.popen(node, argv, env=env, text=True, **options)

        yield [at(n) for n in range(num_nodes)], lab.view.address(0), lab


LONG = ("--iters", "4000", "--max-bytes", "256M")


def on_one_node(wanted: set[str], out: Path) -> dict[str, Any]:
    """The wanted scenes of one node."""
    summary = {}
    with nodes(1) as (here, master, _):
        if "one" in wanted:
            summary["one_node"] = in_turn("one_node", here, 4, master, out, SIZES, 3)
        if "grow" in wanted:
            check("one_node_grow", here, 4, master, out, "--quick", "--grow")
        if "faults" in wanted:
            check("one_node_stopped", here, 4, master, out, *LONG, disturb=stop_rank(2, signal.SIGSTOP))
            check("one_node_killed", here, 4, master, out, *LONG, disturb=stop_rank(1, signal.SIGKILL))
            check("one_node_same_gpu", here, 2, master, out, "--devices", "0,0")
            env = {"NCCL_SOCKET_IFNAME": "nosuch"}
            check("one_node_isolate", here, 4, master, out, "--quick", "--isolate", env=env)
        if "jax" in wanted:
            check("one_node_jax", here, 4, master, out, "--framework", "jax")
    return summary


def on_two_nodes(wanted: set[str], out: Path) -> dict[str, Any]:
    """The wanted scenes of two nodes."""
    summary: dict[str, Any] = {}
    with nodes(2) as (both, master, lab):
        if "two" in wanted:
            summary["two_nodes"] = in_turn("two_nodes", both, 2, master, out, [s for s in SIZES if s <= 2**27], 3)
        if "faults" in wanted:
            two_node_faults(both, master, lab, out)
        with lab.apply(SecondInterface(nodes=(0, 1))):
            if "interfaces" in wanted:
                summary["interfaces"] = interfaces(both[0], "with docker0")
            if "faults" in wanted:
                check("two_nodes_docker0", both, 2, master, out, "--quick", env={"NCCL_SOCKET_IFNAME": "docker0"})
        if "faults" in wanted and probe(packet_filters=True) is None:
            with lab.apply(DataPortsDropped(node=1)):
                check("two_nodes_data_ports", both, 2, master, out, "--quick")
    return summary


def two_node_faults(both: list[Popen], master: str, lab: Any, out: Path) -> None:
    """A stopped rank, a killed one, and a link that goes down in the sweep."""
    check("two_nodes_stopped", both, 2, master, out, *LONG, disturb=stop_rank(3, signal.SIGSTOP))
    check("two_nodes_killed", both, 2, master, out, *LONG, disturb=stop_rank(2, signal.SIGKILL))
    pulled: list[Any] = []

    def pull(line: str, _: Any) -> None:
        if "sweep" in line and not pulled:
            pulled.append(lab.apply(LinkDown(node=1)))

    check("two_nodes_link_down", both, 2, master, out, *LONG, disturb=pull)
    for fault in pulled:
        fault.undo()


def main() -> int:
    """All scenes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help=f"comma list of {', '.join(sorted(SCENES))}")
    args = parser.parse_args()
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    wanted = set(args.only.split(",")) if args.only else SCENES
    summary = on_one_node(wanted, out)
    why = probe()
    if why is not None:
        say(f"no namespaces here: {why}")
    elif wanted & {"two", "faults", "interfaces"}:
        summary |= on_two_nodes(wanted, out)
    (out / "summary.json").write_text(json.dumps(summary, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
