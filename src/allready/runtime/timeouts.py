"""Which time-outs apply now."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from allready.names import GLOO
from allready.runtime.session import Session, current, is_before_adoption


@dataclass(frozen=True, kw_only=True)
class GroupTimeouts:
    """Of one group of torch's; `ranks` by their numbers at the start of the job.

    `plain`: of plain collectives, by torch; None: they have no deadline (NCCL).  `calls`: of safe calls; None: they do
    not take this group.  `learned`: with an `AdaptiveTimeout`, by operation, for the largest size it has learned.
    """

    name: str
    ranks: tuple[int, ...]
    plain: timedelta | None
    calls: timedelta | None
    learned: dict[str, timedelta] = field(default_factory=dict)

    def __str__(self) -> str:
        calls = "are not taken" if self.calls is None else f"{_seconds(self.calls)}"
        plain = "no deadline" if self.plain is None else _seconds(self.plain)
        adapted = "".join(f"; {name}: {_seconds(limit)} by what was measured" for name, limit in self.learned.items())
        ranks = ", ".join(map(str, self.ranks))
        return f"group {self.name} (ranks {ranks}): plain collectives: {plain}; safe calls: {calls}{adapted}"


class EffectiveTimeouts(tuple[GroupTimeouts, ...]):
    """Printed as a line for every group."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def effective_timeouts() -> EffectiveTimeouts:
    """Of all groups of this rank, as they are in force now: the default group first.  Waits for no other rank."""
    import torch.distributed as dist

    if is_before_adoption():
        return EffectiveTimeouts(_torchs(group, name) for group, name in _torch_groups())
    session = current()
    formed = session.member.formed
    members = () if formed is None else formed.members
    found = []
    world = dist.group.WORLD
    for group, name in _torch_groups():
        # Of a default group that was formed again in place torch still names the previous ranks.
        ranks = members if group is world else tuple(members[r] for r in dist.get_process_group_ranks(group))
        is_safe = group is world or session.group.is_subgroup(group)
        found.append(
            GroupTimeouts(
                name="default" if group is world else name,
                ranks=ranks,
                plain=plain_timeout(group, session.group.devices),
                calls=timedelta(seconds=session.timeout_s) if is_safe else None,
                learned=_learned(session, session.group.name_of(group)) if is_safe else {},
            )
        )
    return EffectiveTimeouts(found)


def _torch_groups() -> list[tuple[Any, str]]:
    """With their names, the default one first."""
    import torch.distributed as dist

    groups = dist.distributed_c10d._world.pg_names  # noqa: SLF001 - no public way names all groups
    found = [(group, str(name)) for group, name in groups.items()]
    return sorted(found, key=lambda item: item[0] is not dist.group.WORLD)


def _torchs(group: Any, name: str) -> GroupTimeouts:
    """Before the library takes over the default group, with the timeout that this has."""
    import torch.distributed as dist

    is_default, plain = group is dist.group.WORLD, timeout_of_torch(group)
    return GroupTimeouts(
        name="default" if is_default else name,
        ranks=tuple(dist.get_process_group_ranks(group)),
        plain=plain,
        calls=plain if is_default and is_gloo_alone() else None,
    )


def is_gloo_alone() -> bool:
    """Whether torch's default group is one of Gloo for every device, which the library can take over."""
    import torch.distributed as dist

    return all(part.rpartition(":")[2] == GLOO for part in str(dist.get_backend_config()).split(","))


def _learned(session: Session, group: tuple[int, ...]) -> dict[str, timedelta]:
    adaptive = session.adaptive
    if adaptive is None:
        return {}
    found = {}
    for operation, pace in session.paces.learned(session.phase, group).items():
        largest = pace.largest_bytes(after=adaptive.after)
        if largest is not None:
            limit_s = session.learned_limit_s(adaptive, pace, group, largest)
            found[operation] = timedelta(seconds=limit_s)
    return found


def plain_timeout(group: Any, devices: tuple[str, ...]) -> timedelta | None:
    """The shortest of its backends that torch says; NCCL's is out of use, see `nccl`."""
    return _shortest(group, [device for device in devices if device != "cuda"])


def timeout_of_torch(group: Any) -> timedelta | None:
    """The same of a group that is torch's alone, where NCCL's counts too."""
    return _shortest(group, [device.type for device in getattr(group, "_device_types", ())])


def _shortest(group: Any, devices: Iterable[str]) -> timedelta | None:
    import torch

    found = []
    for device in devices:
        with contextlib.suppress(RuntimeError, AttributeError):  # no such backend, or one that does not say
            found.append(group._get_backend(torch.device(device)).options._timeout)  # noqa: SLF001 - no public way
    return min(found, default=None)


def _seconds(limit: timedelta) -> str:
    return f"{limit.total_seconds():,.1f} s"
