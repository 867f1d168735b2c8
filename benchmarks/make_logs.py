"""Logs of any size in the form of recorded ones, for the benchmarks of `diagnose`.

    python benchmarks/make_logs.py --bytes 1GB --ranks 64 --out DIR
    python benchmarks/make_logs.py --bytes 1GB --ranks 64 --interleaved --timestamps --out DIR
    python benchmarks/make_logs.py --bytes 1GB --kind training --out DIR
    python benchmarks/make_logs.py --bytes 100MB --kind mixed --ranks 64 --timestamps --out DIR
    python benchmarks/make_logs.py --bytes 100MB --kind mixed --ranks 64 --as kubernetes --out DIR

A rank's file begins and ends with the lines of a recorded process; in between its operations come round again and
again, with a counter that goes on.  Each rank has its own host, pid and pointers.  `--interleaved`: one file with the
lines of all ranks in turn.  `--iterations`: a line `iteration: N` before every fourth operation.  `--kind training`:
no NCCL at all, only what a training script prints.  `--kind mixed`: what a launcher's log holds: its own lines, NCCL's
lines at INFO of every rank (topology, channels, connections, no operations), and training lines in between.
`--kind words`: lines of which no two are alike.  `--kind bars`, `--kind tqdm`: progress bars that overwrite themselves,
a hundred times in each line, or without any newline.  `--kind objects`: lines of a megabyte of JSON.  `--kind binary`:
no text at all.

`--kind frameworks`, `records`, `tables`, `chinese`, `servers`, `long`: what programs of others print (`foreign_lines`).

`--as FORM` writes the same lines in another way: `crlf`, `utf-16` (with its mark), `colours` (ANSI's), `kubernetes`
(each line in a JSON object), `prefixes` (before each line one of nine that launchers, actors and clocks put there, or
none), `gz`, `xz` or `zst` (compressed).
"""

import argparse
import gzip
import json
import lzma
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import foreign_lines

RECORDED = Path(__file__).parents[1] / "tests" / "fixtures" / "lines" / "many_iters.log"
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
ROUND = 2_000  # operations written at once
GPUS_PER_NODE = 8
MARK = re.compile(rb": opCount [0-9a-f]+ ")


@dataclass
class Recording:
    """A process's log: what comes before its operations, they themselves, what comes after."""

    before: list[bytes]
    operations: list[bytes]
    after: list[bytes]

    @staticmethod
    def read(path: Path) -> "Recording":
        lines = path.read_bytes().splitlines()
        places = [i for i, line in enumerate(lines) if MARK.search(line)]
        operations = [lines[i] for i in places]
        return Recording(lines[: places[0]], operations, lines[places[-1] + 1 :])


@dataclass
class Rank:
    """One process of the made-up job."""

    number: int
    world_size: int
    front: bytes
    changes: list[tuple[bytes, bytes]]

    def line(self, line: bytes) -> bytes:
        for old, new in self.changes:
            line = line.replace(old, new)
        return self.front + line.replace(b"%", b"%%") + b"\n"


def size_of(text: str) -> int:
    """`1GB` -> 1000000000."""
    number, unit = text[:-2], text[-2:].upper()
    return int(float(number) * UNITS[unit]) if unit in UNITS else int(text)


def make_rank(rng: random.Random, number: int, world_size: int, recording: Recording, front: str) -> Rank:
    """A process with a host, a pid and pointers of its own."""
    match = re.match(rb"([\w.\-]+):(\d+):", recording.before[0])
    assert match is not None, "the recorded log does not begin with NCCL's prefix"
    pid = rng.randrange(2_000, 4_000_000)
    comms = {m[1] for line in recording.operations for m in re.finditer(rb" comm (0x[0-9a-f]+)", line)}
    buffers = {m[1] for line in recording.operations for m in re.finditer(rb"buff (0x7f[0-9a-f]{4})", line)}
    changes = [
        (match[0], f"gpu{number // GPUS_PER_NODE:04d}:{pid}:".encode()),
        (b":" + match[2] + b" [", f":{pid} [".encode()),
        (b"[nranks=4]", f"[nranks={world_size}]".encode()),
        (b" nranks 4 ", f" nranks {world_size} ".encode()),
        (b" rank 0 ", f" rank {number} ".encode()),
        *((comm, f"0x55{rng.randrange(16**10):010x}".encode()) for comm in sorted(comms)),
        *((buffer, f"0x7f{rng.randrange(16**4):04x}".encode()) for buffer in sorted(buffers)),
    ]
    return Rank(number, world_size, front.format(rank=number).encode(), changes)


