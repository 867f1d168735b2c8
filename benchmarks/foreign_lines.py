"""What programs of others print, for `make_logs.py`: frameworks, structured records, tensors and tables, servers.

Each kind is one log as a job might leave it; lines, stamps and colours are made up in the form of the programs' own.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

BATCH_BYTES = 1 << 20
_WORDS = [
    "the",
    "model",
    "reads",
    "a",
    "sentence",
    "and",
    "writes",
    "what",
    "might",
    "come",
    "next",
    "so",
    "the",
    "answer",
    "is",
    "longer",
    "than",
    "it",
    "was",
    "before",
]
_CHINESE = (
    "\u8bad\u7ec3\u635f\u5931\u5b66\u4e60\u7387\u6b65\u6570\u5f53\u524d\u8f6e\u6b21\u9a8c\u8bc1\u96c6\u7cbe\u5ea6"
    "\u4fdd\u5b58\u6a21\u578b\u52a0\u8f7d\u6570\u636e\u663e\u5b58\u5360\u7528\u901f\u5ea6\u9884\u8ba1\u5269\u4f59"
)
_BAR = 40 * "\N{FULL BLOCK}"


def _clock(i: int) -> str:
    return f"{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}"


def frameworks(rng: random.Random) -> Iterator[str]:
    """Megatron, DeepSpeed, Lightning, Keras, absl, glog, loguru and plain logging in one file."""
    for i in range(1 << 40):
        n, f, g, r = rng.randrange(100, 9999), rng.random(), rng.uniform(0.1, 3), rng.randrange(64)
        yield (
            f" [2025-11-20 {_clock(i)}] iteration {i:8d}/  500000 | consumed samples: {i * 512:12d} | elapsed time per "
            f"iteration (ms): {n * f:.1f} | learning rate: {f:.6E} | global batch size:   512 | lm loss: {g:.6E} | "
            f"loss scale: 1.0 | grad norm: {f:.3f} | number of skipped iterations:   0 |\n"
            f"[2025-11-20 {_clock(i)},{n % 1000:03d}] [INFO] [logging.py:128:log_dist] [Rank 0] step={i}, skipped={r}, "
            f"lr=[{f:.6e}, {f:.6e}], mom=[(0.9, 0.999), (0.9, 0.999)]\n"
            f"[2025-11-20 {_clock(i)},{n % 1000:03d}] [INFO] [timer.py:264:stop] epoch=0/micro_step={i}/"
            f"global_step={i}, RunningAvgSamplesPerSec={n * f:.6f}, "
            f"MemAllocated={g:.2f}GB, MaxMemAllocated={g + f:.2f}GB\n"
            f"I1120 {_clock(i)}.{n:06d} {139000 + r} train.py:{r + 90}] step = {i}, loss = {g:.5f} ({f:.3f} sec)\n"
            f"2025-11-20 {_clock(i)}.{n % 1000:03d} | INFO     | trainer.loop:run:{r + 40} - epoch {i // 500} batch "
            f"{i} loss={g:.4f} acc={f:.4f}\n"
            f"{i % 1875}/1875 [==============================] - {r}s {n % 90}ms/step - loss: {g:.4f} - "
            f"accuracy: {f:.4f} - val_loss: {g + f:.4f} - val_accuracy: {f:.4f}\n"
            f"Epoch {i // 500}: {i % 100:3d}%|{_BAR[: i % 41]:40}| {i % 500}/500 [{_clock(i)[3:]}<00:07, "
            f"{n / 100:.2f}it/s, v_num={r}, train_loss={g:.3f}]\n"
            f"INFO {_clock(i)} [loggers.py:123] Engine {r:03d}: Avg prompt throughput: {n * f:.1f} tokens/s, Avg "
            f"generation throughput: {n * g:.1f} tokens/s, Running: {r} reqs, Waiting: 0 reqs, GPU KV cache usage: "
            f"{100 * f:.1f}%, Prefix cache hit rate: {60 * f:.1f}%\n"
        )


def records(rng: random.Random) -> Iterator[str]:
    """Structured logging: one JSON object in each line, with identifiers that never come again."""
    for i in range(1 << 40):
        trace, span = f"{rng.getrandbits(128):032x}", f"{rng.getrandbits(64):016x}"
        words = " ".join(rng.choices(_WORDS, k=6))
        yield "".join(
            json.dumps(one) + "\n"
            for one in (
                {"ts": f"2025-11-20T{_clock(i)}Z", "level": "info", "step": i, "loss": rng.random(), "trace": trace},
                {"level": "debug", "logger": "data.loader", "msg": words, "span_id": span, "shard": i % 64},
                {"event": "metrics", "values": {"tokens": i * 4096, "mfu": rng.random(), "grad": rng.random()}},
            )
        )


def tables(rng: random.Random) -> Iterator[str]:
    """Tensors of several lines, Rich's tables in colours, confusion matrices, reports of a classifier."""
    for i in range(1 << 40):
        rows = [", ".join(f"{rng.uniform(-3, 3):7.4f}" for _ in range(8)) for _ in range(6)]
        yield "tensor([[" + "],\n        [".join(rows) + f"]], device='cuda:{i % 8}', grad_fn=<AddBackward0>)\n"
        yield "\u250f" + 14 * "\u2501" + "\u2533" + 12 * "\u2501" + "\u2513\n"
        for name in ("train/loss", "val/loss", "lr", "tokens/s"):
            value = rng.random() * 10 ** rng.randrange(5)
            yield f"\u2503\x1b[36m {name:12} \x1b[0m\u2503\x1b[1;32m {value:10.4f} \x1b[0m\u2503\n"
        yield "\u2517" + 14 * "\u2501" + "\u253b" + 12 * "\u2501" + "\u251b\n"
        for name in ("cat", "dog", "weighted avg"):
            scores = " ".join(f"{rng.random():9.2f}" for _ in range(3))
            yield f"{name:>14} {scores} {rng.randrange(1 << 14):9d}\n"
        yield "".join(f"[{' '.join(f'{rng.randrange(999):3d}' for _ in range(10))}]\n" for _ in range(4))


