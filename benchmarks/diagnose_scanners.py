"""Ways to read a log, measured: what `diagnose` uses and what else there is.

    python benchmarks/diagnose_scanners.py --save benchmarks/results/diagnose_scanners.json

Two tasks.  `operations`: a rank's log; count the operation lines by communicator and operation (name, count, datatype,
reduction, root).  Ours keeps their order as well.  `anchors`: what a training script prints; find the lines that have
any of the signatures' anchors (some hundreds of literals).
Every engine runs in a process of its own, with one thread where it can be reported; CPU seconds are counted, of several
threads all of them, and the time to import and to prepare is left out.  Its answer must be that of the plain regular
expression.  Engines that are not installed are left out, and said to be.
"""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import make_logs

LINE = (
    rb"NCCL INFO (\w+): opCount [0-9a-f]+ sendbuff \S+ recvbuff \S+ count (\d+) datatype (\d+) op (\d+) root (\d+) "
    rb"comm (\S+)"
)
SLOW_BYTES = 20_000_000
"""Of the slow engines the beginning of the file is measured."""

Task = Callable[[bytes, str], Any]
Answer = Counter[tuple[bytes, ...]]


def anchors() -> list[bytes]:
    """What is looked for in the second task."""
    from allready.evidence.lines.anchors import BLOCK_ANCHORS, LINE_ANCHORS
    from allready.signatures import table

    return [a.encode() for a in dict.fromkeys((*table.anchors(), *BLOCK_ANCHORS, *LINE_ANCHORS, "NCCL "))]


# -- the first task ------------------------------------------------------------------------------------------------


def operations_ours() -> Task:
    """`evidence.lines.scan`: rows of numpy words, hashed."""
    from allready.evidence.lines.scan import scan

    def run(_: bytes, path: str) -> Any:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return scan(file)

    return run


def operations_re() -> Task:
    """Python's re.finditer over the whole file."""
    pattern = re.compile(LINE)
    return lambda data, _: Counter(m.groups() for m in pattern.finditer(data))


def operations_split() -> Task:
    """A Python loop over the lines: find, slice, count."""

    def run(data: bytes, _: str) -> Answer:
        found: Counter[bytes] = Counter()
        for line in data.split(b"\n"):
            at = line.find(b": opCount ")
            if at >= 0:
                begin = line.rfind(b" ", 0, at)
                found[line[begin:at] + line[line.find(b" count ", at) : line.find(b" [nranks", at)]] += 1
        answer: Answer = Counter()
        for text, number in found.items():
            words = text.split()
            answer[words[0], words[2], words[4], words[6], words[8], words[10]] += number
        return answer

    return run


def operations_re2() -> Task:
    """google-re2's finditer."""
    re2 = importlib.import_module("re2")

    pattern = re2.compile(LINE)
    return lambda data, _: Counter(m.groups() for m in pattern.finditer(data))


def operations_hyperscan() -> Task:
    """Hyperscan finds the lines, Python takes the fields from each."""
    hyperscan = importlib.import_module("hyperscan")

    database = hyperscan.Database()
    database.compile(expressions=[rb"NCCL INFO \w+: opCount "], ids=[0], elements=1, flags=[0])
    pattern = re.compile(LINE)

    def run(data: bytes, _: str) -> Answer:
        found: Answer = Counter()

        def one(_id: int, _from: int, end: int, _flags: int, _context: object) -> None:
            match = pattern.match(data, data.rfind(b"NCCL INFO", 0, end))
            if match is not None:
                found[match.groups()] += 1

        database.scan(data, match_event_handler=one)
        return found

    return run


def operations_polars() -> Task:
    """Polars: lines as a column, the expression with groups, group_by."""
    pl = importlib.import_module("polars")

    pattern = LINE.decode()

    def run(_: bytes, path: str) -> Answer:
        frame = (
            pl.scan_csv(path, has_header=False, separator="\x01", quote_char=None, new_columns=["line"])
            .select(pl.col("line").str.extract_groups(pattern).alias("groups"))
            .unnest("groups")
            .drop_nulls()
            .group_by("1", "2", "3", "4", "5", "6")
            .len()
            .collect(engine="streaming")
        )
        return Counter({tuple(v.encode() for v in row[:6]): row[6] for row in frame.iter_rows()})

    return run


