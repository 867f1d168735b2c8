"""`allready bench` beside a plain event-timed loop, in turn: NCCL ranks that share one GPU, in one communicator.

    python benchmarks/bench_on_one_gpu.py OUT.json [--ranks 2] [--gpus 2] [--seconds 150] [--sizes 1048576,4194304]
        [--nccl-tests-loop LIBRARY]

NCCL takes two ranks of one GPU for ranks of two hosts when each has an `NCCL_HOSTID` of its own; they then talk over
sockets.  Start `nvidia-cuda-mps-control -d` first, or the GPU is shared in time slices and small sizes take
milliseconds.  For every size from 1 KiB to 1 GiB the loops run alternately, with the same number of operations and
warm-ups; the medians, and the medians of their ratios to the plain one, are printed.  `control` is the plain loop once
more, but waits by polling, as ours does: what it differs by is the wait's, or noise.  `raw` calls NCCL itself, in the
same communicator and without torch, and takes the host's clock as nccl-tests does: what the plain loop differs by from
it is torch's.  `nccl` is our `--path nccl`, to be compared with `raw`.  `prepared` is the plain loop after what ours
does before a size (fill, check, agree): what it differs by comes from there.  `--gpus N`: a rank on each of N GPUs
instead, as NCCL connects them.
"""

import argparse
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

SIZES = [1024 * 4**n for n in range(11)]
MAX_BYTES = SIZES[-1]
SMALL_BYTES = 16 * 2**20
LOOPS = ["plain", "ours", "control", "raw", "nccl", "prepared"]
BESIDE_NCCL_TESTS = ["plain", "ours", "control"]


class Raw:
    """ncclAllReduce on torch's own communicator, timed as nccl-tests does (common.cu, BenchTime)."""

    FLOAT32, SUM = 7, 0

    def __init__(self, loops: Any) -> None:
        self.loops = loops
        backend = loops.group._get_backend(loops.device)  # noqa: SLF001 - nothing public gives the communicator
        self.comm = ctypes.c_void_p(backend._comm_ptr())  # noqa: SLF001
        self.all_reduce = ctypes.CDLL("libnccl.so.2").ncclAllReduce
        self.all_reduce.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
            ctypes.c_void_p,
        ]  # fmt: skip

    def measure(self, size_bytes: int, iters: int, warmup: int) -> float:
        """Seconds of one all_reduce in place, by the host's clock from the first call to the end of the last."""
        cuda = self.loops.torch.cuda
        buffer, count = ctypes.c_void_p(self.loops.buffer.data_ptr()), size_bytes // 4
        stream = ctypes.c_void_p(cuda.current_stream().cuda_stream)

        def start() -> None:
            if self.all_reduce(buffer, buffer, count, self.FLOAT32, self.SUM, self.comm, stream):
                raise RuntimeError("ncclAllReduce failed")

        for _ in range(warmup):
            start()
        cuda.synchronize()
        self.loops.slowest(0.0)  # a barrier
        began = time.perf_counter()
        for _ in range(iters):
            start()
        while not cuda.current_stream().query():
            pass
        return (time.perf_counter() - began) / iters


class OwnNccl:
    """Our sweep with `--path nccl`, on a communicator of its own."""

    def __init__(self, loops: Any) -> None:
        from sweep_against_plain_loop import Side

        from allready.preflight.collectives.gpu_driver import GpuDriver
        from allready.preflight.collectives.nccl_calls import NcclStream
        from allready.preflight.collectives.nccl_library import NcclLibrary
        from allready.preflight.collectives.nccl_operations import NcclOperation
        from allready.preflight.collectives.operations import Buffers, Pattern
        from allready.preflight.collectives.sweep import Sweep
        from allready.preflight.collectives.wire import POSITION
        from allready.proc.cell import CellWriter, anonymous_cell

        torch, rank, world_size = loops.torch, loops.rank, loops.world_size
        library = NcclLibrary.loaded()
        given = [library.new_id() if rank == 0 else b""]
        loops.dist.broadcast_object_list(given, device=torch.device("cpu"))
        self.loops = loops
        self.communicator = communicator = library.connect(given[0], rank, world_size)
        self.buffers = buffers = Buffers(torch, loops.device, "float32", MAX_BYTES, needs_two=False)
        self.stream = stream = int(torch.cuda.current_stream(loops.device).cuda_stream)
        pattern = Pattern(torch, rank, world_size, loops.device)
        place = NcclStream(communicator, GpuDriver.loaded(), stream)
        one = NcclOperation("all_reduce", place, pattern, rank, world_size, buffers, in_place=True)
        self.side = Side(rank, world_size, CellWriter(anonymous_cell("nccl")), POSITION.pack, path="nccl")
        self.sweep = Sweep(self.side, "sweep", one, loops.greatest, torch.cuda)  # type: ignore[arg-type]

    def measure(self, size_bytes: int, iters: int, warmup: int) -> float:
        """Seconds of one all_reduce in place."""
        from allready.preflight.collectives.budget import SweepBudget

        self.side.sent.clear()
        self.side.iters, self.side.warmup = iters, warmup
        budget = SweepBudget(total_s=1e6, size_s=1e6)
        self.sweep._one_size(size_bytes, budget, time.perf_counter(), is_first=False)  # noqa: SLF001
        return float(self.side.sent[-1]["time_s"])


