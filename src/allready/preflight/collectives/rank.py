"""A PyTorch rank of the staged collectives: `python -m allready.preflight.collectives.rank FDS`, by its agent only.

torch is imported in the first stage, so that a broken installation is a result like any other.  The environment is
left as the user's job would find it: Gloo and NCCL choose interfaces and transports as they would there.
"""

import contextlib
import functools
import inspect
import os
import socket
import sys
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

from allready.messaging.any_port import any_port
from allready.model.fill import said
from allready.model.operations import OPERATIONS, SWEEPS
from allready.preflight.collectives.gpu_driver import GpuDriver
from allready.preflight.collectives.local import measure
from allready.preflight.collectives.meetings import Meetings
from allready.preflight.collectives.nccl_calls import NcclStream
from allready.preflight.collectives.nccl_library import NcclLibrary, OwnCommunicator
from allready.preflight.collectives.nccl_operations import ONLY_OUT_OF_PLACE, NcclOperation
from allready.preflight.collectives.operations import BOTH_FORMS, Buffers, Pattern, RankOperation
from allready.preflight.collectives.rank_side import Note, RankSide, StoreUnreachableError, WrongResultError
from allready.preflight.collectives.sweep import Sweep
from allready.proc.cgroup import Held
from allready.units import size

_WITHOUT_SWEEP_BYTES = 64 * 2**20
_SMALL_BYTES = 4096
_PROBE_S = 15.0
_NO_STORE = "the store of rank 0 cannot be reached at {address}:{port}: {why}"


