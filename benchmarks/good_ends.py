"""How well good ends are told from cut logs, on a folder of logs whose ends are known; fits `likeness.toml`.

    python benchmarks/good_ends.py logs.tsv              measures by cross-validation
    python benchmarks/good_ends.py logs.tsv --write      fits the weights to all of them and writes the table
    python benchmarks/good_ends.py logs.tsv --as-is      measures the table as it is, without fitting

`logs.tsv` has a line for each log: its path from the table's folder, how it ended ("good", "cut", "bad") and a group.
Logs of one group (a repository, a person) are alike, so a group is either fitted to or measured, never both.  Each good
log is also cut at six random places, half of them in the middle of a line.  A log of which the rules say how it ended
is never scored; "with rules" counts what either calls good.
"""

import argparse
import csv
import hashlib
import io
import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from allready.evidence.lines.scan import scan
from allready.evidence.log import closing, interpret, likeness
from allready.model import ClosingKind

TABLE = Path(likeness.__file__).with_name("likeness.toml")
_NUM_CUTS = 6
_MIN_LINES = 30
_MAX_CUT_BYTES = 20
_NUM_FOLDS = 10
_WEIGHT_OF_A_CUT = 0.25
_MAX_OF_A_GROUP = {"good": 4, "random cut": 12}
"""Logs of one group weigh as much as so many together: else a repository with many decides."""

_L2 = 20.0
_STEPS = 60
_SHARES = (0.01, 0.015, 0.02, 0.025, 0.03)

Vector = npt.NDArray[np.float64]


class Log(NamedTuple):
    """`is_told`: a rule says that it ended well; `is_open`: no rule says how it ended."""

    path: str
    kind: str
    group: str
    is_told: bool
    is_open: bool
    features: dict[str, float]


def cuts(text: bytes) -> Iterator[bytes]:
    """The log, cut at random places, of which every second is in the middle of a line."""
    lines = re.split(rb"(?<=[\n\r])", text)
    if len(lines) < _MIN_LINES:
        return
    draw = random.Random(hashlib.sha256(text).digest())  # noqa: S311
    for at in range(_NUM_CUTS):
        num = max(5, int(len(lines) * draw.uniform(0.05, 0.95)))
        cut = b"".join(lines[:num])
        yield cut[: -draw.randint(1, max(1, min(_MAX_CUT_BYTES, len(lines[num - 1]) - 1)))] if at % 2 else cut


def read(row: tuple[Path, str, str]) -> list[Log]:
    """One log and its cuts."""
    path, kind, group = row
    text = path.read_bytes()
    texts = [(kind, text), *(("random cut", cut) for cut in (cuts(text) if kind == "good" else ()))]
    likeness.weights = lambda: likeness.Weights(0.0, -math.inf, {})  # type: ignore[assignment]  # all that are open
    made = []
    for name, one in texts:
        scanned = scan(io.BytesIO(one))
        end = interpret(scanned, path.name, mtime_s=None).closing
        is_told = end is not None and end.is_good
        is_open = end is not None and end.kind is ClosingKind.LIKE
        made.append(Log(path.name, name, group, is_told, is_open, closing.features(scanned)))
    return made


def fit(values: Vector, is_good: Vector, importance: Vector) -> Vector:
    """The weights of a logistic regression with a penalty, the start first, on the scale of the features."""
    mean, spread = values.mean(0), values.std(0) + 1e-6
    scaled = np.column_stack((np.ones(len(values)), (values - mean) / spread))
    weights = np.zeros(scaled.shape[1])
    penalty = np.eye(len(weights)) * _L2
    penalty[0, 0] = 0.0
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(scaled @ weights, -30, 30)))
        slope = scaled.T @ (importance * (is_good - chance)) - penalty @ weights
        bend = (scaled * (importance * chance * (1 - chance))[:, None]).T @ scaled + penalty
        step = np.linalg.solve(bend, slope)
        weights += step
        if np.abs(step).max() < 1e-6:
            break
    plain = weights[1:] / spread
    return np.concatenate(([weights[0] - plain @ mean], plain))


def importance_of(logs: Sequence[Log]) -> Vector:
    """Good ones count whoever tells their end; others only where the rules leave it open; all only with features."""
    of_group = Counter((log.group, log.kind) for log in logs)
    return np.array(
        [
            bool(log.features)
            * (log.kind == "good" or log.is_open)
            * (_WEIGHT_OF_A_CUT if log.kind == "random cut" else 1.0)
            * min(1.0, _MAX_OF_A_GROUP.get(log.kind, 4) / of_group[log.group, log.kind])
            for log in logs
        ]
    )