class OfNcclTests:
    """nccl-tests' own loop, in our communicator and on our buffer."""

    def __init__(self, library: str, own: OwnNccl) -> None:
        self.own = own
        self.time = ctypes.CDLL(library).nccl_tests_all_reduce
        self.time.restype = ctypes.c_double
        self.time.argtypes = [*[ctypes.c_void_p] * 4, *[ctypes.c_size_t] * 2, *[ctypes.c_int] * 5]

    def measure(self, size_bytes: int, iters: int, warmup: int) -> float:
        """Seconds of one all_reduce in place."""
        own, loops = self.own, self.own.loops
        buffer = own.buffers.main(MAX_BYTES).data_ptr()
        where = (loops.device.index, loops.rank, loops.world_size)
        loops.slowest(0.0)  # a barrier
        took_s = float(
            self.time(own.communicator.handle, own.stream, buffer, buffer, MAX_BYTES, size_bytes, *where, iters, warmup)
        )
        if took_s <= 0:
            raise RuntimeError("a function of nccl-tests failed")
        return took_s


def compare_with_nccl_tests(loops: Any, out: str, seconds: float, sizes: list[int], library: str) -> None:
    """Their loop, ours and theirs again in turn, size by size; the slowest rank counts."""
    from sweep_against_plain_loop import row

    own = OwnNccl(loops)
    theirs = OfNcclTests(library, own)
    rows: list[dict[str, Any]] = []
    shares = {size_bytes: max(1.0, 1 + 2 * math.log(size_bytes / 2**20, 4)) for size_bytes in sizes}
    for size_bytes in sizes:
        iters, warmup = (50, 50) if size_bytes <= 2**20 else (10, 5) if size_bytes <= SMALL_BYTES else (3, 1)
        limit_s = seconds * shares[size_bytes] / sum(shares.values())
        turns: list[dict[str, float]] = []
        began = loops.slowest(time.perf_counter())
        while loops.slowest(time.perf_counter()) - began < limit_s or len(turns) < len(BESIDE_NCCL_TESTS):
            number = len(turns)
            first = number % len(BESIDE_NCCL_TESTS)
            order = BESIDE_NCCL_TESTS[first:] + BESIDE_NCCL_TESTS[:first]
            turn = {}
            for name in order if number // len(BESIDE_NCCL_TESTS) % 2 == 0 else order[::-1]:
                loop = own if name == "ours" else theirs
                turn[name] = loops.slowest(loop.measure(size_bytes, iters, warmup))
            turns.append({name: turn[name] for name in BESIDE_NCCL_TESTS})
        rows.append(row(size_bytes, iters, warmup, turns, loops.world_size))
        if loops.rank == 0:
            found = rows[-1]
            medians = {name: found[name]["median_s"] for name in BESIDE_NCCL_TESTS}
            found["ratio_of_medians"] = medians["ours"] / medians["plain"]
            found["ratio_to_both"] = statistics.median(turn["ours"] for turn in turns) / statistics.median(
                turn[name] for turn in turns for name in ("plain", "control")
            )
            print(
                f"{size_bytes:>11} B  {len(turns):>4} turns  nccl-tests {medians['plain'] * 1e6:10.1f} us  "
                f"ours {medians['ours'] * 1e6:10.1f} us  of medians {found['ratio_of_medians']:.4f}  "
                f"to both {found['ratio_to_both']:.4f}  of pairs {found['ours_to_plain']}  "
                f"control {found['control_to_plain']}",
                flush=True,
            )
    if loops.rank == 0:
        versions = {**loops.versions(), "nccl_loaded": own.communicator.library.version()}
        Path(out).write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")


def prepared(loops: Any, size_bytes: int, iters: int, warmup: int) -> float:
    """The plain loop after our preparation."""
    sweep, operation = loops.sweep, loops.sweep._operation  # noqa: SLF001
    sweep._start = operation.bind(size_bytes)  # noqa: SLF001
    operation.fill()
    sweep._synced(size_bytes, 0)  # noqa: SLF001
    operation.check()
    operation.settle()
    loops.greatest([0.0, 0.0])
    took_s = sweep._synced(size_bytes, 1)  # noqa: SLF001
    loops.greatest([took_s, 0.0])
    return float(loops.plain(size_bytes, iters, warmup))


