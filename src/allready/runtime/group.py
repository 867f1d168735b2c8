"""Makes torch's default group what was agreed: formed, gone, formed again.

For Gloo, gone means that this rank's connections of the group are ended (see `connections`): every operation in it,
also one in which a thread blocks, raises within milliseconds, with every release of torch.  Gloo's own `abort` releases
no rank, and `_reconfigure` only those whose peers' connections it happens to close.  NCCL's part: see `nccl`.
"""

import contextlib
import ctypes
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, Protocol

from msgspec import Struct

from allready.errors import UsageError
from allready.messaging.job_store import JobStore, Requests, connected, innermost, own
from allready.messaging.sockets import source_address
from allready.model import OVER
from allready.proc.own_sockets import Sockets, closes_on_exec, ends, sockets
from allready.runtime import meshes, nccl
from allready.runtime.connections import EndedGroups
from allready.runtime.ending import GroupEnding
from allready.runtime.making import Leavable, Making
from allready.runtime.messages import Ranks, ranks_of, twin
from allready.runtime.plain import BegunCounts

BACKENDS = {"gloo": ("cpu",), "nccl": ("cuda",), "cpu:gloo,cuda:nccl": ("cpu", "cuda")}
"""Those that are taken, and the devices whose tensors each takes."""
GLOO_SUMS = (
    "float16", "bfloat16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool", "complex64", "complex128"
)  # fmt: skip
"""torch's types of elements with which Gloo can do anything."""
FORM = timedelta(seconds=10)
"""Longest time that each step of forming a group takes once its members are known."""
_CONNECT = FORM / 5
"""Gloo waits five times for so long until all connections are there."""
_TORCH_S = 2 * FORM.total_seconds()
"""Longer than torch takes for a step of its own where the store answers."""
_FIRST_S = 0.1
_POLL_S = 0.02
_MAX_POLL_S = 0.2
_POLL_S_PER_RANK = 0.0002
"""Every poll asks the store for all ranks: with many of them those that wait look less often."""


class Direct(Struct, frozen=True, kw_only=True):
    """The sum over the default group as its process group takes it: torch.distributed's function around it costs more
    than all that the runtime library does beside.

    `takes_cpu`, `gpu`: the tensors that it is for.  `is_special`: whether torch.distributed's function would
    leave some to a function of their own.
    """

    all_reduce: Callable[[list[Any], Any], Any]
    options: Any
    sum: Any
    is_special: Callable[[Any], bool]
    tensor: Any
    takes_cpu: bool
    gpu: Any
    end: nccl.StreamEnd | None
    num_ranks: int


def _direct(devices: tuple[str, ...], gpu: str | None, num_ranks: int) -> Direct:
    import torch
    import torch.distributed as dist
    from torch.overrides import has_torch_function_unary

    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.SUM
    if hasattr(options, "asyncOp"):  # since 2.7; then a GPU does it in the order of the current stream
        options.asyncOp = False
    return Direct(
        all_reduce=dist.group.WORLD.allreduce,
        options=options,
        sum=dist.ReduceOp.SUM,
        is_special=has_torch_function_unary,
        tensor=torch.Tensor,
        takes_cpu="cpu" in devices,
        gpu=None if gpu is None else torch.device(gpu),
        end=None if gpu is None else nccl.StreamEnd(gpu),
        num_ranks=num_ranks,
    )


def can_reconfigure() -> bool:
    """Whether this torch forms a group again in place, so that code that holds the group object can go on with it."""
    import torch.distributed as dist

    has_flag = "enable_reconfigure" in inspect.signature(dist.init_process_group).parameters
    return has_flag and hasattr(dist, "_reconfigure") and hasattr(dist, "_get_reconfigure_handle")


def set_timeout(timeout: timedelta, group: Any) -> None:
    """Of a group's plain collectives: by torch's public means where it has them (2.14)."""
    import torch.distributed as dist

    if hasattr(dist, "set_timeout"):
        dist.set_timeout(timeout, group)
    else:
        dist.distributed_c10d._set_pg_timeout(timeout, group)  # noqa: SLF001 - before 2.14 there is no other way


