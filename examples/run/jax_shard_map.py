"""JAX on several processes with `shard_map`, and the coordinator given as arguments, as hand-written launchers do.

`allready run --nproc-per-node 2 jax_shard_map.py`, or per process, without allready:
`python jax_shard_map.py --coordinator 127.0.0.1:1234 --processes 2 --process 0`
"""

import argparse
import os

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

try:
    from jax import shard_map
except ImportError:  # JAX before 0.6
    from jax.experimental.shard_map import shard_map  # type: ignore[no-redef]


def main() -> None:
    environ = os.environ
    parser = argparse.ArgumentParser()
    parser.add_argument("--coordinator", default=environ.get("JAX_COORDINATOR_ADDRESS"))
    parser.add_argument("--processes", type=int, default=int(environ.get("JAX_NUM_PROCESSES", "1")))
    parser.add_argument("--process", type=int, default=int(environ.get("JAX_PROCESS_ID", "0")))
    options = parser.parse_args()
    jax.distributed.initialize(options.coordinator, options.processes, options.process)

    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("data",))
    rows = np.arange(len(devices) * 4 * 3, dtype=np.float32).reshape(-1, 3)
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    x = jax.make_array_from_callback(rows.shape, sharding, lambda index: rows[index])

    @jax.jit
    def step(total: jax.Array, x: jax.Array) -> jax.Array:
        summed = shard_map(
            lambda part: jax.lax.psum(part.sum(axis=0), "data"),
            mesh=mesh,
            in_specs=PartitionSpec("data"),
            out_specs=PartitionSpec(),
        )(x)
        return total * 0.5 + summed

    total = jax.device_put(np.zeros(3, np.float32), NamedSharding(mesh, PartitionSpec()))
    for _ in range(50):
        total = step(total, x)
    value = np.asarray(total.addressable_data(0))
    print(f"process {jax.process_index()} of {jax.process_count()}: {value.round(3).tolist()}")


if __name__ == "__main__":
    main()