def chinese(rng: random.Random) -> Iterator[str]:
    """What a script in Chinese prints, samples of text included."""
    step = (
        "2025-11-20 {clock} \u3010\u8bad\u7ec3\u3011\u7b2c {epoch} \u8f6e\uff0c\u6b65\u6570 {i}\uff0c\u635f\u5931\uff1a"
    )
    rate = "{f:.4f}\uff0c\u5b66\u4e60\u7387\uff1a{g:.2e}\uff0c\u5269\u4f59\u65f6\u95f4 {clock}\n"
    memory = "[\u8fdb\u5ea6] {p}% \u663e\u5b58\u5360\u7528 {n} MB\uff0c\u901f\u5ea6 {g:.2f} it/s\n"
    for i in range(1 << 40):
        values = {"i": i, "p": i % 100, "epoch": i // 500, "n": rng.randrange(80_000)}
        yield (step + rate + memory).format(clock=_clock(i), f=rng.random(), g=rng.random(), **values)
        if i % 4 == 0:
            yield f"\u751f\u6210\uff1a{''.join(rng.choices(_CHINESE, k=rng.randrange(20, 60)))}\u3002\n"


def servers(rng: random.Random) -> Iterator[str]:
    """A server's log: requests with identifiers and prompts, clients, colours around level and process."""
    settings = "SamplingParams(n=1, temperature=0.7, top_p=0.95, seed=None, stop=[], max_tokens={n})"
    for i in range(1 << 40):
        one, r = f"{rng.getrandbits(128):032x}", rng.randrange(8)
        front = f"\x1b[1;36m(APIServer pid={4000 + r})\x1b[0;0m \x1b[32mINFO\x1b[0m"
        prompt = " ".join(rng.choices(_WORDS, k=rng.randrange(5, 30)))
        yield (
            f"{front} 11-20 {_clock(i)} [logger.py:40] Received request chatcmpl-{one}: prompt: '{prompt}', params: "
            f"{settings.format(n=rng.randrange(4096))}, lora_request: None.\n"
            f'{front}:     10.0.{r}.{i % 256}:{rng.randrange(60_000)} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
            f"\x1b[36m(EngineCore_DP{r} pid={9000 + r})\x1b[0;0m INFO 11-20 {_clock(i)} [async_llm.py:261] Added "
            f"request cmpl-{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}-0.\n"
        )


def long_lines(rng: random.Random) -> Iterator[str]:
    """Lines of 100 KB: a list of numbers, a configuration in one line, a sample of text; a step between them."""
    numbers = [[f"{rng.uniform(-1, 1):.8f}" for _ in range(9_000)] for _ in range(6)]
    settings = {f"layer_{i}.{name}": rng.random() for i in range(900) for name in ("q_proj", "k_proj", "v_proj")}
    config = json.dumps(settings)
    for i in range(1 << 40):
        yield f"step {i} loss {rng.random():.4f}\n"
        yield f"[rank{i % 8}]: weights [{', '.join(rng.choice(numbers))}]\n"
        yield f"config: {config}\n"
        yield f"sample {i}: {' '.join(rng.choices(_WORDS, k=18_000))}\n"


KINDS: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "frameworks": frameworks, "records": records, "tables": tables, "chinese": chinese, "servers": servers,
    "long": long_lines,
}  # fmt: skip


def write(path: Path, kind: str, num_bytes: int, seed: int) -> int:
    """A log of this kind, of at least so many bytes; how many it has."""
    texts = KINDS[kind](random.Random(seed))  # noqa: S311
    with path.open("wb") as file:
        while file.tell() < num_bytes:
            some, size = [], 0
            while size < min(BATCH_BYTES, num_bytes):
                some.append(next(texts))
                size += len(some[-1])
            file.write("".join(some).encode())
        return file.tell()