def _number_from(number: int) -> None:
    """Name the next group by its epoch, alike on all ranks.

    torch counts a process's groups and would name every default group "0": the records of a rank that was outside for
    one of them would be compared with those of another group.
    """
    import torch.distributed as dist

    world = dist.distributed_c10d._world  # noqa: SLF001 - init_process_group ignores the name that it is given
    if hasattr(world, "group_count"):
        world.group_count = number


def _replaced_by_torch(hook: Any) -> Any:
    """The hook that was there before torch's; None: this is not torch's, or another torch has that elsewhere."""
    if getattr(hook, "__module__", "") != "torch.distributed.distributed_c10d":
        return None
    return inspect.getclosurevars(hook).nonlocals.get("old_hook")


class _Excepthook:
    """Around torch's making of a default group, which puts "[rank3]: " before every line of an uncaught exception, and
    once more before those with every group that is made: with each, the hook of the one before goes.

    Args:
        has_made: torch has made one before.
    """

    def __init__(self, *, has_made: bool) -> None:
        self._torchs = sys.excepthook
        before = _replaced_by_torch(self._torchs) if has_made else None
        self._before = self._torchs if before is None else before

    def __enter__(self) -> None:
        if sys.excepthook is self._torchs:  # else the script has set its own meanwhile
            sys.excepthook = self._before
        self._before = sys.excepthook

    def __exit__(self, *_: object) -> None:
        self._torchs = sys.excepthook


