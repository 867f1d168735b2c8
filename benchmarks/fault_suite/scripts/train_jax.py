"""A small data-parallel loop in JAX on several processes: one psum over all of them in each step."""

import argparse
import time
from typing import Any

from marks import Marks  # type: ignore[import-not-found]


def options() -> argparse.Namespace:
    """What the suite needs to differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--step-ms", type=float, default=30)
    parser.add_argument("--compile-rank", type=int, default=-1, help="this process compiles something slow of its own")
    parser.add_argument("--compile-at", type=int, default=60)
    parser.add_argument("--compile-layers", type=int, default=1500)
    return parser.parse_args()


def compile_something_slow(layers: int) -> Any:
    """A program whose compilation takes long: as with a cold cache on one host."""
    import jax
    import jax.numpy as jnp

    def deep(x: Any) -> Any:
        for number in range(layers):
            x = jnp.sin(x) * (number + 1.5) + jnp.cos(x)
        return x

    return jax.jit(deep)(jnp.ones(8)).block_until_ready()


def main() -> None:
    """Train."""
    import jax
    import jax.numpy as jnp

    args = options()
    jax.distributed.initialize()
    marks = Marks(jax.process_index())
    count = jax.local_device_count()

    def update(x: Any) -> Any:
        return jax.lax.psum(x, "all")

    step_function = jax.pmap(update, axis_name="all")
    values = jnp.ones((count, 16))
    for step in range(args.steps):
        time.sleep(args.step_ms / 1000)
        if jax.process_index() == args.compile_rank and step == args.compile_at:
            compile_something_slow(args.compile_layers)
        marks.enter()
        step_function(values).block_until_ready()
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
