"""How fast survivors go on: python benchmarks/runtime_recovery.py [--device cuda] [--runs 10]

Four ranks, one job per run and fault; all ranks of a GPU job share one GPU.  `lost_s`: from the fault (a killed rank,
an exception) or from the deadline (a stopped or late rank) to the last survivor's next good collective.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.clock import until
from tests.runtime.job import Job

TIMEOUT_S = 2.0
VICTIM = 2
HARD, WAITS = {"kill", "stop"}, {"stop", "sleep"}


def one_rejoin(folder: Path, device: str) -> float:
    """From the signal that wakes a rank, which the others went on without, to the last rank's next good collective."""
    fault: dict[str, Any] = {"rank": VICTIM, "kind": "stop", "step": 10}
    plan: dict[str, Any] = {
        "steps": 400,
        "timeout_s": 1.0,
        "device": device,
        "rejoin": True,
        "least": 4,
        "pace_s": 0.01,
    }
    with Job(folder, 4, faults=[fault], **plan) as job:
        others = [r for r in range(4) if r != VICTIM]
        until(lambda: all(job.has(r, "good") for r in others), 100.0)
        time.sleep(0.5)
        begin_s = time.monotonic()
        job.wake(VICTIM)
        job.wait(list(range(4)))
        return round(max(float(job.last(r, "good")["at_s"]) for r in range(4)) - begin_s, 3)


def one(folder: Path, kind: str, device: str) -> float:
    """One job."""
    if kind == "rejoin":
        return one_rejoin(folder, device)
    fault: dict[str, Any] = {"rank": VICTIM, "kind": kind, "step": 10, "s": TIMEOUT_S + 1.0}
    with Job(folder, 4, faults=[fault], steps=20, timeout_s=TIMEOUT_S, device=device) as job:
        others = [r for r in range(4) if r != VICTIM or kind not in HARD]
        job.wait(others)
        good_s = max(job.last(r, "good")["at_s"] for r in others)
        failed = [job.last(r, "failed") for r in others if r != VICTIM]
        deadline_s = min(f["at_s"] - f["blocked_s"] for f in failed) + TIMEOUT_S
        begin_s = deadline_s if kind in WAITS else job.last(VICTIM, "fault")["at_s"]
        return round(float(good_s - begin_s), 3)


def main() -> int:
    """Prints one JSON object per fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--kinds", nargs="*", default=["kill", "stop", "raise", "sleep", "rejoin"])
    given = parser.parse_args()
    for kind in given.kinds:
        lost_s, wrong = [], []
        for _ in range(given.runs):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    lost_s.append(one(Path(folder), kind, given.device))
                except AssertionError as error:
                    wrong.append(str(error)[:2000])
        median_s = statistics.median(lost_s) if lost_s else None
        print(json.dumps({"fault": kind, "median_s": median_s, "lost_s": sorted(lost_s), "wrong": wrong}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
