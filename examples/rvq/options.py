"""Options of the training, and presets of them."""

import argparse
from collections.abc import Callable
from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "basic": {"batch_size": 32, "num_workers": 0},
    "gpu_cache": {"batch_size": 64, "num_workers": 0, "use_gpu_cache": True},
    "prefetch": {"batch_size": 32, "num_workers": 2, "prefetch": 4, "pin_memory": True},
    "conservative": {"batch_size": 8, "num_workers": 0},
}


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return int(text)

    return number


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """A preset's values, and those given in their place."""
    parser = argparse.ArgumentParser(description="Train a residual vector quantiser.")
    parser.add_argument("--preset", choices=PRESETS, default="basic")
    parser.add_argument("--batch-size", type=_at_least(1), help="clips per rank and step")
    parser.add_argument("--num-workers", type=_at_least(0), help="processes of the loader")
    parser.add_argument(
        "--prefetch", type=_at_least(0), default=0, help="batches that are made ready ahead of their step"
    )
    parser.add_argument("--pin-memory", action="store_true", help="batches in memory that a GPU reads by itself")
    parser.add_argument("--use-gpu-cache", action="store_true", help="keep all clips on the device of the model")
    parser.add_argument("--multi-length-training", action="store_true", help="clips of several lengths, one per batch")
    parser.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto", help="auto: a GPU where there is one"
    )
    parser.add_argument("--data", help="folder of .npy files, each (frames, 32); by default clips are generated")
    parser.add_argument("--num-steps", type=_at_least(1), default=400)
    parser.add_argument("--eval-every", type=_at_least(1), default=50)
    parser.add_argument("--folder", default="rvq-run", help="of the checkpoint and the records")
    parser.add_argument("--num-codebooks", type=_at_least(1), default=4)
    parser.add_argument("--num-codes", type=_at_least(1), default=64)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--timeout-s", type=float, default=600.0, help="of collectives in training")
    parser.add_argument("--min-ranks", type=_at_least(1), default=1, help="go on with so many when others are lost")
    chosen = parser.parse_known_args(arguments)[0].preset
    parser.set_defaults(**PRESETS[chosen])
    return parser.parse_args(arguments)