def rounds(rank: Rank, recording: Recording, *, iterations: bool, first: int) -> Iterator[bytes]:
    """The loop's operations, `ROUND` at a time, without end."""
    lines = [MARK.sub(b": opCount %x ", rank.line(line)) for line in recording.operations]
    if iterations:
        lines = [b"iteration: %d\n" + line if i % 4 == 0 else line for i, line in enumerate(lines)]
    lines = (lines * (ROUND // len(lines) + 1))[:ROUND]
    form, count, step = b"".join(lines), first, first
    while True:
        numbers: list[int] = []
        for i in range(ROUND):
            if iterations and lines[i].startswith(b"iteration"):
                numbers.append(step)
                step += 1
            numbers.append(count + i)
        yield form % tuple(numbers)
        count += ROUND


def write_ranks(args: argparse.Namespace, recording: Recording) -> int:
    """One file per rank."""
    rng, total = random.Random(args.seed), 0  # noqa: S311
    for number in range(args.ranks):
        rank = make_rank(rng, number, args.ranks, recording, args.front)
        with (args.out / f"nccl.{number:05d}.log").open("wb") as file:
            left = args.bytes // args.ranks
            left -= file.write(b"".join(map(rank.line, recording.before)) % ())
            end = b"".join(map(rank.line, recording.after)) % ()
            for block in rounds(rank, recording, iterations=args.iterations, first=rng.randrange(1000)):
                if len(block) > left - len(end):
                    cut = block.rfind(b"\n", 0, max(0, left - len(end))) + 1
                    file.write(block[:cut] + end)
                    break
                left -= file.write(block)
            total += file.tell()
    return total


def write_interleaved(args: argparse.Namespace, recording: Recording) -> int:
    """All ranks in one file, their lines in a random order that keeps each rank's."""
    rng = random.Random(args.seed)  # noqa: S311
    ranks = [make_rank(rng, number, args.ranks, recording, args.front) for number in range(args.ranks)]
    loops = [rounds(rank, recording, iterations=False, first=rng.randrange(1000)) for rank in ranks]
    waiting: list[list[bytes]] = [[] for _ in ranks]
    path: Path = args.out / "all_ranks.log"
    with path.open("wb") as file:
        for rank in ranks:
            file.write(b"".join(map(rank.line, recording.before)) % ())
        second = 0
        while file.tell() < args.bytes:
            stamp = f"[2025-03-01 {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}] ".encode()
            second += 1
            lines = []
            for number in rng.choices(range(len(ranks)), k=20_000):
                if not waiting[number]:
                    waiting[number] = next(loops[number]).splitlines(keepends=True)[::-1]
                lines.append((stamp if args.timestamps else b"") + waiting[number].pop())
            file.write(b"".join(lines))
        for rank in ranks:
            file.write(b"".join(map(rank.line, recording.after)) % ())
        return file.tell()


BATCH = 10_000  # lines written at once


def write_lines(path: Path, num_bytes: int, line: Callable[[int], str]) -> int:
    """Lines 1, 2, 3, ... until there are so many bytes."""
    with path.open("wb") as file:
        i = 1
        while file.tell() < num_bytes:
            file.write("\n".join([*map(line, range(i, i + BATCH)), ""]).encode())
            i += BATCH
        return file.tell()


def write_training(args: argparse.Namespace) -> int:
    """What a training script prints: steps, progress bars, warnings, the loss."""
    rng = random.Random(args.seed)  # noqa: S311
    kinds = (
        "2025-11-20 12:{m:02d}:{s:02d},{n:03d} INFO trainer: step {i} | loss {f:.4f} | grad {g:.3f} | {n} tokens/s",
        "  {p}%|####      | {i}/9999999 [00:{m:02d}<00:{s:02d}, 31.2it/s, loss={f:.3f}]",
        "{{'loss': {f:.4f}, 'grad_norm': {g:.4f}, 'learning_rate': 2e-05, 'epoch': {g:.2f}}}",
        "[rank{r}] memory allocated {n}.{p} MiB, reserved {n} MiB, {m} blocks of the caching allocator are free",
        "WARNING:tokenizer: sequence of {n} tokens is longer than the limit ({p}), it will be truncated",
        "batch {i} of shard {m}: {n} samples read in {f:.3f} s from /data/train/shard-{s:05d}.tar",
    )

    def line(i: int) -> str:
        return kinds[rng.choice((0, 0, 1, 1, 2, 3, 4, 5))].format(
            i=i,
            m=i // 60 % 60,
            s=i % 60,
            n=rng.randrange(100, 1000),
            p=i % 100,
            r=i % 8,
            f=rng.random(),
            g=rng.random(),
        )

    return write_lines(args.out / "train.log", args.bytes, line)


def write_words(args: argparse.Namespace) -> int:
    """Lines of which no two are alike."""
    rng = random.Random(args.seed)  # noqa: S311
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 10))) for _ in range(5_000)]
    return write_lines(
        args.out / "words.log", args.bytes, lambda _: " ".join(rng.choices(words, k=rng.randrange(5, 25)))
    )


