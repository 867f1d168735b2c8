"""How long `doctor` and `doctor --prolog` take on CPUs that others want as well.

    python benchmarks/doctor_time.py [--loops 0,8,16,24] [--runs 5]

Starts that many busy loops, runs each command with and without the right to go first, and prints the median, the
longest run, and how many could judge in time.  Without: all capabilities are given up, as any user has none (needs
setpriv).
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

COMMANDS = (("doctor", ()), ("doctor --prolog", ("--prolog",)))
WITHOUT = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
LIMIT_S = 120


@contextmanager
def loops(number: int) -> Iterator[None]:
    """So many processes that want a CPU all the time."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        time.sleep(0.5 if number else 0)
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def run(arguments: Sequence[str], before: Sequence[str]) -> tuple[float, bool]:
    """The wall time of one run, from its start to its end, and whether it judged at all."""
    argv = [*before, sys.executable, "-m", "allready", "doctor", *arguments]
    started = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return time.monotonic() - started, "not looked at:" not in done.stdout + done.stderr


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loops", default="0,8,16,24")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    users: dict[str, Sequence[str]] = {"root": ()} if os.geteuid() == 0 else {}
    users |= {"without rights": WITHOUT} if shutil.which("setpriv") else {}
    print(f"{os.cpu_count()} CPUs; load at the start {os.getloadavg()[0]:.1f}")
    for name, options in COMMANDS:
        for user, before in users.items():
            for number in map(int, arguments.loops.split(",")):
                with loops(number):
                    found = [run(options, before) for _ in range(arguments.runs)]
                taken, judged = [took_s for took_s, _ in found], sum(has_judged for _, has_judged in found)
                row = f"{statistics.median(taken):5.2f} s, {max(taken):5.2f} s at most, {judged} of {len(found)} judged"
                print(f"{name:16} {user:15} {number:3} loops: {row}", flush=True)


if __name__ == "__main__":
    main()