class TorchRank:
    """The stages; each leaves what the next ones need."""

    def __init__(self, side: RankSide) -> None:
        self.side = side
        self.torch: Any = None
        self.dist: Any = None
        self.device: Any = None
        self.buffers: Buffers | None = None
        self.spent_s = 0.0  # by the sweeps so far, the same on all ranks
        self.store: Any = None
        self.nccl: Any = None
        self.communicator: OwnCommunicator | None = None  # where NCCL is called without torch

    @property
    def group(self) -> Any:
        """The group under test; None is the default group, Gloo."""
        return self.nccl if self.side.orders.backend == "nccl" else None

    def import_(self, note: Note) -> None:
        import torch
        import torch.distributed as dist

        if not dist.is_available():
            raise RuntimeError(f"torch {torch.__version__} is built without torch.distributed")
        self.torch, self.dist = torch, dist
        note(f"torch {torch.__version__}")

    def device_(self, note: Note) -> None:
        """Take this rank's GPU; with Gloo the CPU."""
        torch = self.torch
        if self.side.orders.backend != "nccl":
            self.device = torch.device("cpu")
            note("cpu")
            return
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            usable = torch.cuda.is_available()
        words = "; ".join(str(w.message).splitlines()[0] for w in caught)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        among = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r})"
        if torch.version.cuda is None and not usable:
            raise RuntimeError(f"torch {torch.__version__} is built without CUDA, so NCCL cannot be used")
        if not usable:
            raise RuntimeError(f"torch {torch.__version__} sees no usable GPU{among}{': ' + words if words else ''}")
        num_gpus = torch.cuda.device_count()
        index = self.side.orders.device_index
        if index >= num_gpus:
            raise RuntimeError(
                f"local rank {self.side.orders.local_rank} needs GPU {index}, but torch sees only {num_gpus}{among}"
            )
        if not self.dist.is_nccl_available():
            raise RuntimeError(f"torch {torch.__version__} is built without NCCL")
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        torch.ones(1, device=self.device).sum().item()
        note(f"cuda:{index} {torch.cuda.get_device_name(self.device)}")

    def allocate(self, note: Note) -> None:
        orders = self.side.orders
        operations = [OPERATIONS[SWEEPS[stage]] for stage in orders.stages if stage in SWEEPS]
        size_bytes = max(orders.sizes) if operations and orders.sizes else _WITHOUT_SWEEP_BYTES
        needs_two = orders.path == "nccl" or any(not operation.in_place for operation in operations)
        self.buffers = Buffers(self.torch, self.device, orders.dtype, size_bytes, needs_two=needs_two)
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)
        note(said("{size} on {device}", size=size(size_bytes), device=self.device))

    def store_(self, note: Note) -> None:
        """Connect to the TCPStore of rank 0, at the address that the user gave."""
        side, orders = self.side, self.side.orders
        limit = timedelta(seconds=orders.backend_timeout_s)
        if orders.rank == 0:
            with any_port() as listener:  # can this node reach itself by that name?
                _reach(orders.master_addr, listener.getsockname()[1])
            self.store = self.dist.TCPStore(
                orders.master_addr, 0, orders.world_size, is_master=True, timeout=limit, wait_for_workers=False
            )
            side.send_port(self.store.port)
            port = int(self.store.port)
        else:
            port = side.other_port()
            _reach(orders.master_addr, port)
            self.store = self.dist.TCPStore(
                orders.master_addr, port, orders.world_size, is_master=False, timeout=limit, wait_for_workers=False
            )
        self.store.set(f"allready/{orders.rank}", "here")
        if self.store.get(f"allready/{orders.rank}") != b"here":
            raise RuntimeError(f"the store at {orders.master_addr}:{port} does not give back what was put in")
        note(f"{orders.master_addr}:{port}")

    def gloo_barrier(self, note: Note) -> None:
        """Gloo connects all ranks with each other, then a barrier."""
        self.dist.init_process_group(
            "gloo",
            store=self.store,
            rank=self.side.orders.rank,
            world_size=self.side.orders.world_size,
            timeout=timedelta(seconds=self.side.orders.backend_timeout_s),
        )
        self.dist.barrier()
        num_ranks = self.side.orders.world_size
        note(said("1 rank") if num_ranks == 1 else said("{num} ranks", num=num_ranks))

    def nccl_init(self, note: Note) -> None:
        """NCCL connects all ranks with each other, now and not at the first collective."""
        if self.side.orders.path == "nccl":
            self.communicator = self._connect()
            note(said("NCCL {version}, called without torch", version=self.communicator.library.version()))
            return
        options: dict[str, Any] = {"backend": "nccl", "timeout": timedelta(seconds=self.side.orders.backend_timeout_s)}
        eager = "device_id" in inspect.signature(self.dist.new_group).parameters
        if eager:
            options["device_id"] = self.device
        self.nccl = self.dist.new_group(**options)
        if not eager:  # an older torch makes the communicator at the first collective
            self.dist.all_reduce(self.torch.ones(1, device=self.device), group=self.nccl)
            self.torch.cuda.synchronize(self.device)
        note("NCCL " + ".".join(str(n) for n in self.torch.cuda.nccl.version()))

    def _connect(self) -> OwnCommunicator:
        """A communicator of our own."""
        orders, library = self.side.orders, NcclLibrary.loaded()
        os.environ["NCCL_COMM_BLOCKING"] = "1"  # a call that returns early would end a row of them
        if orders.rank == 0:
            self.store.set("allready/nccl_id", library.new_id())
        return library.connect(self.store.get("allready/nccl_id"), orders.rank, orders.world_size)

    def small(self, note: Note) -> None:
        pattern = Pattern(self.torch, self.side.orders.rank, self.side.orders.world_size, self.device)
        tensor = self.torch.zeros(_SMALL_BYTES // 4, dtype=self.torch.float32, device=self.device)
        pattern.fill(tensor)
        self.dist.all_reduce(tensor, group=self.group)
        num_errors, words = pattern.check(tensor)
        if num_errors:
            raise WrongResultError(words)
        note(size(_SMALL_BYTES))

    def local(self, note: Note) -> None:
        """This rank's own copies, without the others."""
        held = Held()
        speeds = measure(self.torch, self.device)
        self.side.send("local", speeds=speeds)
        self._send_held(held)
        note(", ".join(f"{name} {speed:.1f} GB/s" for name, speed in speeds.items()))

    def _send_held(self, held: Held) -> None:
        share = held.share()
        if share:
            self.side.send("held", held_share=share)

    def pairs(self, note: Note) -> None:
        """All members meet pair by pair."""
        held = Held()
        done, planned = self._meetings().pairs()
        self._send_held(held)
        note(said("{done} of {planned} rounds", done=done, planned=planned))

    def bisect(self, note: Note) -> None:
        """Halves of halves, until the members that are slow are known."""
        held = Held()
        num_rounds = self._meetings().bisect()
        self._send_held(held)
        note(said("{num} rounds", num=num_rounds))

    def _meetings(self) -> Meetings:
        return Meetings(self.torch, self.dist, self.side, self.store, self.device)

    def sweep(self, note: Note, stage: str) -> None:
        orders = self.side.orders
        with contextlib.ExitStack() as stack:
            if self.device.type == "cuda" and (orders.path == "nccl" or orders.is_graph):
                stack.enter_context(self.torch.cuda.stream(self.torch.cuda.Stream(self.device)))
            one, other = self._operations(SWEEPS[stage])
            cuda = self.torch.cuda if self.device.type == "cuda" else None
            sweep = Sweep(self.side, stage, one, self._greatest, cuda, other)
            num_left = sum(s in SWEEPS for s in orders.stages[orders.stages.index(stage) :])
            num_sizes, took_s = sweep.run(max(0.0, orders.sweep_budget_s - self.spent_s) / num_left)
        self.spent_s += took_s
        note(sweep.words(num_sizes))

    def _operations(self, name: str) -> tuple[RankOperation, RankOperation | None]:
        """An operation in the form that is usual with torch, and in its other one where there is one."""
        orders, buffers = self.side.orders, self.buffers
        assert buffers is not None
        rank, world_size = orders.rank, orders.world_size
        pattern = Pattern(self.torch, rank, world_size, self.device, orders.dtype)
        if self.communicator is None:
            given = (name, self.dist, self.group, pattern, rank, world_size, buffers)
            has_both = name in BOTH_FORMS and orders.is_bench
            return RankOperation(*given), RankOperation(*given, in_place=True) if has_both else None
        stream = int(self.torch.cuda.current_stream(self.device).cuda_stream)
        place = NcclStream(self.communicator, GpuDriver.loaded(), stream)
        usual = OPERATIONS[name].in_place
        one, other = (
            NcclOperation(name, place, pattern, rank, world_size, buffers, in_place=in_place)
            for in_place in (usual, not usual)
        )
        return one, None if name in ONLY_OUT_OF_PLACE else other

    def _greatest(self, values: Sequence[float]) -> list[float]:
        """The greatest of each over all ranks; goes over Gloo."""
        greatest = self.torch.tensor(values, dtype=self.torch.float64)
        self.dist.all_reduce(greatest, op=self.dist.ReduceOp.MAX)
        found: list[float] = greatest.tolist()
        return found


def _reach(address: str, port: int) -> None:
    """Connect once, because the library would try for minutes without a message.

    Raises:
        StoreUnreachableError: nothing answers there; the message names the address and the kernel's reason.
    """
    try:
        with contextlib.closing(socket.create_connection((address, port), timeout=_PROBE_S)):
            pass
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise StoreUnreachableError(said(_NO_STORE, address=address, port=port, why=why)) from error


def main(argv: list[str]) -> NoReturn:
    """Never returns: the process ends when its agent ends it, or by an error."""
    side = RankSide(argv)
    rank = TorchRank(side)
    side.run(
        {
            "import": rank.import_,
            "device": rank.device_,
            "allocate": rank.allocate,
            "store": rank.store_,
            "gloo_barrier": rank.gloo_barrier,
            "gloo_small": rank.small,
            "nccl_init": rank.nccl_init,
            "nccl_small": rank.small,
            "local": rank.local,
            "pairs": rank.pairs,
            "bisect": rank.bisect,
            **{stage: functools.partial(rank.sweep, stage=stage) for stage in SWEEPS},
        }
    )


if __name__ == "__main__":
    main(sys.argv)
