"""How well good ends are distinguished from cut logs, on a folder of logs whose ends are known.

    python benchmarks/good_ends.py logs.tsv [--misses]

`logs.tsv` has a line for each log: its path from the table's folder, and how it ended ("good", "cut", "bad").  Each
good log of at least 30 lines is also cut at six random places, half of them in the middle of a line, and right behind
lines that read like an end: up to two each of checkpoints, evaluations, full bars, the best so far, what is done, and
rules.  (Some of these stand behind the last work of the run, where "good" is right.)  Printed is how many of each kind
are called good.
"""

import argparse
import csv
import hashlib
import io
import random
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret

_NUM_CUTS = 6
_MIN_LINES = 30
_MAX_CUT_BYTES = 20
_MAX_PER_SIGN, _MAX_LINE_BYTES = 2, 400
_SIGNS = {
    "checkpoint": rb"checkpoint|\bsav(?:ed|ing)\b",
    "evaluation": rb"(?i)\b(?:val|eval|valid|validation|test)\w*[ _-]*(?:acc|loss|f1|miou|map|ppl|bleu|auc)|accuracy|"
    rb"weighted avg|mAP",
    "full bar": rb"100%\|",
    "best": rb"(?i)\bbest\b|early",
    "done": rb"(?i)\b(?:done|finished|completed?|total time|elapsed)\b",
    "rule": rb"(?i)^\W*(?:=|-|#|\*){3,}",
}
"""What a line shows that reads like an end."""

Found = tuple[str, str, bool]
"""Its name, its kind, whether its end is called good."""


def cuts(text: bytes) -> Iterator[tuple[str, bytes]]:
    """The log, cut at random places, of which every second is in the middle of a line, and behind what looks like an
    end."""
    lines = re.split(rb"(?<=[\n\r])", text)
    if len(lines) < _MIN_LINES:
        return
    draw = random.Random(hashlib.sha256(text).digest())  # noqa: S311
    for at in range(_NUM_CUTS):
        num = max(5, int(len(lines) * draw.uniform(0.05, 0.95)))
        cut = b"".join(lines[:num])
        cut_bytes = draw.randint(1, max(1, min(_MAX_CUT_BYTES, len(lines[num - 1]) - 1)))
        yield "random cut", cut[:-cut_bytes] if at % 2 else cut
    margin = max(5, len(lines) // 20)
    for sign, pattern in _SIGNS.items():
        places = [n for n in range(margin, len(lines) - margin) if re.search(pattern, lines[n][:_MAX_LINE_BYTES])]
        for at in draw.sample(places, min(_MAX_PER_SIGN, len(places))):
            yield f"cut: {sign}", b"".join(lines[: at + 1])


def read(row: tuple[Path, str]) -> list[Found]:
    """One log and its cuts."""
    path, kind = row
    text = path.read_bytes()
    found = []
    for name, one in [(kind, text), *(cuts(text) if kind == "good" else ())]:
        end = interpret(scan(io.BytesIO(one)), path.name, mtime_s=None).closing
        found.append((path.name, name, end is not None and end.is_good))
    return found


def main() -> None:
    """Print what is found of each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--misses", action="store_true", help="print also the good logs that are not called good")
    options = parser.parse_args()
    with options.table.open(encoding="utf-8") as lines:
        rows = [(options.table.parent / row[0], row[1]) for row in csv.reader(lines, delimiter="\t")]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = [one for some in pool.map(read, rows, chunksize=4) for one in some]
    num = Counter(kind for _, kind, _ in found)
    good = Counter(kind for _, kind, is_good in found if is_good)
    for kind, of_all in num.items():
        print(f"{kind:15} {of_all:6} called good {good[kind]:5} ({good[kind] / of_all:.1%})")
    if options.misses:
        print(*(name for name, kind, is_good in found if kind == "good" and not is_good), sep="\n")


if __name__ == "__main__":
    main()
