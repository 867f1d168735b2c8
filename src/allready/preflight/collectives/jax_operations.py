"""The operations of a sweep inside a JAX rank: compiled once per size, started and waited for, checked."""

from collections.abc import Callable, Sequence
from typing import Any

from allready.model import Phrase
from allready.model.fill import said
from allready.model.operations import OPERATIONS, OperationSpec
from allready.preflight.collectives.nccl_calls import BoundOperation
from allready.preflight.collectives.operations import WRONG, Weights

AXIS = "all"
_OTHER_SHAPE = "{got} elements instead of {expected}"


class JaxDevices:
    """One device of every process, in the order of their processes, as a mesh of one axis."""

    def __init__(self, jax: Any) -> None:
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        self.jax, self.numpy = jax, np
        self.mesh = Mesh(np.array(sorted(jax.devices(), key=lambda d: (d.process_index, d.id))), (AXIS,))
        self.split, self.whole = PartitionSpec(AXIS), PartitionSpec()
        self._sharding = NamedSharding(self.mesh, self.split)
        self._maxima: dict[int, Callable[[Any], Any]] = {}

    @property
    def count(self) -> int:
        """Devices of all processes."""
        return int(self.mesh.size)

    def array(self, own: Any) -> Any:
        """The array that has `own` on this process's device, and what the others give on theirs."""
        [device] = self.jax.local_devices()
        part = self.jax.device_put(own, device)
        shape = (len(own) * self.count,)
        return self.jax.make_array_from_single_device_arrays(shape, self._sharding, [part])

    def compiled(self, function: Callable[[Any], Any], argument: Any) -> Callable[[Any], Any]:
        """`function` of each device's part, compiled for `argument`; each device keeps what it gets."""
        mapped = shard_map(self.jax)(function, mesh=self.mesh, in_specs=self.split, out_specs=self.split)
        compiled: Callable[[Any], Any] = self.jax.jit(mapped).lower(argument).compile()
        return compiled

    def own_part(self, array: Any) -> Any:
        """What this process's device has of it."""
        return self.numpy.asarray(array.addressable_shards[0].data)

    def greatest(self, values: Sequence[float]) -> list[float]:
        """The greatest of each over all ranks."""
        argument = self.array(self.numpy.array(values, dtype=self.numpy.float32))
        if len(values) not in self._maxima:
            self._maxima[len(values)] = self.compiled(lambda x: self.jax.lax.pmax(x, AXIS), argument)
        return [float(v) for v in self.own_part(self._maxima[len(values)](argument))]


def shard_map(jax: Any) -> Any:
    """`jax.shard_map`, or what it was before 0.6."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map
    import jax.experimental.shard_map as older

    return older.shard_map


class JaxOperation:
    """One operation at one size; what it gives is new memory each time, as in a JAX program."""

    def __init__(self, name: str, devices: JaxDevices, rank: int, dtype: str) -> None:
        self.operation: OperationSpec = OPERATIONS[name]
        self._devices = devices
        self._dtype = devices.jax.numpy.dtype(dtype)
        self._weights = Weights(rank, devices.count, dtype)
        self._count = 0  # elements of the whole size
        self._input: Any = None
        self._result: Any = None
        self._run: Callable[[Any], Any] = lambda _: None

    def bind(self, size_bytes: int) -> Callable[[], Any]:
        """Compile it for this size; returns what starts it and waits for it."""
        n = self._devices.count
        self._count = size_bytes // self._dtype.itemsize
        own = self._count // n if self.operation.name == "all_gather" else self._count
        self._input = self._devices.array(self._values(own, self._weights.own))
        self._run = self._devices.compiled(self._function(), self._input)

        def start() -> None:
            self._result = self._run(self._input)
            self._result.block_until_ready()

        return start

    def _function(self) -> Callable[[Any], Any]:
        lax = self._devices.jax.lax
        if self.operation.name == "all_gather":
            return lambda x: lax.all_gather(x, AXIS, tiled=True)
        return lambda x: lax.psum(x, AXIS)

    def fill(self) -> None:
        """The input has its values already; there is no result yet."""
        self._result = None

    def check(self) -> tuple[int, str | Phrase]:
        """How many elements of the result are wrong, and words about the first."""
        np, weights = self._devices.numpy, self._weights
        if self.operation.name == "all_gather":
            part = self._count // self._devices.count
            expected = np.concatenate([self._values(part, weight) for weight in weights.each])
        else:
            expected = self._values(self._count, weights.sum)
        got = self._devices.own_part(self._result)
        if got.shape != expected.shape:
            return max(got.size, expected.size), said(_OTHER_SHAPE, got=got.shape, expected=expected.shape)
        wrong = np.flatnonzero(got != expected)
        if not len(wrong):
            return 0, ""
        at = int(wrong[0])
        values = {"got": repr(got[at].item()), "expected": repr(expected[at].item())}
        return len(wrong), said(WRONG, num=len(wrong), all=got.size, at=at, **values)

    def settle(self) -> None:
        """Nothing: the input is never written."""

    def repeat(self, count: int) -> None:
        """Run it so often."""
        for _ in range(count):
            self._run(self._input).block_until_ready()

    def by_host(self) -> BoundOperation | None:
        """None: by the GPU's events, or all of them one by one."""
        return None

    def failure(self) -> None:
        """Nothing: JAX raises what went wrong when a result is waited for."""

    def _values(self, count: int, weight: int) -> Any:
        np = self._devices.numpy
        return ((np.arange(count) % self._weights.period + 1) * weight).astype(self._dtype)