class WorldGroup:
    """The default group of this process.

    Args:
        store: at which all ranks met.
        rank: this process's number at the start of the job.
        store_rank: the rank whose process holds the store; None where no rank's death takes it away.
        timeout: of the group's plain collectives.
        torch_store: of the default group, where torch has made that: the first forming takes it over as it is.
    """

    def __init__(
        self,
        backend: str,
        store: JobStore,
        *,
        rank: int,
        store_rank: int | None,
        timeout: timedelta,
        torch_store: Any = None,
    ) -> None:
        self.timeout = timeout
        self.is_same = False
        """Whether the last forming kept the group object."""
        self.attempt = ""
        """Tells this start of the job from others in the same store."""
        self.direct: Direct | None = None
        """While it is formed."""
        self.begun = BegunCounts()
        self.devices = BACKENDS[backend]
        """Whose tensors it takes."""
        self._backend = backend
        self._communicator: nccl.Communicator | None = None
        self._rank = rank
        self._job = store
        self._first_store = store, store_rank
        self.was_formed = False
        """Whether this process ever had a group."""
        self.made = 0
        """The epoch in which the group object was made."""
        self._is_doubtful = False
        self.store_text = ""
        """Where the job's store is now; empty: where it was at the start."""
        self._can_reconfigure = "cuda" not in self.devices and can_reconfigure()
        self._is_on_this_store = False
        self._own_ports: set[int] = set()
        self._sockets: Sockets = {}
        self._ended = EndedGroups()
        self._lock = threading.Lock()
        self._is_cut = False
        self._unfinished: list[Any] = []
        self._subgroups: dict[Any, Ranks] = {}
        self._num_makings = 0
        self._epoch = 0
        self._members: tuple[int, ...] = (rank,)
        self._sockets_before: Sockets | None = None
        self._torchs: Any = None
        """torch's own entry of the default group: its backend and store."""
        self._lent: JobStore | None = None
        self._excepthook = _Excepthook(has_made=torch_store is not None)
        self._leavable = Leavable()
        self._ending = GroupEnding()
        self._is_torch_made = torch_store is not None
        """Whether torch has made it: it cannot form again in place."""
        self._torch_store = torch_store
        """The process that has opened it has its server only as long as this is there."""

    def note_unfinished(self, work: Any) -> None:
        """An operation that had not ended when its call failed: Gloo does not always notice that a connection ended."""
        self._unfinished = [w for w in [*self._unfinished, work] if w is not None and not w.is_completed()]

    @property
    def is_formed(self) -> bool:
        """Whether it is there, and not just being made."""
        return self.direct is not None

    def has_unfinished(self) -> bool:
        """Whether a thread of torch's is still inside an operation; it stays there until the operation's time-out."""
        return any(not w.is_completed() for w in self._unfinished)

    def is_spoilt(self) -> bool:
        """Whether it cannot form again in place: a thread is stuck in it, it has subgroups, or it failed to form."""
        return self._is_torch_made or self._is_doubtful or self.has_unfinished() or self._num_makings > 0

    def has_lost_store(self) -> bool:
        """Whether the job's store does not answer this process any more."""
        return self._job.is_lost

    def needs_store(self, text: str, members: Iterable[int]) -> bool:
        """Whether the process of the store that this text names is not among these ranks: it may be dead or stopped."""
        rank = int(text.split()[2]) if text else self._first_store[1]
        return rank is not None and rank not in members

    def open_store(self) -> str:
        """A new store in this process; where it is, for `use_store` on all ranks."""
        import torch.distributed as dist

        host = _own_address(innermost(self._job.store))
        opened = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=FORM)
        self._opened = JobStore(opened, {})  # in this process
        return f"{host} {opened.port} {self._rank}"

    def use_store(self, text: str, is_over: Callable[[], bool]) -> None:
        """Go on with the store that one rank has opened, or with the first one; for `is_over` see `form`."""
        import torch.distributed as dist

        if text == self.store_text:
            return
        store, _ = self._first_store
        if text:
            host, port, rank = text.split()

            def connect() -> Any:
                return dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=FORM)

            store = (
                self._opened
                if int(rank) == self._rank
                else connected(lambda: Making(connect, _let_go).outcome(is_over), int(port), FORM.total_seconds())
            )
        # Not before this rank has it: one that was not reached is tried again.
        self.store_text, self._job, self._is_on_this_store = text, store, False

    def set_timeout(self, timeout: timedelta) -> None:
        """Of plain collectives over Gloo; torch's time-out for NCCL ends the process, so it is not used."""
        import torch
        import torch.distributed as dist

        self.timeout = timeout
        if not dist.is_initialized():
            return
        if "cuda" not in self.devices:
            for group in (dist.group.WORLD, *self._subgroups):
                set_timeout(timeout, group)
        elif "cpu" in self.devices:
            dist.group.WORLD._get_backend(torch.device("cpu"))._set_default_timeout(timeout)  # noqa: SLF001

    def form(self, epoch: int, members: tuple[int, ...], *, anew: bool, is_over: Callable[[], bool]) -> None:
        """Form the group of these ranks; returns when all are connected, raises what torch raises.

        `anew`: the same on all of them; without it the group object is kept where torch can.  `is_over`: it is not
        needed any more.
        """
        import torch.distributed as dist

        takes_over = self._is_torch_made and not self.was_formed
        self.was_formed, self.direct = True, None
        with self._lock:
            self._is_cut = False
            self._sockets = {}
            self._ended.close(members)
        before = self._not_of_gloo() if takes_over else sockets()
        self._epoch, self._members = epoch, members
        place, size = members.index(self._rank), len(members)
        store = self._job.under(f"allready/{self.attempt}/{epoch}")
        can_keep = not anew and self._can_reconfigure and self._is_on_this_store and dist.is_initialized()
        self.is_same = takes_over or can_keep
        self._is_doubtful = True  # until it has formed
        if not self.is_same:
            self._is_torch_made = False
            self.leave()
            self.made = epoch
            _number_from(epoch - 1)
            self._leavable.begin(is_over)
            self._make(store, place, size, is_over)
            self._is_on_this_store, self._torchs = True, None
        if self._can_reconfigure and not takes_over:
            self._reconfigure(store, epoch, place, size, is_over)
        if takes_over or not self._is_torchs_lent():
            self._lend_store()
        self._leavable.begin(is_over)
        if "cuda" in self.devices:
            self._connect(is_over)
        if "cpu" in self.devices:
            self._remember(store, place, size, before, is_over, FORM.total_seconds())
        if takes_over and size > 1 and not self._sockets:
            raise ConnectionError(
                "torch's group has no connections any more, as when a rank ended while it was taken over"
            )
        self.set_timeout(self.timeout)
        self.begun.reset()
        self.direct = _direct(self.devices, self.gpu(), size)
        self._is_doubtful = False

    def _not_of_gloo(self) -> Sockets:
        """Of the sockets that are there those that cannot be of a group of torch's: Python's, libuv's and the store's
        are closed in a program that is started, Gloo's are not."""
        port = getattr(innermost(self._torch_store), "port", 0)
        return {fd: identity for fd, identity in sockets().items() if closes_on_exec(fd) or (port and port in ends(fd))}

    def _give_back(self) -> None:
        """To torch, as it was: it was not taken over."""
        import torch.distributed as dist

        self._leavable.end()
        if self._torchs is not None and dist.is_initialized():
            dist.distributed_c10d._world.pg_map[dist.group.WORLD] = self._torchs  # noqa: SLF001 - see `_lend_store`

    def _make(self, store: Requests, place: int, size: int, is_over: Callable[[], bool]) -> None:
        import torch.distributed as dist

        given: dict[str, Any] = {"enable_reconfigure": True} if self._can_reconfigure else {}
        given["timeout"] = nccl.UNLIMITED if "cuda" in self.devices else _CONNECT
        if not self._can_reconfigure:  # else that makes the connections
            _meet(store, "here", "", place, size, is_over)
        job, torchs = self._job, store.store
        if self._is_torchs_lent():
            job = self._lend(torchs)
            torchs = job.store
        try:
            with self._excepthook, job.within(_TORCH_S):
                dist.init_process_group(self._backend, store=torchs, rank=place, world_size=size, **given)
        except Exception:
            self._job.is_lost |= job.is_lost and not is_over()  # else it has ended with the epoch
            raise

    def _is_torchs_lent(self) -> bool:
        """Whether all that torch does with its store ends with the epoch: its making of a group that is not kept waits
        there."""
        return not self._can_reconfigure and "cuda" not in self.devices

    def _connect(self, is_over: Callable[[], bool]) -> None:
        import torch.distributed as dist

        nccl.check(dist.group.WORLD)
        communicator = nccl.Communicator()
        with self._lock:
            self._communicator = communicator
        communicator.connect(FORM.total_seconds(), is_over)

    def _lend(self, store: Any) -> JobStore:
        """torch waits in the default group's store for the ranks of groups to come, for 30 minutes and in C++: with a
        connection of its own `cut` ends that wait, and no other.

        Raises:
            TimeoutError: the store does not answer.
        """
        lent = own(store, FORM.total_seconds())  # on a busy machine its process may be slow to take a connection
        with self._lock:
            self._lent = lent
            is_cut = self._is_cut
        if is_cut:  # the epoch ended meanwhile
            lent.end()
        return lent

    def _lend_store(self) -> None:
        """For a group that is kept: what torch has been given is needed again."""
        import torch.distributed as dist

        world = getattr(dist.distributed_c10d, "_world", None)  # no public way says where they wait
        groups = getattr(world, "pg_map", {})
        if self._torchs is None:
            self._torchs = groups.get(dist.group.WORLD)
        if not isinstance(self._torchs, tuple) or len(self._torchs) != 2:
            return  # a torch that has them elsewhere: it waits as without this
        backend, store = self._torchs
        groups[dist.group.WORLD] = backend, self._lend(store).store

    def _reconfigure(self, store: Requests, epoch: int, place: int, size: int, is_over: Callable[[], bool]) -> None:
        import torch.distributed as dist

        own = dist._get_reconfigure_handle()  # noqa: SLF001 - no public one
        handles = _exchange(store, "handle", own, place, size, is_over)

        def connect() -> None:
            with self._job.within(_TORCH_S):
                work = dist._reconfigure(uuid=epoch, handles=handles, timeout=_CONNECT)  # noqa: SLF001
                if work is not None:
                    work.wait()

        Making(connect, _let_go).outcome(is_over)

    def _remember(
        self, store: Requests, place: int, size: int, before: Sockets, is_over: Callable[[], bool], limit_s: float
    ) -> None:
        """Which sockets are the group's: new ones between a port that Gloo listens on here and one of another rank."""
        new = {fd: identity for fd, identity in sockets().items() if before.get(fd) != identity}
        ports = {fd: ends(fd) for fd in new}
        self._own_ports |= {local for local, other in ports.values() if local and not other}
        own = ",".join(map(str, sorted(self._own_ports)))
        answers = _exchange(store, "ports", own, place, size, is_over, limit_s)
        others = {int(port) for text in answers for port in text.split(",") if port}
        with self._lock:
            self._sockets |= {
                fd: identity
                for fd, identity in new.items()
                if ports[fd][1] and (ports[fd][0] in self._own_ports or ports[fd][1] in others)
            }
            is_cut = self._is_cut
        if is_cut:  # the epoch ended meanwhile
            self.cut()

    def cut(self) -> None:
        """End every operation of the group in this process; from any thread, any number of times."""
        with self._lock:
            self._is_cut = True
            if self._lent is not None:
                self._lent.end()
            try:
                self._ended.end(self._sockets | self._made_now(), self._members)
                self._sockets = {}
            finally:
                if self._communicator is not None:
                    self._communicator.abort()

    def _made_now(self) -> Sockets:
        """Connections of groups that are just being made: whose they are is not known before they are all there."""
        if self._sockets_before is None:
            return {}
        before = self._sockets_before
        return {fd: identity for fd, identity in sockets().items() if before.get(fd) != identity and ends(fd)[1]}

    @contextlib.contextmanager
    def making(self, is_over: Callable[[], bool], limit_s: Callable[[], float]) -> Iterator[None]:
        """Around the making of subgroups, by torch, on all ranks: what fails then ends them too.

        `limit_s`: how long this rank waits for the others once it has made its own; asked then.
        """
        import torch.distributed as dist

        groups = dist.distributed_c10d._world.pg_map  # noqa: SLF001 - no public way names all groups
        known, before = set(groups), sockets()
        meshes.forget()  # what a step of the old model has worked out after its groups were gone
        self._num_makings += 1
        with self._lock:
            self._sockets_before = before
        try:
            if is_over():
                raise TimeoutError("the group is gone of which others were to be made")
            yield
            made = [g for g in groups if g not in known]
            if self._communicator is not None:
                self._communicator.connect(limit_s(), is_over, nccl.of_nccl(made))
            if "cpu" in self.devices:
                longest_s = min(FORM.total_seconds(), limit_s())
                store = self._job.under(f"allready/{self.attempt}/{self._epoch}/{self._num_makings}", longest_s)
                place, size = self._members.index(self._rank), len(self._members)
                self._remember(store, place, size, before, is_over, longest_s)
            if is_over():  # this rank was late, or another one did not come
                raise TimeoutError("a failure came while groups were made")
        finally:
            with self._lock:
                self._sockets_before = None
        for group in made:
            ranks = tuple(sorted(self._members[r] for r in dist.get_process_group_ranks(group)))
            # All its ranks make their groups in the same order, or torch could not connect them.
            self._subgroups[group] = twin(ranks, sum(ranks_of(other) == ranks for other in self._subgroups.values()))
        self.set_timeout(self.timeout)

    def name_of(self, group: Any) -> Ranks:
        """A subgroup's name: the numbers at the start of its ranks (see `twin`); empty: it is the default group."""
        import torch.distributed as dist

        if group is dist.group.WORLD:
            return ()
        if group not in self._subgroups:
            raise UsageError("this group is not of this rank, or was not made inside of allready.subgroups()")
        return self._subgroups[group]

    def gpu(self) -> str | None:
        """The communicator's GPU, whichever the caller has chosen meanwhile; None: without NCCL."""
        if "cuda" not in self.devices:
            return None
        communicator = self._communicator
        return "cuda" if communicator is None else communicator.device

    def small_device(self) -> str:
        """Where small tensors of ours go."""
        return "cpu" if "cpu" in self.devices else self.gpu() or "cpu"

    def is_subgroup(self, group: Any) -> bool:
        """Whether it was made inside of `making` and this rank is in it."""
        return group in self._subgroups

    def is_gone(self) -> bool:
        """Whether nothing of the group that was cut runs on a GPU any more."""
        return self._communicator is None or self._communicator.is_gone()

    def release(self) -> bool:
        """After `cut`: make room for the next group; False: it does not end, and this process cannot have another."""
        self.direct = None
        with self._lock:
            communicator, self._communicator = self._communicator, None
        return communicator is None or communicator.release()

    def leave(self) -> None:
        """Give the group back to torch."""
        import torch.distributed as dist

        self.direct = None
        self._leavable.end()
        communicator, self._communicator = self._communicator, None
        meshes.retire()  # also those that were made without `making`: a mesh of all ranks needs no group of its own
        if not dist.is_initialized():
            return
        meshes.forget()
        if communicator is not None:
            communicator.leave()
            return
        self.spare_unfinished()
        self._unfinished, self._subgroups, self._num_makings = [], {}, 0
        with self._ending.ours():
            dist.destroy_process_group()

    def once_ended(self, then: Callable[[], object]) -> None:
        """Call this where the script ends the default group by torch's own means."""
        self._ending.begin(then)

    def tell_over(self) -> None:
        """Leave word that this rank has ended as planned, where that outlives all ranks."""
        store, rank = self._first_store
        if rank is None:
            with contextlib.suppress(Exception):  # torch's, of many classes: nothing of the job depends on it
                store.requests.set(OVER, self.attempt)

    def close(self, *, has_joined: bool = True) -> None:
        """Nothing follows.  Without `has_joined` torch keeps a group that it has made: on all ranks alike, also on
        those that had taken it over when another one failed."""
        try:
            if self._is_torch_made and not has_joined:
                self._give_back()
            else:
                self.leave()
        finally:
            self._ended.close()
            self._ending.end()
            self._torch_store = None

    def spare_unfinished(self) -> None:
        """Before the groups are let go, also by the end of the process: nothing waits for a thread that does not end.

        The destructor of a group would; with one reference too many it never runs.
        """
        import torch.distributed as dist

        if dist.is_initialized() and self.has_unfinished():
            for group in (dist.group.WORLD, *self._subgroups):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _let_go(_: object) -> None:
    """Of what torch has made too late, nothing stays once no variable refers to it."""


