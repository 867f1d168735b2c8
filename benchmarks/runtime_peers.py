"""From a fault to the survivors' next good step, with allready and with other tools on the same training.

python benchmarks/runtime_peers.py --runs 5

Three Gloo ranks train one small model with DistributedDataParallel (torchft: its own, three replica groups of one
rank); rank 1 raises, is killed, or sleeps without end (alive, with heartbeats) when step 20 begins.  Measured is the
time from then to the moment at which the last of the other ranks has made a step that began after the fault; "lost"
means that this did not happen within the limit.  Every tool that is installed runs, the others are left out; the tools
take turns.  `peers/rank.py` has the training and the few lines that each tool asks for.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SIZE, VICTIM = 3, 1
FAULTS = {"raise": "raises an exception", "kill": "SIGKILL", "hang": "sleeps without end"}
LIMITS_S = {"raise": 60.0, "kill": 60.0, "hang": 120.0}
START_S = 120.0
TOOLS = {
    "allready": "allready, deadline 5 s",
    "allready-tuned": "allready, deadline 5 s, recovery 5 s",
    "allready-run": "allready under `allready run`, no deadline, recovery 5 s",
    "torchft": "torchft, defaults",
    "torchft-tuned": "torchft, join 1 s, operations 5 s, quorum 60 s",
    "nvrx": "nvidia-resiliency-ext in-process, defaults",
    "nvrx-tuned": "nvidia-resiliency-ext in-process, soft 5 s, hard 10 s, Gloo 4 s",
}
PACKAGES = {
    "torchft": ("torchft", ("torchft-nightly", "torchft")),
    "nvrx": ("nvidia_resiliency_ext", ("nvidia-resiliency-ext",)),
}


def version_of(tool: str) -> str | None:
    """Of the package behind a tool; None: not installed."""
    family = tool.partition("-")[0]
    if family == "allready":
        return importlib.metadata.version("allready")
    module, names = PACKAGES[family]
    if importlib.util.find_spec(module) is None:
        return None
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "unknown"


class Run:
    """One job of one tool with one fault."""

    def __init__(self, tool: str, fault: str, folder: Path) -> None:
        self._tool, self._fault, self._folder = tool, fault, folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def measured(self) -> float | None:
        """Seconds that the survivors lost; None: they did not go on."""
        try:
            self._start()
            struck_s = self._wait(lambda: self._at("fault", [VICTIM]), START_S)
            if struck_s is None:
                raise RuntimeError(f"{self._tool} did not come to the fault: {self.errors()}")
            others = [r for r in range(SIZE) if r != VICTIM]
            good_s = self._wait(
                lambda: self._at("step", others, after_s=struck_s), LIMITS_S[self._fault], until_end=True
            )
            return None if good_s is None else float(good_s - struck_s)
        finally:
            self._end()

    def errors(self) -> str:
        """The end of what the ranks wrote."""
        return "\n".join(p.read_text(errors="replace")[-1500:] for p in sorted(self._folder.glob("*.err")))

    def _start(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        quiet = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        common = {**quiet, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(SIZE)}
        words = [str(HERE / "peers" / "rank.py"), self._tool, self._fault, str(self._folder)]
        if self._tool == "allready-run":
            launcher = [sys.executable, "-m", "allready", "run", "--nproc-per-node", str(SIZE), "--log-dir"]
            self._popen([*launcher, str(self._folder / "logs"), *words], quiet, "0.err")
            return
        if self._tool.startswith("torchft"):
            join_ms = "60000" if self._tool == "torchft" else "1000"
            lighthouse = [sys.executable, str(HERE / "peers" / "lighthouse.py"), join_ms, str(self._folder / "address")]
            self._popen(lighthouse, common, "lighthouse.err")
            address = self._folder / "address"
            if self._wait(lambda: address.read_text() if address.exists() else None, 30.0) is None:
                raise RuntimeError("torchft's lighthouse did not start")
            common["TORCHFT_LIGHTHOUSE"] = address.read_text()
        for rank in range(SIZE):
            self._popen([sys.executable, *words], {**common, "RANK": str(rank)}, f"{rank}.err")

    def _popen(self, command: list[str], environment: dict[str, str], errors: str) -> None:
        with (self._folder / errors).open("wb") as out:
            self._processes.append(
                subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
            )

    def _at(self, event: str, ranks: list[int], *, after_s: float = -1.0) -> float | None:
        """When the last of these ranks had its first such event that began after then; None: not all had."""
        found: list[float] = []
        for rank in ranks:
            path = self._folder / f"{rank}.jsonl"
            lines = path.read_text().splitlines(keepends=True) if path.exists() else []
            events = [json.loads(line) for line in lines if line.endswith("\n")]
            ends = [e["end_s"] for e in events if e["event"] == event and e["begin_s"] > after_s]
            if not ends:
                return None
            found.append(min(ends))
        return max(found)

    def _wait(self, ask: Any, limit_s: float, *, until_end: bool = False) -> Any:
        until_s = time.monotonic() + limit_s
        while time.monotonic() < until_s:
            found = ask()
            if found is not None:
                return found
            if until_end and sum(p.poll() is None for p in self._processes) == 0:
                return None
            time.sleep(0.05)
        return None

    def _end(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
        for path in self._folder.glob("*.pid"):  # ranks of `allready run` have sessions of their own
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)


def main() -> int:
    """Prints a Markdown table; 1: a job of allready was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tools", nargs="*", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--faults", nargs="*", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no job after so long")
    parser.add_argument("--results", type=Path, help="JSON lines: what is in it counts too, what is found is added")
    given = parser.parse_args()
    begin_s = time.monotonic()
    versions = {tool: version_of(tool) for tool in given.tools}
    found = read(given.results)
    for _ in range(given.runs):
        for fault in given.faults:
            for tool in (t for t in given.tools if versions[t]):
                if time.monotonic() - begin_s > given.minutes * 60:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    run = Run(tool, fault, Path(folder))
                    lost_s = run.measured()
                    found.setdefault((tool, fault), []).append(lost_s)
                    if given.results:
                        with given.results.open("a") as out:
                            out.write(json.dumps({"tool": tool, "fault": fault, "lost_s": lost_s}) + "\n")
                    sys.stderr.write(f"{tool} {fault}: {lost_s}\n{run.errors() if lost_s is None else ''}\n")
    import torch

    print(f"torch {torch.__version__}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    for tool in given.tools:
        print(f"{TOOLS[tool]}: {versions[tool] or 'not installed here'}")
    print("\n| tool | " + " | ".join(FAULTS[f] for f in given.faults) + " |")
    print("| --- |" + " ---: |" * len(given.faults))
    for tool in (t for t in given.tools if versions[t]):
        print(f"| {TOOLS[tool]} | " + " | ".join(shown(found.get((tool, f), [])) for f in given.faults) + " |")
    ours = [v for (tool, _), all_of in found.items() if tool.startswith("allready") for v in all_of]
    return int(None in ours)


def read(results: Path | None) -> dict[tuple[str, str], list[float | None]]:
    """What earlier calls have found: (tool, fault) -> seconds of each run."""
    found: dict[tuple[str, str], list[float | None]] = {}
    for line in results.read_text().splitlines() if results is not None and results.exists() else []:
        one = json.loads(line)
        found.setdefault((one["tool"], one["fault"]), []).append(one["lost_s"])
    return found


def shown(found: list[float | None]) -> str:
    """The median of those that went on, the range, and how many were lost."""
    good = [s for s in found if s is not None]
    text = f"{statistics.median(good):.2f} s ({min(good):.2f} to {max(good):.2f})" if good else ""
    lost = f"lost {len(found) - len(good)} of {len(found)}" if len(good) < len(found) else ""
    return "; ".join(filter(None, [text, lost])) or "not run"


if __name__ == "__main__":
    sys.exit(main())
