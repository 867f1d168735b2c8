"""JAX on several processes, one step mapped over all devices by `jax.pmap`.

`allready run --nproc-per-node 2 jax_pmap.py`: `initialize()` needs no arguments.
"""

import jax

jax.distributed.initialize()

import jax.numpy as jnp  # noqa: E402 - nothing of JAX may run before initialize()


def main() -> None:
    local, everywhere = jax.local_device_count(), jax.device_count()

    def step(weights: jax.Array, x: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda w: jnp.mean((x @ w - x.sum(axis=1)) ** 2))(weights)
        return weights - 0.1 * jax.lax.pmean(gradient, axis_name="devices")

    mapped = jax.pmap(step, axis_name="devices")
    weights = jnp.zeros((local, 4))
    key = jax.random.key(jax.process_index())
    for _ in range(50):
        key, now = jax.random.split(key)
        weights = mapped(weights, jax.random.normal(now, (local, 16, 4)))
    print(f"process {jax.process_index()} of {jax.process_count()}, {everywhere} devices, {weights[0].sum():.5f}")


if __name__ == "__main__":
    main()
