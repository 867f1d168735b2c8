"""How long it takes to read and join the flight-recorder dumps of a large job, and how much memory.

    python benchmarks/diagnose_flight.py RECORDED_DUMP [--ranks 1024] [--entries 2000] [--workers 2] [--save FILE]

Makes one dump per rank from a recorded one (its entries repeated to the number asked for, with stacks, in the tokens
that torch writes; times of its own for each rank, one group of all ranks and groups of eight), reads them in a pool of
processes, joins them, and prints the times.  One rank did not enter the last operation: the join must name it.
"""

import argparse
import json
import multiprocessing
import os
import platform
import random
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from allready import __version__
from allready.evidence.flight.reader import read_dump
from allready.evidence.flight.unpickle import load
from allready.evidence.reading import Reading

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.evidence.flight.dialect import torch_pickle
from tests.judging.joined import joined_dumps

GROUP_RANKS = 8
STEP_NS = 5_000_000
LOOK_NS = 100_000_000


def made_up(recorded: dict[str, Any], *, rank: int, ranks: int, entries: int, missing: int) -> bytes:
    """One rank's dump: two operations in three of the world, the third of the rank's group of eight."""
    chance = random.Random(rank)  # noqa: S311 - jitter, no secret
    first = rank // GROUP_RANKS * GROUP_RANKS
    name = str(1 + rank // GROUP_RANKS)
    model = [e for e in recorded["entries"] if e["state"] == "completed"]
    began, phase = model[0]["time_created_ns"], chance.randrange(LOOK_NS)
    made: list[dict[str, Any]] = []
    counts = {"0": 5_000, name: 2_500}
    for number in range(entries - (rank == missing)):
        entry = dict(model[number % len(model)])
        group = name if number % 3 == 2 else "0"
        counts[group] += 1
        created = began + number * STEP_NS + chance.randrange(1_000_000)
        looked = created + 2_000_000 + (phase - created) % LOOK_NS
        pending = number >= entries - 1
        entry.update(
            record_id=7_500 + number,
            pg_id=int(group != "0"),
            process_group=(group, "TP" if group != "0" else "default_pg"),
            collective_seq_id=counts[group],
            op_id=counts[group],
            time_created_ns=created,
            state="scheduled" if pending else "completed",
            retired=not pending,
            time_discovered_completed_ns=None if pending else looked,
            input_sizes=[[1 << (10 + number % 3)]],
            output_sizes=[[1 << (10 + number % 3)]],
            profiling_name="nccl:all_reduce",
        )
        made.append(entry)
    config = {
        "0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))},
        name: {"name": name, "desc": "TP", "ranks": str(list(range(first, first + GROUP_RANKS)))},
    }
    status = {
        str(i): {
            "last_enqueued_collective": counts[g],
            "last_started_collective": -1,
            "last_completed_collective": counts[g],
        }
        for i, g in enumerate(("0", name))
    }
    return torch_pickle({**recorded, "pg_config": config, "pg_status": status, "entries": made})


def read(path: str) -> Reading:
    """One file, in a worker."""
    return read_dump(Path(path).read_bytes(), path, name_hint=path)


def peak_mib(who: int) -> float:
    """Largest resident memory so far."""
    return resource.getrusage(who).ru_maxrss / 1024


def main() -> int:
    """Generate, read, join; print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    missing = args.ranks // 3
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(args.workers, mp_context=context) as pool:
            made = pool.map(
                _write,
                [(folder, str(args.recorded), r, args.ranks, args.entries, missing) for r in range(args.ranks)],
                chunksize=8,
            )
            sizes = list(made)
        paths = [f"{folder}/nccl_trace_rank_{r}" for r in range(args.ranks)]
        one = Path(paths[0]).read_bytes()
        began = time.process_time()
        read_dump(one, paths[0], name_hint=paths[0])
        one_s = time.process_time() - began
        load_before = os.getloadavg()[0]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        with ProcessPoolExecutor(args.workers, mp_context=context) as pool:
            readings = list(pool.map(read, paths, chunksize=8))
        read_s = time.monotonic() - began
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        workers_cpu_s = children.ru_utime + children.ru_stime - before.ru_utime - before.ru_stime
    dumps = [d for r in readings for d in r.dumps]
    began, began_cpu = time.monotonic(), time.process_time()
    joined = joined_dumps(dumps)
    join_s, join_cpu_s = time.monotonic() - began, time.process_time() - began_cpu
    result = {
        "ranks": args.ranks,
        "entries": args.entries,
        "workers": args.workers,
        "file_bytes": sizes[0],
        "total_bytes": sum(sizes),
        "one_dump_cpu_s": round(one_s, 4),
        "read_s": round(read_s, 2),
        "workers_cpu_s": round(workers_cpu_s, 2),
        "join_s": round(join_s, 2),
        "join_cpu_s": round(join_cpu_s, 2),
        "total_s": round(read_s + join_s, 2),
        "parent_peak_mib": round(peak_mib(resource.RUSAGE_SELF)),
        "worker_peak_mib": round(children.ru_maxrss / 1024),
        "roots": list(joined.roots),
        "expected_roots": [missing],
        "num_entries": sum(d.num_entries for d in dumps),
        "num_mismatches": len(joined.mismatches),
        "num_lags": len(joined.lags),
        "load_before": round(load_before, 1),
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "allready": __version__,
    }
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if args.save:
        args.save.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if joined.roots == (missing,) else 1


def _write(job: tuple[str, str, int, int, int, int]) -> int:
    folder, recorded, rank, ranks, entries, missing = job
    model = load(Path(recorded).read_bytes()).value
    data = made_up(model, rank=rank, ranks=ranks, entries=entries, missing=missing)
    Path(f"{folder}/nccl_trace_rank_{rank}").write_bytes(data)
    return len(data)


if __name__ == "__main__":
    raise SystemExit(main())
