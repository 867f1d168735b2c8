"""How all ranks of a job find each other: the store, and in it the way to the hub, which rank 0 starts."""

import logging
import os
import secrets
import socket
import time
from datetime import timedelta
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct

from allready.errors import ExchangeError, UsageError
from allready.messaging.job_store import ANSWER_S, JobStore, connected, innermost, own
from allready.model import FailureCause, MemberState, RankAtFailure, RuntimeFailure
from allready.runtime.failures import RecoveryRefused
from allready.runtime.group import is_over
from allready.runtime.hub import HubPlan, start
from allready.runtime.link import RankTaken
from allready.runtime.session import Session

log = logging.getLogger(__name__)

_KEY = "allready/hub"
_NAME_LETTERS = 8
"""Of the secret's 32; they tell attempts apart and open nothing."""
_CONNECT_S = 15.0
_POLL_S, _RETRY_S = 0.02, 0.2
_GONE_S = 5.0
"""So long a rank that was started again looks for a hub, which ends soon after the last rank."""


class MeetingPlace(Struct, frozen=True, kw_only=True):
    """Where this process is in the job; `store_rank`: whose process holds the store, None where no rank's does."""

    job: JobStore
    rank: int
    world_size: int
    store_rank: int | None = None
    torch_store: Any = None
    """The store of the default group, where torch has made that."""


def come(init_method: str | None, store: Any, rank: int, world_size: int, timeout: timedelta) -> MeetingPlace:
    """To the job's store, the given one or that of torch's `init_method`.

    Raises:
        RecoveryRefused: rank 0, which opens it, did not in time.
        TimeoutError: it does not answer.
    """
    import torch.distributed as dist

    if store is not None:
        _check(rank, world_size)
        return MeetingPlace(job=own(store, ANSWER_S), rank=rank, world_size=world_size)
    method = init_method or "env://"
    where = _where(method, rank, world_size)
    if where is None:
        return _by_torch(method, rank, world_size, timeout)
    host, port, rank, world_size = where
    _check(rank, world_size)
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    is_master = rank == 0 and not is_agents
    until_s = time.monotonic() + timeout.total_seconds()
    if not is_master and not _listens(host, port, until_s):
        where_text = f"nothing listens at {host}:{port} within {timeout.total_seconds():g} s"
        if is_agents:
            raise TimeoutError(f"{where_text}, where the launcher has its store")
        raise _no_rank_0(f"{where_text}, where rank 0 opens the store")
    left = timedelta(seconds=max(ANSWER_S, until_s - time.monotonic()))

    def open_or_connect() -> Any:
        # torch's own rank 0 waits for all others here, and does not say for whom.
        return dist.TCPStore(
            host, port, world_size, is_master, left, wait_for_workers=False, multi_tenant=not is_agents
        )

    job = connected(open_or_connect, port, left.total_seconds())
    return MeetingPlace(job=job, rank=rank, world_size=world_size, store_rank=None if is_agents else 0)


def come_to_torch_store() -> MeetingPlace:
    """To the store of the default group that torch has made.

    Raises:
        UsageError: this torch does not say where that is.
        TimeoutError: it does not answer.
    """
    import torch.distributed as dist

    find = getattr(dist.distributed_c10d, "_get_default_store", None)  # no public one
    if find is None:
        raise UsageError(
            "this torch does not say where the store of its default group is: call allready.init_process_group in "
            "place of torch.distributed.init_process_group"
        )
    store = find()
    is_ranks = isinstance(innermost(store), dist.TCPStore)  # else it is in a file, as a rule
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return MeetingPlace(
        job=own(store, ANSWER_S),
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        store_rank=0 if is_ranks and not is_agents else None,
        torch_store=store,
    )


def _listens(host: str, port: int, until_s: float) -> bool:
    """Whether something does in time; torch itself tries for up to twice as long, and writes of each try."""
    pause_s = _POLL_S
    while True:
        try:
            socket.create_connection((host, port), max(_POLL_S, min(_CONNECT_S, until_s - time.monotonic()))).close()
        except OSError:  # not yet, or its name is not known yet
            if time.monotonic() + pause_s > until_s:
                return False
            time.sleep(pause_s)
            pause_s = min(_RETRY_S, 2 * pause_s)
        else:
            return True


def _check(rank: int, world_size: int) -> None:
    if rank < 0 or world_size < 1:
        raise UsageError("with store=, rank and world_size must be given")
    if rank >= world_size:
        raise UsageError("rank {rank} is not one of {number} ranks", rank=rank, number=world_size)