def operations_duckdb() -> Task:
    """DuckDB: the same in SQL."""
    duckdb = importlib.import_module("duckdb")

    def run(_: bytes, path: str) -> Answer:
        connection = duckdb.connect()
        connection.execute("SET threads TO 1")
        names = ["a", "b", "c", "d", "e", "f"]
        rows = connection.execute(
            "SELECT s.a, s.b, s.c, s.d, s.e, s.f, count(*) FROM (SELECT regexp_extract(line, $pattern, $names) AS s "
            "FROM read_csv($path, columns={'line': 'VARCHAR'}, delim='\x01', quote='', escape='', header=false, "
            "auto_detect=false) WHERE contains(line, 'opCount')) GROUP BY ALL".replace("$names", str(names)),
            {"pattern": LINE.decode(), "path": path},
        ).fetchall()
        return Counter({tuple(v.encode() for v in row[:6]): row[6] for row in rows})

    return run


def operations_ripgrep() -> Task:
    """ripgrep as a library (python-ripgrep) finds the lines, Python takes the fields from each."""
    python_ripgrep = importlib.import_module("python_ripgrep")

    pattern = re.compile(LINE)

    def run(_: bytes, path: str) -> Answer:
        found: Answer = Counter()
        for text in python_ripgrep.search(patterns=[r"NCCL INFO \w+: opCount "], paths=[path], line_number=False):
            found.update(m.groups() for m in pattern.finditer(text.encode()))
        return found

    return run


def operations_greps() -> Task:
    """The four greps: they only count by name."""

    def run(_: bytes, path: str) -> dict[str, int]:
        counts = {}
        for name in ("Broadcast", "AllReduce", "AllGather", "ReduceScatter"):
            grep = subprocess.Popen(["grep", "-a", f"NCCL INFO {name}", path], stdout=subprocess.PIPE)  # noqa: S607
            done = subprocess.run(["wc", "-l"], stdin=grep.stdout, capture_output=True, text=True, check=True)  # noqa: S607
            grep.wait(timeout=600)
            counts[name] = int(done.stdout)
        return counts

    return run


# -- the second task -----------------------------------------------------------------------------------------------


def _lines(data: bytes, places: "list[int]") -> int:
    return len({data.rfind(b"\n", 0, place) for place in places})


def anchors_ours() -> Task:
    """`evidence.lines.literals`: one aligned word of every literal, looked up with numpy."""
    from allready.evidence.lines.literals import Literals

    literals = Literals(anchors())

    def run(data: bytes, _: str) -> int:
        places: list[int] = []
        for first in range(0, len(data), 1 << 21):  # as the scanner does; a literal over the border is not in the data
            part = data[first : first + (1 << 21)]
            places += (literals.find(part, len(part))[0] + first).tolist()
        return _lines(data, places)

    return run


def anchors_re() -> Task:
    """Python's re with all literals as alternatives."""
    pattern = re.compile(b"|".join(map(re.escape, anchors())))
    return lambda data, _: _lines(data, [m.start() for m in pattern.finditer(data)])


def anchors_find() -> Task:
    """bytes.find for one literal after the other."""
    literals = anchors()

    def run(data: bytes, _: str) -> int:
        places = []
        for literal in literals:
            at = data.find(literal)
            while at >= 0:
                places.append(at)
                at = data.find(literal, at + 1)
        return _lines(data, places)

    return run


def anchors_re2() -> Task:
    """google-re2 with all literals as alternatives."""
    re2 = importlib.import_module("re2")

    options = re2.Options()
    options.max_mem = 1 << 28
    pattern = re2.compile(b"|".join(map(re2.escape, anchors())), options)
    return lambda data, _: _lines(data, [m.start() for m in pattern.finditer(data)])


def anchors_hyperscan() -> Task:
    """Hyperscan with all literals, a callback for each match."""
    hyperscan = importlib.import_module("hyperscan")

    literals = anchors()
    database = hyperscan.Database()
    database.compile(
        expressions=[re.escape(a) for a in literals],
        ids=list(range(len(literals))),
        elements=len(literals),
        flags=[0] * len(literals),
    )

    def run(data: bytes, _: str) -> int:
        places: list[int] = []
        database.scan(data, match_event_handler=lambda _i, _f, end, _g, _c: places.append(end - 1))
        return _lines(data, places)

    return run


def anchors_aho_corasick() -> Task:
    """ahocorasick_rs: Aho-Corasick in Rust."""
    ahocorasick_rs = importlib.import_module("ahocorasick_rs")

    automaton = ahocorasick_rs.BytesAhoCorasick(anchors())
    return lambda data, _: _lines(data, [m[1] for m in automaton.find_matches_as_indexes(data)])


def anchors_polars() -> Task:
    """Polars: `str.contains_any` over a column of lines."""
    pl = importlib.import_module("polars")

    literals = [a.decode() for a in anchors()]

    def run(_: bytes, path: str) -> int:
        frame = pl.scan_csv(path, has_header=False, separator="\x01", quote_char=None, new_columns=["line"])
        chosen = frame.filter(pl.col("line").str.contains_any(literals)).select(pl.len())
        return int(chosen.collect(engine="streaming").item())

    return run