def matrix(logs: Sequence[Log], names: Sequence[str]) -> Vector:
    """A row for each log, a column for each feature."""
    return np.array([[log.features.get(name, 0.0) for name in names] for log in logs])


def cross_validated(logs: Sequence[Log], names: Sequence[str]) -> Vector:
    """The score of each log by weights that were fitted without its group."""
    values, is_good = matrix(logs, names), np.array([float(log.kind == "good") for log in logs])
    importance = importance_of(logs)
    groups = sorted({log.group for log in logs})
    random.Random(1).shuffle(groups)  # noqa: S311
    fold = {group: at % _NUM_FOLDS for at, group in enumerate(groups)}
    folds = np.array([fold[log.group] for log in logs])
    scores = np.zeros(len(logs))
    for number in range(_NUM_FOLDS):
        is_out = folds == number
        weights = fit(values[~is_out], is_good[~is_out], importance[~is_out])
        scores[is_out] = weights[0] + values[is_out] @ weights[1:]
    return scores


def least(logs: Sequence[Log], scores: Vector, share: float) -> float:
    """From which score on `share` of the random cuts would be called good."""
    of_cuts = [score if log.is_open else -math.inf for log, score in zip(logs, scores, strict=True)]
    ranked = sorted((s for s, log in zip(of_cuts, logs, strict=True) if log.kind == "random cut"), reverse=True)
    return ranked[int(share * len(ranked))] if ranked else math.inf


def shown(logs: Sequence[Log], scores: Vector, bound: float) -> dict[str, str]:
    """Of each kind how many are called good: by the rules, and with the score."""
    found = {}
    for kind in ("good", "random cut", "cut", "bad"):
        of_kind = [(log, score) for log, score in zip(logs, scores, strict=True) if log.kind == kind]
        told = sum(log.is_told for log, _ in of_kind)
        both = sum(log.is_told or (log.is_open and score > bound) for log, score in of_kind)
        found[kind] = f"{told} -> {both} of {len(of_kind)} ({both / max(1, len(of_kind)):.1%})"
    return found


def write(names: Sequence[str], weights: Vector, bound: float) -> None:
    """Put the numbers into the table; its words stay."""
    text = TABLE.read_text(encoding="utf-8")
    by_name = dict(zip(names, weights[1:].tolist(), strict=True))
    text = re.sub(r"(?m)^start = .*$", f"start = {weights[0]:.2f}", text)
    text = re.sub(r"(?m)^least = .*$", f"least = {bound:.2f}", text)
    text = re.sub(
        r'(?m)^(name = "(\w+)"\nweight = ).*$', lambda match: f"{match[1]}{by_name.get(match[2], 0.0):.2f}", text
    )
    TABLE.write_text(text, encoding="utf-8")


def read_all(table: Path, jobs: int) -> list[Log]:
    """All logs of a table, or what `--save` kept of them."""
    if table.suffix == ".json":
        return [Log(**one) for one in json.loads(table.read_text(encoding="utf-8"))]
    with table.open(encoding="utf-8") as lines:
        rows = [(table.parent / file, kind, group) for file, kind, group in csv.reader(lines, delimiter="\t")]
    with ProcessPoolExecutor(jobs) as pool:
        return [log for some in pool.map(read, rows, chunksize=4) for log in some]


def main() -> None:
    """Measure, and fit where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--as-is", action="store_true")
    parser.add_argument("--share", type=float, default=0.02, help="of the random cuts that may be called good besides")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--misses", action="store_true", help="good logs that are not called good")
    parser.add_argument(
        "--save", type=Path, help="what is found of all logs, as JSON: may be given instead of logs.tsv"
    )
    options = parser.parse_args()
    known = likeness.weights()
    names = list(known.by_feature)
    logs = read_all(options.table, options.jobs)
    if options.save:
        options.save.write_text(json.dumps([log._asdict() for log in logs]), encoding="utf-8")
    if options.as_is:
        weights = np.array([known.start, *known.by_feature.values()])
        scores = weights[0] + matrix(logs, names) @ weights[1:]
        bounds = [known.least]
    else:
        scores = cross_validated(logs, names)
        bounds = [least(logs, scores, share) for share in _SHARES]
    for bound in bounds:
        print(f"{bound:6.2f}", shown(logs, scores, bound))
    if options.misses:
        for log, score in sorted(zip(logs, scores.tolist(), strict=True), key=lambda one: one[1]):
            if log.kind == "good" and not log.is_told and not (log.is_open and score > bounds[-1]):
                print(f"{score:6.2f} {log.is_open} {log.path}")
    if options.write:
        is_good = np.array([float(log.kind == "good") for log in logs])
        weights = fit(matrix(logs, names), is_good, importance_of(logs))
        write(names, weights, least(logs, scores, options.share))


if __name__ == "__main__":
    main()
