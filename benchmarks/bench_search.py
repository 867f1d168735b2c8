"""`allready bench pairs` and `bisect` on eight nodes whose links have a rate: who is named, and who is not.

    python benchmarks/bench_search.py OUT.json [--what bisect,pairs] [--runs 3] [--healthy 20] [--noise 0.1]

Needs root (network namespaces, token buckets).  `--runs` plays of each loss (20, 50 and 90 % of one link's rate, the
node drawn by chance), and `--healthy` plays without a slow link.  In every play each link has a rate of its own, drawn
within half of `--noise` around 80 Mbit/s, and what a node may send is drawn again within as much of it every second.
The table says how often the slow node was named, how often another one was, and in how many rounds.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.lab.checks import check

from allready.errors import AllreadyError
from allready.lab import Lab
from allready.lab.faults import SlowLink

RATE_MBIT_PER_S = 80.0
NUM_NODES = 8
LOSSES = (0.2, 0.5, 0.9)
CODES = {"pairs": "BEN004", "bisect": "BEN006"}
AGAIN_S = 1.0


@contextmanager
def varied(lab: Lab, rates: list[float], noise: float, chance: random.Random) -> Iterator[None]:
    """Every link's rate changes all the time."""
    over = threading.Event()

    def draw() -> None:
        while not over.wait(AGAIN_S):
            for node, rate in enumerate(rates):
                mbit = rate * (1 + chance.uniform(-noise, noise) / 2)
                burst = max(int(mbit * 500), 6000)
                words = (
                    f"tc qdisc change dev eth0 root handle 1: tbf rate {mbit:.3f}mbit burst {burst} limit {13 * burst}"
                )
                with suppress(AllreadyError):  # the lab is busy, or the link has no rate yet
                    lab.run(node, words.split())

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def play(
    lab: Lab, folder: Path, what: str, slow: dict[int, float], noise: float, chance: random.Random
) -> dict[str, Any]:
    """One search; who was named in it, and in how many rounds."""
    rates = [RATE_MBIT_PER_S * slow.get(n, 1.0) * (1 + chance.uniform(-noise, noise) / 2) for n in range(NUM_NODES)]
    links = [SlowLink(node=node, rate_mbit_per_s=rate) for node, rate in enumerate(rates)]
    began = time.monotonic()
    seen = check(
        lab, folder, links, extra=("--max-bytes", "256K", "--backend", "gloo", what), num_nodes=NUM_NODES,
        timeout_s=250.0, command="bench",
    )[0]  # fmt: skip
    run = seen.report["collectives"]["runs"][0]
    hits = [f for f in seen.report["findings"] if f["code"] in CODES.values()]
    return {
        "what": what,
        "slow": slow,
        "rates": [round(rate, 2) for rate in rates],
        "named": sorted({n for f in hits for n in f["culprits"]["nodes"]}),
        "links": [link for f in hits for link in f["culprits"]["links"]],
        "codes": sorted({f["code"] for f in seen.report["findings"] if f["severity"] != "info"}),
        "num_rounds": 1 + max((g["round"] for g in run["groups"]), default=-1),
        "groups": [[g["round"], g["members"], g["gb_per_s"], round(g["noise_share"], 4)] for g in run["groups"]],
        "pairs": [[p["sender"], p["receiver"], p["gb_per_s"]] for p in run["pairs"]],
        "seconds": round(time.monotonic() - began, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def verdict(found: dict[str, Any]) -> str:
    """right, missed or wrong."""
    named = set(found["named"])
    if found["links"] or named - set(found["slow"]):
        return "wrong"
    return "right" if named == set(found["slow"]) else "missed"


def table(plays: list[dict[str, Any]]) -> Iterator[str]:
    """A row for each kind of play."""
    yield "| search | link | plays | right | missed | another named | rounds | seconds (median) | load |"
    kinds = sorted({(p["what"], next(iter(p["slow"].values()), 1.0)) for p in plays}, key=lambda k: (k[0], -k[1]))
    for what, share in kinds:
        of = [p for p in plays if p["what"] == what and next(iter(p["slow"].values()), 1.0) == share]
        counts = {word: sum(verdict(p) == word for p in of) for word in ("right", "missed", "wrong")}
        link = "all alike" if share == 1.0 else f"one at {share:.0%}"
        yield (
            f"| {what} | {link} | {len(of)} | {counts['right']} | {counts['missed']} | {counts['wrong']} | "
            f"{max(p['num_rounds'] for p in of) or '-'} | {statistics.median(p['seconds'] for p in of):.0f} | "
            f"{min(p['load'] for p in of)}-{max(p['load'] for p in of)} |"
        )


def main() -> int:
    """All plays; written after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--what", default="bisect,pairs")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--healthy", type=int, default=20)
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--losses", default=",".join(map(str, LOSSES)))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)  # noqa: S311 - no secret
    plays: list[dict[str, Any]] = []
    losses = [float(word) for word in args.losses.split(",") if word]
    wanted = [
        (what, slow)
        for what in args.what.split(",")
        for slow in [
            *({chance.randrange(NUM_NODES): round(1 - loss, 3)} for loss in losses for _ in range(args.runs)),
            *({} for _ in range(args.healthy)),
        ]
    ]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lab = stack.enter_context(Lab.up(NUM_NODES, name=f"search{os.getpid()}"))
        for number, (what, slow) in enumerate(wanted):
            with ExitStack() as noise:
                if args.noise:
                    rates = [RATE_MBIT_PER_S * slow.get(n, 1.0) for n in range(NUM_NODES)]
                    noise.enter_context(varied(lab, rates, args.noise, chance))
                plays.append(play(lab, folder / str(number), what, slow, args.noise, chance))
            sys.stdout.write(f"{verdict(plays[-1])}: {plays[-1]}\n")
            sys.stdout.flush()
            args.out.write_text(json.dumps({"noise": args.noise, "plays": plays}, indent=1) + "\n")
    sys.stdout.write("\n".join(table(plays)) + "\n")
    return 0 if all(verdict(p) != "wrong" for p in plays) else 1


if __name__ == "__main__":
    sys.exit(main())
