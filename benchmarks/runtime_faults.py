"""Random faults on four Gloo ranks under the runtime library: .venv/bin/python benchmarks/runtime_faults.py --jobs 20

Each job has exceptions, ranks that come around the deadline, and at its end mostly a rank that is killed, stopped and
woken after the others went on, or ends by an exception.  Counted are faults that struck, and jobs in which two
survivors had different outcomes, a rank waited longer than its deadline and 2 s, a sum was wrong or a job did not end.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.runtime.random_faults import run, run_large, run_rejoining


def main() -> int:
    """Returns 1 where something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--faults", type=int, default=20, help="exceptions and late ranks per job")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no job after so long")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: NCCL, all ranks on one GPU")
    parser.add_argument("--mesh", action="store_true", help="collectives over the rows and columns of a mesh of 2x2")
    parser.add_argument("--in-flight", action="store_true", help="two asynchronous calls at a time")
    parser.add_argument("--adopted", action="store_true", help="torch makes the group, the first call takes it over")
    parser.add_argument("--rejoin", action="store_true", help="stopped ranks wake, killed ones are started again")
    parser.add_argument("--differ", action="store_true", help="ranks make other calls: sizes, types, operations, order")
    parser.add_argument("--large", action="store_true", help="ranks are killed and stopped inside of large transfers")
    parser.add_argument("--plain", action="store_true", help="with --large: by torch's own calls")
    parser.add_argument("--mib", type=int, help="with --large: the size of each tensor; by default 4, 16 or 64")
    given = parser.parse_args()
    begin_s = time.monotonic()
    faults = jobs = bad = 0
    for seed in range(given.first_seed, given.first_seed + given.jobs):
        if time.monotonic() - begin_s > given.minutes * 60:
            break
        with tempfile.TemporaryDirectory() as folder:
            if given.large:
                more = {"mesh": given.mesh, "in_flight": given.in_flight, "plain": given.plain, "mib": given.mib}
                struck, problems = run_large(Path(folder), seed, given.faults, **more)
            elif given.rejoin:
                struck, problems = run_rejoining(Path(folder), seed, given.faults, device=given.device)
            else:
                more = {"mesh": given.mesh, "in_flight": given.in_flight, "differ": given.differ}
                more |= {"adopted": given.adopted}
                struck, problems = run(Path(folder), seed, given.faults, device=given.device, **more)
        jobs, faults, bad = jobs + 1, faults + struck, bad + bool(problems)
        for problem in problems:
            print(f"seed {seed}: {problem}")
        print(f"seed {seed}: {struck} faults; so far {faults} in {jobs} jobs, {bad} bad", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
