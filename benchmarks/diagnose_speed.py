"""`allready diagnose` against the four greps that only count, on the same files, in turn.

    python benchmarks/diagnose_speed.py --bytes 1GB --ranks 64
    python benchmarks/diagnose_speed.py --folder DIR --repeat 5
    python benchmarks/diagnose_speed.py --throughput

The files are read once before, so that they lie in the page cache.  The greps are `grep -ah 'NCCL INFO X' FILES` into
`wc -l`, for X = Broadcast, AllReduce, AllGather, ReduceScatter, one after the other, in the C locale.  Memory is that
of the whole tree of processes, sampled every 20 ms in one more turn that is not timed: the sum of the resident sets,
and the sum in which shared pages count once.  CPU seconds are those of all processes; they tell more where others use
the machine at the same time.
`--scan-only`: the scanner over all files in a pool instead of the command, without judging and report.
`--throughput`: bytes per second of CPU time of one scanner process, for each kind of log; CPU seconds of the command,
and its largest resident set, in one more turn.  What is compressed counts unpacked, and no grep is run on it.
`--steps`: milliseconds of CPU time per file in one process, by step, once another file of the same job was read.
"""

import argparse
import concurrent.futures
import functools
import itertools
import json
import multiprocessing
import os
import pickle
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import make_logs
import numpy as np
import psutil

NAMES = ("Broadcast", "AllReduce", "AllGather", "ReduceScatter")
KINDS = {
    "one file of one rank": "--ranks 1",
    "one file of one rank, with iteration markers": "--ranks 1 --iterations",
    "64 files": "--ranks 64",
    "one file of 64 ranks": "--ranks 64 --interleaved",
    "one file of 64 ranks, with time stamps": "--ranks 64 --interleaved --timestamps",
    "one file of 1,024 ranks": "--ranks 1024 --interleaved",
    "what a training script prints": "--kind training",
    "a launcher's log of 1 rank": "--kind mixed --ranks 1",
    "a launcher's log of 64 ranks": "--kind mixed --ranks 64",
    "a launcher's log of 64 ranks, with time stamps": "--kind mixed --ranks 64 --timestamps",
    "lines of which no two are alike": "--kind words",
    "progress bars": "--kind bars",
    "progress bars without a newline": "--kind tqdm",
    "a launcher's log of 512 ranks, with time stamps": "--kind mixed --ranks 512 --timestamps",
    "a launcher's log of 64 ranks, ten prefixes": "--kind mixed --ranks 64 --as prefixes",
    "a launcher's log of 64 ranks, in Kubernetes' objects": "--kind mixed --ranks 64 --as kubernetes",
    "a launcher's log of 64 ranks, in colours": "--kind mixed --ranks 64 --as colours",
    "a launcher's log of 64 ranks, CR LF": "--kind mixed --ranks 64 --as crlf",
    "a launcher's log of 64 ranks, UTF-16": "--kind mixed --ranks 64 --as utf-16",
    "a launcher's log of 64 ranks, gzip": "--kind mixed --ranks 64 --as gz",
    "a launcher's log of 64 ranks, xz": "--kind mixed --ranks 64 --as xz",
    "a launcher's log of 64 ranks, zstd": "--kind mixed --ranks 64 --as zst",
    "lines of a megabyte of JSON": "--kind objects",
    "no text": "--kind binary",
    "lines of eight frameworks": "--kind frameworks",
    "structured records, a JSON object in each line": "--kind records",
    "tensors, tables in colours, reports": "--kind tables",
    "a script in Chinese, with samples of text": "--kind chinese",
    "requests of a server": "--kind servers",
    "lines of 100 KB": "--kind long",
    "one file of 4,096 ranks": "--ranks 4096 --interleaved",
}
OTHER_BYTES = (".gz", ".xz", ".zst")
"""What has to be unpacked, or (UTF-16) recoded, before it is lines; the greps find nothing there."""


