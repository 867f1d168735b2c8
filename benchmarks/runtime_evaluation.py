"""Faults in evaluations and in the last barrier, with and without allready.

.venv/bin/python benchmarks/runtime_evaluation.py --seeds 25

Four Gloo ranks train with DDP and evaluate every six steps.  Per fault and seed one job under the runtime library and
one with plain torch; the fault strikes another rank, evaluation and batch with every seed.  A job finishes if every
rank that was not itself stopped or killed does all its steps and ends with 0.  Under the library there must be, too:
losses as without the fault (up to the evaluation where a rank is lost), the same outcome of every evaluation on all
ranks, records with the right verdict, and results of the other evaluations as one process computes them.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.runtime.evaluating import FAULTS, TITLES, fault_of, finishes, jobs, problems


def main() -> int:
    """Returns 1 where something was wrong under the library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--faults", nargs="*", default=list(FAULTS))
    parser.add_argument("--plain-seeds", type=int, default=25, help="as many of them with plain torch as well")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no job after so long")
    given = parser.parse_args()
    begin_s = time.monotonic()
    counts = {kind: [0, 0, 0, 0, 0] for kind in given.faults}  # jobs, finished, right; plain: jobs, finished
    with jobs() as runner:
        for number in range(given.seeds):
            for kind, count in counts.items():
                if time.monotonic() - begin_s > given.minutes * 60:
                    break
                seed = given.first_seed + number
                faults = [fault_of(kind, seed)]
                found = runner.run(seed=seed, faults=faults)
                wrong = problems(found)
                count[0] += 1
                count[1] += finishes(found)
                count[2] += not wrong
                for text in wrong:
                    print(f"{kind}, seed {seed}: {text}", flush=True)
                if number < given.plain_seeds:
                    count[3] += 1
                    count[4] += finishes(runner.run(seed=seed, faults=faults, plain=True))
            passed_s = time.monotonic() - begin_s
            print(f"seed {number + 1} after {passed_s:.0f} s: {counts}", file=sys.stderr, flush=True)
    import torch

    print(f"torch {torch.__version__}\n")
    print("| fault | jobs | finished | and all as it must be | plain torch: jobs | finished |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for kind, count in counts.items():
        print(f"| {TITLES[kind]} | {' | '.join(map(str, count))} |")
    return int(any(count[0] != count[2] for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
