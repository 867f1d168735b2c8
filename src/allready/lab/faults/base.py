"""What a fault is: data, checked when made; and what it does to a lab, as data too."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from allready.errors import UsageError
from allready.lab.hosts import HostsEdit
from allready.lab.network import LabView, Op


@dataclass(frozen=True, slots=True)
class PacketFilter:
    """nft rules in one node's `prerouting` hook: before routing, after the wire, so the sender never knows.

    `matches`: what is dropped.  `before`: whole rules that stand before that, `sets`: the sets that they refer to.
    """

    node: int
    matches: tuple[str, ...]
    before: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Links:
    """Netlink operations, and those that take them back."""

    do: tuple[Op, ...]
    undo: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Tmpfs:
    """A tmpfs of `size_bytes` mounted over `path` in one node."""

    node: int
    path: str
    size_bytes: int


Effect = PacketFilter | Links | Tmpfs | HostsEdit


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Base of all faults.  `start_s` and `end_s` count from the start of a scenario; a live lab ignores them."""

    kind: ClassVar[str]
    scenario_only: ClassVar[bool] = False
    slot: ClassVar[str] = ""
    """What it changes of its nodes, where no other fault may."""
    start_s: float = 0.0  # seconds after the start of the scenario
    end_s: float | None = None  # seconds after the start when it is lifted; none: at the end

    def __post_init__(self) -> None:
        """Check the values; every subclass adds to `problem`."""
        why = self.problem()
        if why is None and self.start_s < 0:
            why = "start_s is a number of seconds from 0"
        if why is None and self.end_s is not None and self.end_s <= self.start_s:
            why = "end_s must be later than start_s"
        if why is not None:
            raise UsageError("fault {kind}: {why}", kind=self.kind, why=why)

    def problem(self) -> str | None:
        return None

    def nodes_named(self) -> tuple[int, ...]:
        found: list[int] = []
        for name in ("node", "source", "target", "nodes"):
            value = getattr(self, name, None)
            found += value if isinstance(value, tuple) else [] if value is None else [value]
        return tuple(found)

    def check_nodes(self, num_nodes: int) -> None:
        """Refuse nodes that the lab does not have."""
        if wrong := [node for node in self.nodes_named() if not 0 <= node < num_nodes]:
            raise UsageError(
                "fault {kind}: no node {node}; the lab has node 0 to {last}",
                kind=self.kind,
                node=wrong[0],
                last=num_nodes - 1,
            )

    def slots_taken(self) -> tuple[tuple[str, ...], ...]:
        """Things of which only one fault at a time can change each, such as the MTU of a node."""
        return tuple((self.slot, str(node)) for node in self.nodes_named()) if self.slot else ()

    def effects(self, lab: LabView) -> tuple[Effect, ...]:  # noqa: ARG002 - for those that do something to it
        """What to do to the lab; the same answer when asked again to take it back."""
        return ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON and TOML: {"fault": KIND, ...}, without what has its default value."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return {"fault": self.kind, **values}