_BAR = 10 * "\N{FULL BLOCK}"


def write_bars(args: argparse.Namespace) -> int:
    """Progress bars that overwrite themselves a hundred times in each line, and the loss."""
    rng = random.Random(args.seed)  # noqa: S311

    def line(i: int) -> str:
        bars = [
            f"\rEpoch {i}: {p:3d}%|{_BAR[: p // 10]:10}| {p * 12}/1200 [{p // 60:02d}:{p % 60:02d}<00:{99 - p:02d}, "
            f"{rng.uniform(5, 9):.2f}it/s, loss={rng.random():.4f}]"
            for p in range(100)
        ]
        return "".join([*bars, f"\n{{'loss': {rng.random():.4f}, 'grad_norm': {rng.random():.6f}}}"])

    return write_lines(args.out / "bars.log", args.bytes, line)


def write_tqdm(args: argparse.Namespace) -> int:
    """Progress bars without any newline."""
    rng = random.Random(args.seed)  # noqa: S311
    path: Path = args.out / "tqdm.log"
    with path.open("wb") as file:
        i = 0
        while file.tell() < args.bytes:
            bars = []
            for _ in range(BATCH):
                i += 1
                eighths = i % 160
                bar = (
                    eighths // 8 * "\N{FULL BLOCK}" + " \u258f\u258e\u258d\u258c\u258b\u258a\u2589"[eighths % 8]
                ).ljust(20)
                speed = f"[{i % 60:02d}:00<1:00, {rng.random():.2f}it/s]"
                bars.append(f"\rTraining: {eighths * 5 // 8:3d}%|{bar}| {i}/9999999 {speed}")
            file.write("".join(bars).encode())
        return file.tell()