class Memory:
    """The most memory that a tree of processes had."""

    def __init__(self, root: int) -> None:
        self.resident_mb = self.proportional_mb = 0.0
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            try:
                root = psutil.Process(self._root)
                infos = [process.memory_full_info() for process in [root, *root.children(recursive=True)]]
            except psutil.Error:
                continue
            self.resident_mb = max(self.resident_mb, sum(info.rss for info in infos) / 1e6)
            self.proportional_mb = max(self.proportional_mb, sum(info.pss for info in infos) / 1e6)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds from start to end, and CPU seconds of the processes that ended in between."""
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    took_s, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took_s, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def greps(files: Sequence[str]) -> dict[str, int]:
    """The four passes: what they counted."""
    environ = os.environ | {"LC_ALL": "C"}
    counts = {}
    for name in NAMES:
        grep = subprocess.Popen(["grep", "-ah", f"NCCL INFO {name}", *files], stdout=subprocess.PIPE, env=environ)  # noqa: S607
        done = subprocess.run(["wc", "-l"], stdin=grep.stdout, capture_output=True, text=True, check=True)  # noqa: S607
        grep.wait(timeout=3600)
        counts[name] = int(done.stdout)
    return counts


def scan_part(path: str, first: int, end: int) -> Any:
    """In a worker."""
    from allready.evidence.lines.scan import scan

    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return scan(file, source=path, first_byte=first, last_byte=end)


def scan_unpacked(path: str) -> int:
    """The same of a file that may be compressed or in an envelope; how many bytes of text were read."""
    from allready.evidence.inputs import Found, Source, find, unpack
    from allready.evidence.lines.scan import scan

    num_bytes = 0
    for found in find([path]):
        for source in unpack(found) if isinstance(found, Found) else ():
            if isinstance(source, Source):
                with source.open() as stream:
                    num_bytes += scan(stream, source=source.label).num_bytes
    return num_bytes


def scan_all(files: Sequence[str]) -> None:
    """Scan all files with as many processes as there are CPUs; prints the number of operations."""
    from allready.evidence.lines.merge import merged
    from allready.evidence.lines.model import split_ranges

    num = os.cpu_count() or 1
    tasks = [
        (path, first, end)
        for path in files
        for first, end in split_ranges(Path(path).stat().st_size, num if len(files) < num else 1)
    ]
    total = 0
    with concurrent.futures.ProcessPoolExecutor(num, multiprocessing.get_context("fork")) as pool:
        found: dict[str, list[Any]] = {}
        for (path, _, _), part in zip(tasks, pool.map(scan_part, *zip(*tasks, strict=True)), strict=True):
            found.setdefault(path, []).append(part)
            if sum(p.num_bytes for p in found[path]) == Path(path).stat().st_size:
                total += merged(found.pop(path)).num_coll
    sys.stdout.write(f"{total}\n")


def has_command() -> bool:
    """Whether `diagnose` is there."""
    done = subprocess.run(
        [sys.executable, "-m", "allready", "diagnose", "--help"], capture_output=True, check=False, timeout=60
    )
    return done.returncode == 0


def compare(files: Sequence[str], folder: Path, repeat: int, *, scan_only: bool) -> dict[str, Any]:
    """Greps and analysis in turn."""
    if scan_only:
        argv = [sys.executable, __file__, "--worker", str(folder)]
    else:
        argv = [sys.executable, "-m", "allready", "diagnose", str(folder), "--json", "-"]
    rows = []
    for _ in range(repeat):
        grep_s, grep_cpu_s = timed(lambda: greps(files))
        took_s, cpu_s = timed(lambda: subprocess.run(argv, capture_output=True, check=False, timeout=3600))
        row = {
            "greps_s": round(grep_s, 3),
            "ours_s": round(took_s, 3),
            "ratio": round(took_s / grep_s, 3),
            "greps_cpu_s": round(grep_cpu_s, 2),
            "ours_cpu_s": round(cpu_s, 2),
        }
        sys.stdout.write(f"{row}\n")
        rows.append(row)
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    memory = Memory(process.pid)
    process.wait(timeout=3600)
    memory.stop()
    return {
        "what": "the scanner in a pool" if scan_only else "allready diagnose",
        "turns": rows,
        "counted": greps(files),
        "median_greps_s": statistics.median(r["greps_s"] for r in rows),
        "median_ours_s": statistics.median(r["ours_s"] for r in rows),
        "median_ratio": statistics.median(r["ratio"] for r in rows),
        "peak_resident_mb": round(memory.resident_mb),
        "peak_proportional_mb": round(memory.proportional_mb),
    }


def warm(files: Sequence[str]) -> int:
    """Read everything once; how many bytes."""
    total = 0
    for path in files:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            while data := file.read(1 << 24):
                total += len(data)
    return total


def peak_mb(argv: Sequence[str]) -> int:
    """The largest resident set of a command; in `ru_maxrss` this process would count before the command begins."""
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        memory = Memory(process.pid)
        process.wait(timeout=3600)
        memory.stop()
    return round(memory.resident_mb)


def throughput(size: str, scratch: Path, repeat: int, chosen: str) -> dict[str, Any]:
    """GB per second of CPU time, one process, by kind of log; and against the four greps on the same files."""
    from allready import garbage

    garbage.search_seldom()  # as in a worker
    found = {}
    for name, options in ((name, options) for name, options in KINDS.items() if chosen in name):
        folder = scratch / "kind"
        make_logs.make(make_logs.parser().parse_args(["--bytes", size, "--out", str(folder), *options.split()]))
        files = sorted(map(str, folder.iterdir()))
        total = warm(files)
        times, grepped, commands = [], [], []
        is_opened = options.endswith(("utf-16", "kubernetes", "colours"))
        is_other = is_opened or all(path.endswith(OTHER_BYTES) for path in files)
        argv = [sys.executable, "-m", "allready", "diagnose", str(folder), "--jobs", "1"]
        command = functools.partial(subprocess.run, argv, capture_output=True, check=False, timeout=3600)
        for _ in range(repeat):
            commands.append(timed(command)[1])
            began = time.process_time()
            if is_other:
                total = sum(map(scan_unpacked, files))
            else:
                for path in files:
                    scan_part(path, 0, Path(path).stat().st_size)
            times.append(time.process_time() - began)
            if not is_other:
                grepped.append(timed(functools.partial(greps, files))[1])
        found[name] = {
            "bytes": total,
            "cpu_s": round(min(times), 3),
            "gb_per_s": round(total / min(times) / 1e9, 3),
            "of_greps": None if is_other else round(min(times) / min(grepped), 2),
            "command_cpu_s": round(min(commands), 2),
            "command_peak_mb": peak_mb(argv),
        }
        row = found[name]
        times_greps = "" if is_other else f"{row['of_greps']} times the greps'; "
        sys.stdout.write(f"{name:52} {row['gb_per_s']:6.3f} GB/s of CPU time, {times_greps}")
        sys.stdout.write(f"the whole command {row['command_cpu_s']} s, {row['command_peak_mb']} MB\n")
        sys.stdout.flush()
        shutil.rmtree(folder)
    return found


def steps(files: Sequence[str], repeat: int) -> dict[str, float]:
    """Mean of all files but the first ones, of the turn that took least: what a worker does, and its parent at last."""
    from multiprocessing.reduction import ForkingPickler

    from allready import garbage
    from allready.evidence.inputs import Found, Source, find, unpack
    from allready.evidence.read import _load_readers, packed, unpacked
    from allready.evidence.readers import ReaderContext, _tables_and_stacks, kind_of_source

    names = ("open and find out what it is", "scan", "interpret", "send", "receive")
    context = ReaderContext()

    def one(path: str) -> list[float]:
        marks = [time.process_time()]
        sources = unpack(next(item for item in find([path]) if isinstance(item, Found)))
        source = next(sources)
        assert isinstance(source, Source)
        kind_of_source(source)
        with source.open() as stream:
            _tables_and_stacks(stream, source)
            marks.append(time.process_time())
            scanned = context.scan(stream, source.label)
            marks.append(time.process_time())
        reading = context.interpret(scanned, source.label, source.mtime_s)
        marks.append(time.process_time())
        data = ForkingPickler.dumps((1, packed(reading)))
        marks.append(time.process_time())
        unpacked(pickle.loads(data)[1])  # noqa: S301 - made above
        marks.append(time.process_time())
        return [end - start for start, end in itertools.pairwise(marks)]

    _load_readers()
    garbage.search_seldom()  # as in a worker
    learnt, timed = files[:20], files[20:220]
    for path in learnt:
        one(path)
    turns = [np.mean([one(path) for path in timed], axis=0) for _ in range(repeat)]
    best = min(turns, key=sum) * 1e3
    found = {name: round(float(took_ms), 3) for name, took_ms in zip(names, best, strict=True)}
    return found | {"in all": round(float(best.sum()), 3)}


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    model = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), ":")
    grep = subprocess.run(["grep", "--version"], capture_output=True, text=True, check=False)  # noqa: S607
    return {
        "cpu": model.partition(":")[2].strip(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": psutil.virtual_memory().total // 10**9,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "grep": grep.stdout.partition("\n")[0],
        "load_before": os.getloadavg()[0],
    }


def main() -> int:
    """Print a line per turn; save everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", default="1GB")
    parser.add_argument("--ranks", default="64")
    parser.add_argument("--make", default="", help="more options for make_logs.py, as in '--interleaved'")
    parser.add_argument("--folder", type=Path, help="take these files instead")
    parser.add_argument("--scratch", type=Path, help="where the files are made (and removed again)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scan-only", action="store_true")
    parser.add_argument("--throughput", action="store_true")
    parser.add_argument("--only", default="", metavar="WORDS", help="with --throughput: kinds whose names have these")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        scan_all(sorted(map(str, args.worker.iterdir())))
        return 0
    result: dict[str, Any] = {"machine": machine()}
    if args.folder is None:
        result |= {"bytes": args.bytes, "ranks": args.ranks, "make": args.make}
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        if args.throughput:
            result["throughput"] = throughput(args.bytes, Path(scratch), args.repeat, args.only)
        else:
            folder = args.folder or Path(scratch) / "logs"
            if args.folder is None:
                options = ["--bytes", args.bytes, "--ranks", args.ranks, "--out", str(folder), *args.make.split()]
                make_logs.make(make_logs.parser().parse_args(options))
            files = sorted(str(p) for p in folder.iterdir() if p.is_file())
            result["num_bytes"], result["num_files"] = warm(files), len(files)
            if args.steps:
                result["steps_ms"] = steps(files, args.repeat)
                sys.stdout.write(f"{result['steps_ms']}\n")
                return save(result, args.save)
            scan_only = args.scan_only or not has_command()
            result |= compare(files, folder, args.repeat, scan_only=scan_only)
            sys.stdout.write(f"median: greps {result['median_greps_s']} s, ours {result['median_ours_s']} s, ")
            sys.stdout.write(f"ratio {result['median_ratio']}; {result['peak_proportional_mb']} MB\n")
    return save(result, args.save)


def save(result: dict[str, Any], path: Path | None) -> int:
    """Write the result down where that is wanted; the exit code."""
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