def _where(method: str, rank: int, world_size: int) -> tuple[str, int, int, int] | None:
    """Host and port of the store, rank and world size, as torch reads them; None: torch is to read it, or to say what
    is missing."""
    try:
        found = urlsplit(method)
        port, said = found.port, dict(parse_qsl(found.query))
        if {"rank", "world_size"} & {*said} and (rank, world_size) != (-1, -1):
            return None
        given = {name: value for name, value in (("rank", rank), ("world_size", world_size)) if value != -1}
        said = {**said, **{name: str(value) for name, value in given.items()}}
        if said.keys() - {"rank", "world_size"}:
            return None
        host: str | None = found.hostname
        if found.scheme == "env":
            known = {"rank": os.environ.get("RANK"), "world_size": os.environ.get("WORLD_SIZE")}
            said = {**{name: value for name, value in known.items() if value}, **said}
            host, port = os.environ.get("MASTER_ADDR"), int(os.environ.get("MASTER_PORT", ""))
        elif found.scheme != "tcp":
            return None
        if not host or not port or os.environ.get("USE_LIBUV", "1") != "1":
            return None
        return host, port, int(said["rank"]), int(said["world_size"])
    except (ValueError, KeyError):
        return None


def _by_torch(method: str, rank: int, world_size: int, timeout: timedelta) -> MeetingPlace:
    from torch.distributed.rendezvous import rendezvous

    store, rank, world_size = next(rendezvous(method, rank, world_size, timeout=timeout))
    _check(rank, world_size)
    return MeetingPlace(job=own(store, ANSWER_S), rank=rank, world_size=world_size)


def _no_rank_0(text: str) -> RecoveryRefused:
    """This rank has received nothing from any other."""
    absent = RankAtFailure(rank=0, state=MemberState.ABSENT)
    failure = RuntimeFailure(epoch=0, cause=FailureCause.FORMING, reporter=None, ranks=(absent,))
    refused = RecoveryRefused((0,), text=text, failure=failure)
    refused.is_agreed = False
    return refused


def meet(session: Session, place: MeetingPlace, answer_within: timedelta, until_s: float, *, again: bool) -> str:
    """Connect to the hub, which rank 0 starts; a name for this attempt that no other one in the same store has.

    A launcher that starts ranks again may keep its store: what is there may be the hub of the attempt before, which
    answers no more.
    """
    store, num_ranks = place.job.requests, place.world_size
    if session.rank == 0 and not again:
        secret = secrets.token_hex(16)
        host = _host_of(place.job.store)
        plan = HubPlan(num_ranks=num_ranks, secret=secret, answer_s=answer_within.total_seconds(), host=host)
        hub = start(plan)
        hosts = [hub.host] if hub.host else [host, socket.gethostname(), "127.0.0.1", "::1"]
        addresses = [(name, hub.port) for name in dict.fromkeys(filter(None, hosts))]
        session.connect(addresses, secret, num_ranks=num_ranks, timeout_s=_CONNECT_S)
        store.set(_KEY, msgspec.json.encode((addresses, secret)).decode())
        return secret[:_NAME_LETTERS]
    if again:
        until_s = min(until_s, time.monotonic() + _GONE_S)
    taken: RankTaken | None = None
    while True:
        left_s = max(1.0, until_s - time.monotonic())
        try:
            store.wait([_KEY], timedelta(seconds=left_s))
        except RuntimeError as error:  # torch's
            if place.job.is_lost or again:
                raise
            raise _no_rank_0(f"it has not started the hub of the job within {left_s:.1f} s") from error
        addresses, secret = msgspec.json.decode(store.get(_KEY), type=tuple[list[tuple[str, int]], str])
        try:
            limit_s = min(_CONNECT_S, left_s)
            session.connect(addresses, secret, num_ranks=num_ranks, timeout_s=limit_s, again=again)
        except ExchangeError as error:
            if isinstance(error, RankTaken) and taken is None:  # that process may be of an attempt that ends
                taken = error
                log.warning("%s", error)
            if time.monotonic() >= until_s:
                if again and is_over(store, secret[:_NAME_LETTERS]):
                    end_with_the_others()
                raise (taken or error) from None
            time.sleep(_RETRY_S)
        else:
            return secret[:_NAME_LETTERS]


def end_with_the_others() -> NoReturn:
    """A failure would be reported as one of the job, which has ended well."""
    log.warning("nothing to join, this process ends: the other ranks have ended")
    raise SystemExit(0)


def _host_of(store: Any) -> str:
    """The address at which others reach this machine: rank 0 is where the job's store is, or beside its agent."""
    host = getattr(innermost(store), "host", None)
    return host if isinstance(host, str) else os.environ.get("MASTER_ADDR", "")