def write_objects(args: argparse.Namespace) -> int:
    """Lines of a megabyte of JSON."""
    rng = random.Random(args.seed)  # noqa: S311
    names = [f"metric_{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(200)]

    def line(i: int) -> bytes:
        objects = [{"at": i * 9_000 + k, "name": rng.choice(names), "value": rng.random()} for k in range(16_000)]
        return json.dumps({"step": i, "metrics": objects}).encode() + b"\n"

    some = [line(i) for i in range(8)]
    path: Path = args.out / "metrics.jsonl"
    with path.open("wb") as file:
        while file.tell() < args.bytes:
            file.write(rng.choice(some))
        return file.tell()


def write_binary(args: argparse.Namespace) -> int:
    """No text at all."""
    rng = random.Random(args.seed)  # noqa: S311
    path: Path = args.out / "core.log"
    with path.open("wb") as file:
        while file.tell() < args.bytes:
            file.write(rng.randbytes(1 << 20))
        return file.tell()


SETUP = (
    "Channel {c:02d}/0 : {r}[{d}] -> {q}[{e}] via P2P/CUMEM/read",
    "Channel {c:02d}/0 : {r}[{d}] -> {q}[{e}] [send] via NET/IB/{d}/GDRDMA",
    "Trees [{c}] {q}/-1/-1->{r}->{p} [{d}] {p}/-1/-1->{r}->{q}",
    "Connected all rings, use ring PXN 0 GDR 1",
    "comm 0x{a:012x} rank {r} nRanks {w} nNodes {m} localRanks 8 localRank {d} MNNVL 0",
    "NVLS multicast support is available on dev {d} (NVLS_NCHANNELS 16)",
    "threadThresholds 8/8/64 | {w}/8/64 | 512 | 512",
    "Setting affinity for GPU {d} to ffffff,ffffff{c:02d},00000000",
    "ncclCommSplit comm 0x{a:012x} rank {r} nranks {w} cudaDev {d} nvmlDev {d} busId {d}000 parent 0x{b:012x}",
)


def write_mixed(args: argparse.Namespace) -> int:
    """A launcher's log of a job: a quarter NCCL's setup lines, the rest what trainers and launchers print."""
    rng = random.Random(args.seed)  # noqa: S311
    rank_words = ("{{'loss': {f:.4f}, 'grad_norm': {g:.4f}, 'lr': 2e-05}}", "step {i}/9999999 loss {f:.4f} {n} ms")
    launcher = (
        "W1120 12:{m:02d}:{s:02d}.{n:06d} {o} torch/distributed/run.py:793] Setting OMP_NUM_THREADS to {d}",
        "I1120 12:{m:02d}:{s:02d}.{n:06d} {o} torch/elastic/agent/server/api.py:845] [default] group",
        "/opt/conda/lib/python3.11/site-packages/pkg{c}/layer.py:{n}: UserWarning: argument {c} of {n} is deprecated",
        "  warnings.warn(",
        "{p}%|####      | {i}/9999999 [00:{m:02d}<00:{s:02d}, 31.2it/s]",
    )

    def line(i: int) -> str:
        r = rng.randrange(args.ranks)
        values = {
            "i": i, "m": i // 60 % 60, "s": i % 60, "n": rng.randrange(100, 1000), "p": i % 100, "r": r,
            "f": rng.random(), "g": rng.random(), "d": r % 8, "e": (r + 1) % 8, "q": (r + 1) % args.ranks,
            "c": rng.randrange(32), "w": args.ranks, "a": rng.randrange(16**9), "b": r * 4096,
            "o": 4_000 + r // 8,
        }  # fmt: skip
        kind = rng.random()
        values["m"] = values["m"] if kind > 0.25 else max(1, args.ranks // 8)
        if kind < 0.25:
            front = f"gpu{r // 8:04d}:{9_000 + r}:{9_600 + r} [{r % 8}] NCCL INFO "
            text = front + rng.choice(SETUP).format(**values)
        elif kind < 0.8:
            text = f"[rank{r}]: " * (args.ranks > 1) + rng.choice(rank_words).format(**values)
        else:
            text = rng.choice(launcher).format(**values)
        stamp = f"2025-11-20T12:{i // 60 % 60:02d}:{i % 60:02d}.{i % 1000:03d}Z " if args.timestamps else ""
        return stamp + text

    return write_lines(args.out / "job.log", args.bytes, line)


WRITERS: dict[str, Callable[[argparse.Namespace], int]] = {
    "training": write_training, "mixed": write_mixed, "words": write_words, "bars": write_bars, "tqdm": write_tqdm,
    "objects": write_objects, "binary": write_binary,
}  # fmt: skip

PREFIXES = (
    "[rank{r}]: ",
    "{r}: ",
    "[1,{r}]<stdout>:",
    "(RayTrainWorker pid={p}, ip=10.0.{h}.{g}) ",
    "(RayTrainWorker pid={p}) ",
    "2025-11-20T12:{m:02d}:{s:02d}.{n:03d}Z ",
    "[2025-11-20 12:{m:02d}:{s:02d},{n:03d}] ",
    "Nov 20 12:{m:02d}:{s:02d} gpu{h:04d} train[{p}]: ",
    "[gpu{h:04d}:{p}] ",
    "",
)


def prefixed(lines: list[bytes], rng: random.Random, first: int) -> list[bytes]:
    """Before each line what launchers, actors and system logs put there."""
    found = []
    for i, line in enumerate(lines, first):
        r = rng.randrange(64)
        front = rng.choice(PREFIXES).format(
            r=r, p=4_000 + r, h=r // 8, g=r % 8, m=i // 60 % 60, s=i % 60, n=rng.randrange(1000)
        )
        found.append(front.encode() + line)
    return found


def in_objects(lines: list[bytes], rng: random.Random, first: int) -> list[bytes]:
    """As Kubernetes keeps the output of a container."""
    return [
        b'{"log":%s,"stream":"%s","time":"2025-11-20T12:%02d:%02d.%09dZ"}'
        % (json.dumps(line.decode() + "\n").encode(), rng.choice((b"stdout", b"stderr")), i // 60 % 60, i % 60, i)
        for i, line in enumerate(lines, first)
    ]


def coloured(lines: list[bytes], rng: random.Random, _: int) -> list[bytes]:
    """The first word of each line in a colour."""
    return [b"\x1b[%dm%b\x1b[0m %b" % (rng.randrange(31, 37), *line.partition(b" ")[::2]) for line in lines]


LINE_FORMS = {"prefixes": prefixed, "kubernetes": in_objects, "colours": coloured}
FILE_FORMS = ("crlf", "utf-16", "gz", "xz", "zst")


def rewrite(path: Path, form: str, seed: int) -> int:
    """Write a log in another form; how many bytes it has then."""
    data = path.read_bytes()
    if form in LINE_FORMS:
        rng, lines = random.Random(seed), data.splitlines()  # noqa: S311
        data = b"\n".join([*LINE_FORMS[form](lines, rng, 0), b""])
    elif form == "crlf":
        data = data.replace(b"\n", b"\r\n")
    elif form == "utf-16":
        data = data.decode().encode("utf-16")
    else:
        path.unlink()
        path = path.with_name(f"{path.name}.{form}")
        data = COMPRESSORS[form](data)
    path.write_bytes(data)
    return len(data)


def in_zstandard(data: bytes) -> bytes:
    """Compressed by the program `zstd`."""
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout  # noqa: S607


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "xz": lzma.compress, "zst": in_zstandard}


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--bytes", type=size_of, default="1GB")
    found.add_argument("--ranks", type=int, default=64)
    found.add_argument("--out", type=Path, required=True)
    found.add_argument("--like", type=Path, default=RECORDED, help="a recorded NCCL log of one process")
    found.add_argument("--kind", choices=("nccl", *WRITERS, *foreign_lines.KINDS), default="nccl")
    found.add_argument("--as", dest="form", choices=(*LINE_FORMS, *FILE_FORMS), help="how the lines are written")
    found.add_argument("--front", default="", help="put before every line, as in '{rank}: '")
    found.add_argument("--iterations", action="store_true")
    found.add_argument("--interleaved", action="store_true")
    found.add_argument("--timestamps", action="store_true", help="with --interleaved or --kind mixed")
    found.add_argument("--seed", type=int, default=1)
    return found


def make(args: argparse.Namespace) -> int:
    """Write the files; returns how many bytes."""
    args.out.mkdir(parents=True, exist_ok=True)
    if args.kind in WRITERS:
        total = WRITERS[args.kind](args)
    elif args.kind in foreign_lines.KINDS:
        total = foreign_lines.write(args.out / f"{args.kind}.log", args.kind, args.bytes, args.seed)
    else:
        recording = Recording.read(args.like)
        total = write_interleaved(args, recording) if args.interleaved else write_ranks(args, recording)
    return sum(rewrite(path, args.form, args.seed) for path in sorted(args.out.iterdir())) if args.form else total


if __name__ == "__main__":
    sys.stdout.write(f"{make(parser().parse_args())} bytes\n")
