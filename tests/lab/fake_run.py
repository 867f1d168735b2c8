"""A stand-in for `allready run` with the same command line: no ranks, a report that says what FAKE asks for.

FAKE is JSON: {"say": verdict or null, "status": ..., "after_s": ..., "early": verdict, "hide": true, "end": true}.
Node 0 writes the ground truth of the first planned fault and the marks of all ranks, as a real job's injector would.
"""

import argparse
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def write_report(folder: Path, status: str, verdict: dict[str, Any] | None) -> None:
    full = None
    if verdict is not None:
        full = {"code": "X001", "confidence": "certain", "sentence": "it is so", "detect_s": 1.0, **verdict}
        full["culprits"] = {"nodes": [], "ranks": [], "links": [], "variables": [], **verdict.get("culprits", {})}
    report: dict[str, Any] = {
        "schema": "allready.report/1",
        "status": status,
        "verdict": full,
        "findings": [],
        "world": {"world_size": 4},
    }
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / ".new"
    temporary.write_text(json.dumps(report))
    temporary.replace(folder / "report.json")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("nnodes", "node-rank", "nproc-per-node", "master-port"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--master-addr")
    parser.add_argument("--report-dir", type=Path)
    parser.add_argument("--grace")
    args, _ = parser.parse_known_args()
    wish = json.loads(os.environ["FAKE"])
    if wish.get("hide"):
        subprocess.Popen(["setsid", "sleep", "1000"])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if args.node_rank == 0:
        play(args, wish)
    time.sleep(0 if wish.get("end") else 100)


def play(args: argparse.Namespace, wish: dict[str, Any]) -> None:
    plan = json.loads(Path(os.environ["ALLREADY_LAB_INJECT"]).read_text())
    marks = Path(os.environ["ALLREADY_LAB_TIMES"])
    world = args.nnodes * args.nproc_per_node

    def enter() -> None:
        for rank in range(world):
            (marks / f"enter-{rank}").write_bytes(struct.pack("<qd", 10, time.time()))

    write_report(args.report_dir, "healthy", None)
    enter()
    if wish.get("early"):
        write_report(args.report_dir, "fault", wish["early"])
        time.sleep(0.6)
        write_report(args.report_dir, "healthy", None)
    for fault in plan["faults"]:
        told = {
            "id": fault["id"],
            "kind": fault["kind"],
            "rank": fault["rank"],
            "step": fault["step"],
            "status": wish.get("truth", "injected"),
            "injected_s": time.time(),
            "why": "a test",
        }
        (Path(plan["folder"]) / f"fault-{fault['id']}.{fault['rank']}.json").write_text(json.dumps(told))
    time.sleep(float(wish.get("after_s", 0.2)))
    if wish.get("garbage"):
        (args.report_dir / "report.json").write_text("{half")
        time.sleep(0.5)
    if wish.get("status"):
        write_report(args.report_dir, wish["status"], wish.get("say"))
    sys.stdout.write("said\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
