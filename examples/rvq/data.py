"""Clips of features: generated, or cut from .npy files."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from model import NUM_FEATURES

LENGTH = 32
LENGTHS = (16, 32, 64)


class Clips(Dataset[Tensor]):
    """Clips of one length; the same number always gives the same clip."""

    def __init__(self, folder: str | None, *, seed: int, num: int, length: int) -> None:
        self.seed, self.num, self.length = seed, num, length
        self._files = [np.load(p, mmap_mode="r") for p in sorted(Path(folder).glob("*.npy"))] if folder else []
        self._files = [f for f in self._files if f.ndim == 2 and f.shape[1] == NUM_FEATURES and len(f) >= max(LENGTHS)]
        if folder and not self._files:
            raise SystemExit(f"no .npy file of (at least {max(LENGTHS)} frames, {NUM_FEATURES}) in {folder}")

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, number: int) -> Tensor:
        chance = np.random.default_rng([self.seed, number])
        if self._files:
            found = self._files[chance.integers(len(self._files))]
            begin = chance.integers(len(found) - self.length + 1)
            return torch.tensor(found[begin : begin + self.length], dtype=torch.float32)
        return torch.tensor(_voice(chance, self.length), dtype=torch.float32)


def _voice(chance: np.random.Generator, length: int) -> np.ndarray:
    """Something like the log spectrum of a voice: three partials that glide, and noise."""
    frames, bands = np.arange(length)[:, None], np.arange(NUM_FEATURES)[None, :]
    base, speed, depth = chance.uniform(3, 9), chance.uniform(0.05, 0.3), chance.uniform(0, 1.5)
    pitch = base + depth * np.sin(speed * frames + chance.uniform(0, 6))
    partials = [chance.uniform(0.5, 2) * np.exp(-((bands - n * pitch) ** 2) / 2) for n in (1, 2, 3)]
    return np.sum(partials, 0) + 0.05 * chance.standard_normal((length, NUM_FEATURES))


class Batches:
    """This rank's batch of each step; a step has the same clips whether the run was interrupted before it or not."""

    def __init__(
        self, options: Any, *, rank: int, num_ranks: int, num_clips: int = 2048, device: torch.device | str = "cpu"
    ) -> None:
        self._options, self._rank, self._num_ranks = options, rank, num_ranks
        self._device = torch.device(device)
        lengths = LENGTHS if options.multi_length_training else (LENGTH,)
        self._sets = [Clips(options.data, seed=1, num=num_clips, length=length) for length in lengths]
        self._cache = (
            [torch.stack([s[n] for n in range(num_clips)]).to(self._device) for s in self._sets]
            if options.use_gpu_cache
            else None
        )

    def from_step(self, step: int) -> Iterator[Tensor]:
        """Batches from this step on, without end, on the device of the model."""
        if self._cache is not None:
            while True:
                yield self._cache[step % len(self._sets)][self._numbers(step)]
                step += 1
        steps = _Steps(self, step)
        more = {"prefetch_factor": max(1, self._options.prefetch)} if self._options.num_workers else {}
        is_pinned = self._options.pin_memory and self._device.type == "cuda"
        loader = DataLoader(steps, batch_size=None, num_workers=self._options.num_workers, pin_memory=is_pinned, **more)
        is_ahead = self._options.prefetch and not self._options.num_workers
        for batch in _ahead(iter(loader), self._options.prefetch) if is_ahead else loader:
            yield batch.to(self._device, non_blocking=is_pinned)

    def at(self, step: int) -> Tensor:
        clips = self._sets[step % len(self._sets)]
        return torch.stack([clips[n] for n in self._numbers(step)])

    def _numbers(self, step: int) -> list[int]:
        size = self._options.batch_size
        order = np.random.default_rng([2, step]).permutation(len(self._sets[0]))
        begin = self._rank * size % len(order)
        return [int(n) for n in np.roll(order, -begin)[:size]]


class _Steps(torch.utils.data.IterableDataset[Tensor]):
    def __init__(self, batches: Batches, step: int) -> None:
        self._batches, self._step = batches, step

    def __iter__(self) -> Iterator[Tensor]:
        worker = torch.utils.data.get_worker_info()
        step = self._step + (worker.id if worker else 0)
        while True:
            yield self._batches.at(step)
            step += worker.num_workers if worker else 1


def _ahead(batches: Iterator[Tensor], depth: int) -> Iterator[Tensor]:
    """Make batches ready in a thread, so many ahead."""
    ready: queue.Queue[Tensor | Exception] = queue.Queue(depth)
    end = threading.Event()

    def put(found: Tensor | Exception) -> None:
        while not end.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(found, timeout=0.2)
                return

    def work() -> None:
        try:
            for batch in batches:
                put(batch)
                if end.is_set():
                    return
        except Exception as error:  # noqa: BLE001 - raised where the batch is asked for
            put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            found = ready.get(timeout=600)
            if isinstance(found, Exception):
                raise found
            yield found
    finally:
        end.set()
        thread.join(10)


def held_out(options: Any, *, rank: int, num_ranks: int, num_batches: int = 4) -> list[Tensor]:
    """Batches for the evaluation that are never trained on; each rank has its own."""
    clips = Clips(options.data, seed=3, num=num_batches * num_ranks * options.batch_size, length=LENGTH)
    return [
        torch.stack([clips[(number * num_ranks + rank) * options.batch_size + n] for n in range(options.batch_size)])
        for number in range(num_batches)
    ]
