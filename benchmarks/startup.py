"""What a start costs, as a ratio to another checkout of this repository.

    python benchmarks/startup.py --against ../allready-before
    python benchmarks/startup.py --against ../allready-before --repeat 30 --save benchmarks/results/startup.json

Each command runs in turn with the interpreters of both checkouts (`.venv/bin/python` of each), so that both see the
same machine at the same time.  CPU seconds of the process and its children, user and system; the ratio is that of the
medians.  Both are compiled before, as an installed package is.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ARCHIVE = Path("tests/fixtures/runs/sigstop.tar.xz")
COMMANDS: dict[str, tuple[str, ...]] = {
    "diagnose -q of a recorded run": ("diagnose", "-q", str(ARCHIVE)),
    "diagnose -q of a line": ("diagnose", "-q", "{line}"),
    "--help": ("--help",),
    "--version": ("--version",),
}


def cpu_s(checkout: Path, arguments: tuple[str, ...]) -> float:
    """CPU seconds of one command, run in its checkout."""
    argv = [str(checkout / ".venv" / "bin" / "python"), "-m", "allready", *arguments]
    with subprocess.Popen(argv, cwd=checkout, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 1), errors.decode("utf-8", "replace")
    return usage.ru_utime + usage.ru_stime


def compare(other: Path, repeat: int, line: Path) -> dict[str, dict[str, float]]:
    """Medians of both checkouts for each command, and their ratio (this one's by the other's)."""
    found: dict[str, dict[str, float]] = {}
    for name, arguments in COMMANDS.items():
        argv = tuple(argument.format(line=line) for argument in arguments)
        times: dict[Path, list[float]] = {ROOT: [], other: []}
        for number in range(repeat + 1):
            for checkout in (ROOT, other) if number % 2 else (other, ROOT):
                took_s = cpu_s(checkout, argv)
                if number:  # the first one fills caches
                    times[checkout].append(took_s)
        ours, theirs = statistics.median(times[ROOT]), statistics.median(times[other])
        lowest = min(times[ROOT]) / min(times[other])
        found[name] = {
            "cpu_s": round(ours, 4), "other_cpu_s": round(theirs, 4), "ratio": round(ours / theirs, 3),
            "ratio_of_lowest": round(lowest, 3),
        }  # fmt: skip
        sys.stdout.write(f"{name:32} {ours:7.3f} s  other {theirs:7.3f} s  ratio {ours / theirs:5.2f}\n")
        sys.stdout.flush()
    return found


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    other = options.against.resolve()
    for checkout in (ROOT, other):
        subprocess.run([checkout / ".venv/bin/python", "-m", "compileall", "-q", checkout / "src"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        line = Path(folder) / "one.log"
        line.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", encoding="utf-8")
        result: dict[str, Any] = {"load": os.getloadavg()[0], "repeat": options.repeat}
        result["commands"] = compare(other, options.repeat, line)
    if options.save is not None:
        options.save.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
