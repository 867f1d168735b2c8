"""A JAX rank of the staged collectives: `python -m allready.preflight.collectives.jax_rank FDS`, by its agent only."""

import contextlib
import functools
import sys
from typing import Any, NoReturn

from allready.messaging.any_port import any_port
from allready.model.addresses import endpoint
from allready.model.fill import said
from allready.model.operations import SWEEPS
from allready.preflight.collectives.jax_operations import JaxDevices, JaxOperation, shard_map
from allready.preflight.collectives.rank_side import Note, RankSide, WrongResultError
from allready.preflight.collectives.sweep import Sweep

WIDE = frozenset({"float64", "int64"})
_DEVICES = "{platform}: {local} of {everywhere} devices here"
_WRONG_SUM = "psum over {num} devices gave {got} instead of {expected}"


class JaxRank:
    """The stages; each leaves what the next ones need."""

    def __init__(self, side: RankSide) -> None:
        self.side = side
        self.jax: Any = None
        self.devices: JaxDevices | None = None
        self.spent_s = 0.0  # by the sweeps so far, the same on all ranks

    def import_(self, note: Note) -> None:
        import jax

        self.jax = jax
        note(f"jax {jax.__version__}")

    def init(self, note: Note) -> None:
        """Meet the other processes at the coordinator, which is rank 0; then open the devices."""
        jax, side = self.jax, self.side
        with contextlib.suppress(AttributeError, ValueError):  # only CPU devices read it; newer versions default to it
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
        if side.orders.dtype in WIDE:  # JAX makes 32 bits of them otherwise
            jax.config.update("jax_enable_x64", True)
        if side.orders.rank == 0:
            with any_port() as listener:
                port = listener.getsockname()[1]
            side.send_port(port)
        else:
            port = side.other_port()
        jax.distributed.initialize(
            coordinator_address=endpoint(side.orders.master_addr, port),
            num_processes=side.orders.world_size,
            process_id=side.orders.rank,
            local_device_ids=[side.orders.device_index],
            initialization_timeout=int(side.orders.backend_timeout_s),
        )
        local, everywhere = len(jax.local_devices()), len(jax.devices())
        if jax.process_count() != side.orders.world_size:
            raise RuntimeError(f"jax counts {jax.process_count()} processes instead of {side.orders.world_size}")
        note(said(_DEVICES, platform=jax.devices()[0].platform, local=local, everywhere=everywhere))

    def psum(self, note: Note) -> None:
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        jax = self.jax
        devices = jax.devices()
        mesh = Mesh(np.array(devices), ("all",))
        values = np.arange(1, len(devices) + 1, dtype=np.float32)
        sharding = NamedSharding(mesh, PartitionSpec("all"))
        array = jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])
        summed = jax.jit(
            shard_map(jax)(
                lambda x: jax.lax.psum(x, "all"), mesh=mesh, in_specs=PartitionSpec("all"), out_specs=PartitionSpec()
            )
        )(array)
        expected = float(values.sum())
        for shard in summed.addressable_shards:
            got = float(np.asarray(shard.data).reshape(-1)[0])
            if got != expected:
                raise WrongResultError(said(_WRONG_SUM, num=len(devices), got=repr(got), expected=repr(expected)))
        note(said("{num} devices", num=len(devices)))

    def sweep(self, note: Note, stage: str) -> None:
        """One operation at all sizes; timed by this process's clock, from the call until the result is there."""
        orders = self.side.orders
        if self.devices is None:
            self.devices = JaxDevices(self.jax)
            if self.devices.count != orders.world_size:
                raise RuntimeError(f"{self.devices.count} devices in {orders.world_size} processes: one each is needed")
        one = JaxOperation(SWEEPS[stage], self.devices, orders.rank, orders.dtype)
        sweep = Sweep(self.side, stage, one, self.devices.greatest)
        num_left = sum(s in SWEEPS for s in orders.stages[orders.stages.index(stage) :])
        num_sizes, took_s = sweep.run(max(0.0, orders.sweep_budget_s - self.spent_s) / num_left)
        self.spent_s += took_s
        note(sweep.words(num_sizes))


def main(argv: list[str]) -> NoReturn:
    """Never returns: the process ends when its agent says so, or by an error."""
    side = RankSide(argv)
    rank = JaxRank(side)
    side.run(
        {
            "jax_import": rank.import_,
            "jax_init": rank.init,
            "jax_psum": rank.psum,
            **{stage: functools.partial(rank.sweep, stage=stage) for stage in SWEEPS},
        }
    )


if __name__ == "__main__":
    main(sys.argv)