def is_over(store: Requests, attempt: str) -> bool:
    """Whether a rank of this attempt has left word that it has ended as planned."""
    return bool(store.check([OVER]) and store.get(OVER).decode() == attempt)


class _Asked(Protocol):
    """What `_meet` asks of a store."""

    def set(self, key: str, value: str, /) -> object: ...
    def wait(self, keys: list[str], limit: timedelta, /) -> object: ...
    def check(self, keys: list[str], /) -> bool: ...
    def get(self, key: str, /) -> bytes: ...
    def multi_get(self, keys: list[str], /) -> list[bytes]: ...
    def has_extended_api(self) -> bool: ...


def _exchange(
    store: _Asked,
    name: str,
    own: str,
    place: int,
    size: int,
    is_over: Callable[[], bool],
    limit_s: float = FORM.total_seconds(),
) -> list[str]:
    """What every member says under this name.

    Raises:
        TimeoutError: see `_meet`.
    """
    keys = _meet(store, name, own, place, size, is_over, limit_s)
    # All in one request where the store can.
    said = store.multi_get(keys) if store.has_extended_api() else [store.get(key) for key in keys]
    return ["" if text == b"-" else text.decode() for text in said]


def _meet(
    store: _Asked,
    name: str,
    own: str,
    place: int,
    size: int,
    is_over: Callable[[], bool],
    limit_s: float = FORM.total_seconds(),
) -> list[str]:
    """Wait until every member has said something under this name; gives the keys of what they said.

    Raises:
        TimeoutError: not all of them have said it, in time or before the epoch ended: one may be dead.
    """
    store.set(f"{name}/{place}", own or "-")
    keys = [f"{name}/{n}" for n in range(size)]
    until_s = time.monotonic() + limit_s
    with contextlib.suppress(RuntimeError):  # not all in time, as nearly never; then this is tried again below
        store.wait(keys, timedelta(seconds=_FIRST_S))
    longest_s = min(_MAX_POLL_S, max(_POLL_S, size * _POLL_S_PER_RANK))
    poll_s = _POLL_S
    while not store.check(keys):
        if is_over() or time.monotonic() > until_s:
            raise TimeoutError(f"not all ranks came to exchange their {name}")
        time.sleep(poll_s)
        poll_s = min(longest_s, 2 * poll_s)
    return keys


def _own_address(store: Any) -> str:
    """The address of this machine by which it reaches the job's store, so one that the other ranks reach too."""
    host = getattr(store, "host", None)
    return (source_address(host) if isinstance(host, str) else None) or "127.0.0.1"