def rank_main(out: str, seconds: float, sizes: list[int], nccl_tests_loop: str | None) -> None:
    """One rank."""
    from sweep_against_plain_loop import Loops

    loops = Loops(is_cpu=False, max_bytes=MAX_BYTES)
    loops.side.is_bench = True
    if nccl_tests_loop:
        compare_with_nccl_tests(loops, out, seconds, sizes, nccl_tests_loop)
        loops.dist.barrier()
        os._exit(0)
    raw, own = Raw(loops), OwnNccl(loops)
    rows: list[dict[str, Any]] = []
    for size_bytes in sizes:
        iters, warmup = (20, 100) if size_bytes <= SMALL_BYTES else (6, 2)
        times: dict[str, list[float]] = {name: [] for name in LOOPS}
        medians: list[float] = []
        began = loops.slowest(time.perf_counter())
        number = 0
        while loops.slowest(time.perf_counter()) - began < seconds / len(sizes) or number < len(LOOPS):
            # Each loop comes after each other one equally often, forwards and backwards.
            order = LOOPS[number % len(LOOPS) :] + LOOPS[: number % len(LOOPS)]
            for name in order if number // len(LOOPS) % 2 == 0 else order[::-1]:
                if name == "ours":
                    took_s = loops.ours(size_bytes, iters, warmup)
                elif name == "raw":
                    took_s = raw.measure(size_bytes, iters, warmup)
                elif name == "nccl":
                    took_s = own.measure(size_bytes, iters, warmup)
                elif name == "prepared":
                    took_s = prepared(loops, size_bytes, iters, warmup)
                else:
                    took_s = loops.plain(size_bytes, iters, warmup, poll=name == "control")
                times[name].append(loops.slowest(took_s))
                if name == "ours":
                    medians.append(loops.slowest(loops.side.sent[-1]["spread"]["median_s"]))
            number += 1
        plain, ours, control = times["plain"], times["ours"], times["control"]
        ratio = statistics.median(o / p for o, p in zip(ours, plain, strict=True))
        row: dict[str, Any] = {
            "size_bytes": size_bytes,
            "turns": number,
            "plain_median_s": statistics.median(plain),
            "ours_median_s": statistics.median(ours),
            "raw_median_s": statistics.median(times["raw"]),
            "single_median_s": statistics.median(medians),
            "ratio_of_medians": statistics.median(ours) / statistics.median(plain),
            "median_of_ratios": ratio,
            "control_median_of_ratios": statistics.median(c / p for c, p in zip(control, plain, strict=True)),
            "prepared_median_of_ratios": statistics.median(
                c / p for c, p in zip(times["prepared"], plain, strict=True)
            ),
            "nccl_median_s": statistics.median(times["nccl"]),
            "nccl_to_raw_ratio_of_medians": statistics.median(times["nccl"]) / statistics.median(times["raw"]),
            "nccl_to_raw_median_of_ratios": statistics.median(
                n / r for n, r in zip(times["nccl"], times["raw"], strict=True)
            ),
            "raw_median_of_ratios": statistics.median(r / p for r, p in zip(times["raw"], plain, strict=True)),
            "plain_quartiles_s": statistics.quantiles(plain, n=4),
        }
        rows.append(row)
        if loops.rank == 0:
            print(
                f"{size_bytes:>11} B  {number:>4} turns  plain {row['plain_median_s'] * 1e6:10.1f} us  "
                f"ours {row['ours_median_s'] * 1e6:10.1f} us  single {row['single_median_s'] * 1e6:10.1f} us  "
                f"ratio {row['ratio_of_medians']:.4f}  {ratio:.4f}  control {row['control_median_of_ratios']:.4f}  "
                f"prepared {row['prepared_median_of_ratios']:.4f}  raw {row['raw_median_s'] * 1e6:10.1f} us  "
                f"nccl/raw {row['nccl_to_raw_ratio_of_medians']:.4f} {row['nccl_to_raw_median_of_ratios']:.4f}",
                flush=True,
            )
    if loops.rank == 0:
        Path(out).write_text(json.dumps({"versions": loops.versions(), "rows": rows}, indent=1) + "\n")
    loops.dist.barrier()
    os._exit(0)


def main() -> int:
    """Start the ranks and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--gpus", type=int, help="a rank on each of so many GPUs instead")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes, separated by commas")
    parser.add_argument("--nccl-tests-loop", metavar="LIBRARY", help="compare with nccl-tests' own loop instead")
    parser.add_argument("--cpus", type=lambda text: text.split("/"), default=[], help="of each rank: 0-7/8-15")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        sizes = [int(size) for size in args.sizes.split(",")]
        rank_main(args.out, args.seconds, sizes, args.nccl_tests_loop)
        return 0
    limit_s = 2 * args.seconds + 120
    ranks = [
        subprocess.Popen(
            [
                *(["taskset", "-c", args.cpus[rank]] if args.cpus else []),
                sys.executable,
                __file__,
                args.out,
                "--seconds",
                str(args.seconds),
                "--sizes",
                args.sizes,
                "--rank",
                str(rank),
                *(["--nccl-tests-loop", args.nccl_tests_loop] if args.nccl_tests_loop else []),
            ],
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank) if args.gpus else "0",
                "WORLD_SIZE": str(args.gpus or args.ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29777",
                "NCCL_SOCKET_IFNAME": "lo",
                **({} if args.gpus else {"NCCL_HOSTID": f"host{rank}"}),
            },
        )
        for rank in range(args.gpus or args.ranks)
    ]
    try:
        return max(abs(process.wait(timeout=limit_s)) for process in ranks)
    finally:
        for process in ranks:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
