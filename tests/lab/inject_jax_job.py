"""A few steps of a JAX job on two processes, for the injector's tests: a psum in each; stalls end with exit code 7."""

import os
import sys
import threading
import time
from typing import Any


def main() -> None:
    import jax
    import jax.numpy as jnp

    rank = int(os.environ["RANK"])
    jax.distributed.initialize(
        f"127.0.0.1:{os.environ['MASTER_PORT']}", int(os.environ["WORLD_SIZE"]), rank, initialization_timeout=30
    )
    moved = [time.monotonic() + 15]

    def watch() -> None:
        while time.monotonic() < moved[0] + 1.5:
            time.sleep(0.05)
        sys.stdout.flush()
        os._exit(7)

    threading.Thread(target=watch, daemon=True).start()

    @jax.jit
    def local(x: Any) -> Any:
        return x + 1

    total = jax.pmap(lambda x: jax.lax.psum(x, "all"), axis_name="all")
    for step in range(15):
        time.sleep(0.02)
        local(jnp.ones(3))  # of this process alone: no step of the job
        value = total(jnp.full((1, 4), float(rank + step))).block_until_ready()
        moved[0] = time.monotonic()
        sys.stdout.write(f"step {step} {float(value.addressable_data(0).ravel()[0])}\n")
        sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
