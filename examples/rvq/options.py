"""Options of the training, and presets of them."""

import argparse
from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "basic": {"batch_size": 32, "num_workers": 0},
    "gpu_cache": {"batch_size": 64, "num_workers": 0, "use_gpu_cache": True},
    "prefetch": {"batch_size": 32, "num_workers": 2, "prefetch": 4},
    "conservative": {"batch_size": 8, "num_workers": 0},
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """A preset's values, and those given in their place."""
    parser = argparse.ArgumentParser(description="Train a residual vector quantiser.")
    parser.add_argument("--preset", choices=PRESETS, default="basic")
    parser.add_argument("--batch-size", type=int, help="clips per rank and step")
    parser.add_argument("--num-workers", type=int, help="processes of the loader")
    parser.add_argument("--prefetch", type=int, default=0, help="batches that are made ready ahead of their step")
    parser.add_argument("--use-gpu-cache", action="store_true", help="keep all clips on the device of the model")
    parser.add_argument("--multi-length-training", action="store_true", help="clips of several lengths, one per batch")
    parser.add_argument("--data", help="folder of .npy files, each (frames, 32); by default clips are generated")
    parser.add_argument("--num-steps", type=int, default=400)
    parser.add_argument("--eval-every", type=int, default=50)
    parser.add_argument("--folder", default="rvq-run", help="of the checkpoint and the records")
    parser.add_argument("--num-codebooks", type=int, default=4)
    parser.add_argument("--num-codes", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--timeout-s", type=float, default=600.0, help="of collectives in training")
    parser.add_argument("--min-ranks", type=int, default=1, help="go on with so many when others are lost")
    chosen = parser.parse_known_args(arguments)[0].preset
    parser.set_defaults(**PRESETS[chosen])
    return parser.parse_args(arguments)