ENGINES: dict[str, dict[str, tuple[Callable[[], Task], str, bool]]] = {
    "operations": {
        "ours (numpy rows, hashed)": (operations_ours, "numpy", False),
        "four greps (they only count)": (operations_greps, "", False),
        "Python re": (operations_re, "", True),
        "Python, line by line": (operations_split, "", True),
        "google-re2": (operations_re2, "google-re2", True),
        "Hyperscan": (operations_hyperscan, "hyperscan", True),
        "ripgrep (python-ripgrep)": (operations_ripgrep, "python-ripgrep", True),
        "Polars": (operations_polars, "polars", False),
        "DuckDB": (operations_duckdb, "duckdb", False),
    },
    "anchors": {
        "ours (numpy, aligned words)": (anchors_ours, "numpy", False),
        "Python re": (anchors_re, "", True),
        "bytes.find": (anchors_find, "", True),
        "google-re2": (anchors_re2, "google-re2", True),
        "Hyperscan": (anchors_hyperscan, "hyperscan", False),
        "ahocorasick_rs": (anchors_aho_corasick, "ahocorasick-rs", False),
        "Polars": (anchors_polars, "polars", False),
    },
}


def version(package: str) -> str:
    """The installed version, "" for what is Python's own."""
    return f"{package} {metadata.version(package)}" if package else ""


def answer_of(found: Any) -> Any:
    """What can be compared: the counts by name, or the number of lines."""
    if isinstance(found, Counter):
        names: Counter[str] = Counter()
        for key, number in found.items():
            names[key[0].decode()] += number
        return {"by_name": dict(sorted(names.items())), "different": len(found)}
    if hasattr(found, "streams"):
        total: Counter[str] = Counter()
        different = 0
        for stream in found.streams:
            different += len(stream.shapes)
            for shape, number in zip(stream.shapes, stream.counts, strict=True):
                total[shape.name.title().replace("_", "")] += number
        return {"by_name": dict(sorted(total.items())), "different": different}
    return found if isinstance(found, int) else None


def worker(task: str, name: str, path: str, *, repeat: int) -> None:
    """Measure one engine; prints JSON."""
    make, package, _ = ENGINES[task][name]
    try:
        run = make()
    except ImportError as error:
        sys.stdout.write(json.dumps({"left_out": str(error)}))
        return
    data = Path(path).read_bytes()
    best, found = float("inf"), None
    for _ in range(repeat):
        began, below = time.process_time(), os.times()
        found = run(data, path)
        now = os.times()
        children = now.children_user + now.children_system - below.children_user - below.children_system
        best = min(best, time.process_time() - began + children)
    result = {"cpu_s": round(best, 4), "mb_per_s": round(len(data) / best / 1e6, 1), "version": version(package)}
    sys.stdout.write(json.dumps(result | {"answer": answer_of(found)}))


def main() -> int:
    """Print a line per engine; save everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", default="200MB")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        task, name, path = args.worker
        worker(task, name, path, repeat=args.repeat)
        return 0
    from diagnose_speed import machine

    result: dict[str, Any] = {"machine": machine(), "num_anchors": len(anchors())}
    environ = os.environ | {"POLARS_MAX_THREADS": "1", "LC_ALL": "C"}
    with tempfile.TemporaryDirectory() as scratch:
        kinds = {"operations": "--ranks 1", "anchors": "--kind training"}
        for task, options in kinds.items():
            folder = Path(scratch) / task
            make_logs.make(
                make_logs.parser().parse_args(["--bytes", args.bytes, "--out", str(folder), *options.split()])
            )
            (whole,) = folder.iterdir()
            short = Path(scratch) / f"{task}.short"
            data = whole.read_bytes()[:SLOW_BYTES]
            short.write_bytes(data[: data.rfind(b"\n") + 1])
            answers: dict[str, list[Any]] = {}
            for name, (_, _, is_slow) in ENGINES[task].items():
                path = str(short if is_slow else whole)
                argv = [sys.executable, __file__, "--repeat", str(args.repeat), "--worker", task, name, path]
                done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False, timeout=1800)
                if done.returncode:
                    row = {"failed": done.stderr.strip().splitlines()[-1:]}
                else:
                    row = json.loads(done.stdout)
                    answers.setdefault(path, []).append(row.get("answer"))
                result.setdefault(task, {})[name] = row
                sys.stdout.write(f"{task:12} {name:32} {row.get('mb_per_s', row)}\n")
            for path, found in answers.items():
                sys.stdout.write(
                    f"  {Path(path).name}: {len({json.dumps(a) for a in found if a})} different answer(s)\n"
                )
    if args.save:
        args.save.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
