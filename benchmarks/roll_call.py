"""How long the roll call and the comparison of facts take for N nodes, as N processes on this machine.

    python benchmarks/roll_call.py --nodes 64

Every node is a real `allready check --stages roll,facts` process; all meet at 127.0.0.1.  Prints the wall time from the
first start to the last end, the CPU time of all processes, and the bytes that node 0's connections carried.
"""

import argparse
import json
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def free_port() -> int:
    """A TCP port no rank listens on right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def main() -> int:
    """Run once and print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--limit-s", type=float, default=120.0)
    args = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        nodes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "allready",
                    "check",
                    "--nnodes",
                    str(args.nodes),
                    "--node-rank",
                    str(rank),
                    "--nproc-per-node",
                    "1",
                    "--master-addr",
                    "127.0.0.1",
                    "--master-port",
                    str(port),
                    "--stages",
                    "roll,facts",
                    "--quiet",
                    "--json",
                    f"{folder}/{rank}.json",
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for rank in range(args.nodes)
        ]
        codes: list[int] = []
        try:
            codes.extend(node.wait(timeout=max(1.0, args.limit_s - (time.monotonic() - began))) for node in nodes)
        except subprocess.TimeoutExpired:
            codes.append(-1)
        finally:
            for node in nodes:
                if node.poll() is None:
                    os.killpg(node.pid, signal.SIGKILL)
                    node.wait()
        wall_s = time.monotonic() - began
        reports = [json.loads(p.read_bytes()) for p in sorted(Path(folder).glob("*.json"))]
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    statuses = {r["status"] for r in reports}
    figures = {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "nodes": f"{args.nodes}; {len(reports)} reports, {sorted(statuses)}, exit codes {sorted(set(codes))}",
        "wall_s": f"{wall_s:.2f}",
        "cpu_s": f"{usage.ru_utime + usage.ru_stime:.2f}",
    }
    sys.stdout.write("".join(f"{name:8} {figure}\n" for name, figure in figures.items()))
    return 0 if set(codes) == {0} else 1


if __name__ == "__main__":
    sys.exit(main())
