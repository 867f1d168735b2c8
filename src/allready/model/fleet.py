"""The evidence that rules judge: facts by node, and facts of the whole job.

The same `Fleet` is filled live (from node 0), from a saved report, or by hand in a test.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Self, TypeVar

import msgspec
from msgspec import Struct

from allready.model import facts as f
from allready.model import job as j
from allready.model.fill import in_english
from allready.model.finding import Phrase, Reason
from allready.model.live import Live
from allready.model.run_evidence import RunEvidence
from allready.model.runtime import RuntimeFailure
from allready.model.settings import Settings

T = TypeVar("T")

NODE_FACTS: dict[str, type] = {
    "launch": f.LaunchFacts,
    "host": f.HostFacts,
    "names": f.NameFacts,
    "net": f.NetFacts,
    "transport": f.TransportFacts,
    "rdma": f.RdmaFacts,
    "gpu": f.GpuFacts,
    "software": f.SoftwareFacts,
    "imports": f.ImportFacts,
    "limits": f.LimitFacts,
    "env": f.EnvFacts,
    "clock": f.ClockFacts,
    "script": f.ScriptFacts,
    "firewall": f.FirewallFacts,
    "usage": f.UsageFacts,
    "bus": f.BusFacts,
    "time": f.TimeFacts,
    "master_port": f.MasterPortFacts,
    "master_contact": f.MasterContactFacts,
}
"""Name in JSON and tests -> type that a rule asks for as `PerNode[type]`."""


class FactMissing(Struct, frozen=True, omit_defaults=True, rename={"why": "missing"}):
    """Why a fact is not known, in English; `said`: the same to be said in other languages, where it has values."""

    why: str
    said: Phrase | None = None

    @classmethod
    def because(cls, phrase: Phrase) -> Self:
        """For a reason of ours."""
        return cls(in_english(phrase), phrase if phrase.values else None)

    @property
    def phrase(self) -> Phrase:
        """Why, for every language: one without values is found by its English."""
        return self.said or Phrase(self.why)

    def __str__(self) -> str:
        return self.why


class NotApplicable(FactMissing, frozen=True, omit_defaults=True, rename={"why": "not_applicable"}):
    """A fact that this node cannot have (node 0 has no contact with itself); not worth reporting as unchecked."""

    why: str
    said: Phrase | None = None


def fact_from_json(name: str, value: Any) -> Any:
    """The fact of this name from plain JSON values: of its own type, FactMissing or NotApplicable."""
    match value:
        case {"missing": str(), **others} if others.keys() <= {"said"}:
            return msgspec.convert(value, FactMissing)
        case {"not_applicable": str(), **others} if others.keys() <= {"said"}:
            return msgspec.convert(value, NotApplicable)
    return msgspec.convert(value, NODE_FACTS[name], str_keys=True)


class PerNode(Mapping[int, T], Generic[T]):
    """Node rank -> fact, only of nodes where the fact is known; what a rule's parameter of this type receives."""

    __slots__ = ("_facts",)

    def __init__(self, facts: Mapping[int, T]) -> None:
        self._facts = dict(sorted(facts.items()))

    def __getitem__(self, node_rank: int) -> T:
        return self._facts[node_rank]

    def __iter__(self) -> Iterator[int]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


_NOT_COLLECTED = FactMissing("not collected")
_NOT_MEASURED = NotApplicable("not measured")
_NOT_ASKED = NotApplicable("only doctor asks")
_NO_SCRIPT = NotApplicable("no script was named")
_NOT_READ = NotApplicable("not collected")
_NOT_NODE_0 = NotApplicable("not node 0")
_IS_NODE_0 = NotApplicable("node 0")


class NodeFacts(Struct, frozen=True, kw_only=True):
    """Everything known of one node; a field is the fact or the reason why it is missing."""

    launch: f.LaunchFacts | FactMissing = _NOT_COLLECTED
    host: f.HostFacts | FactMissing = _NOT_COLLECTED
    names: f.NameFacts | FactMissing = _NOT_COLLECTED
    net: f.NetFacts | FactMissing = _NOT_COLLECTED
    transport: f.TransportFacts | FactMissing = _NOT_COLLECTED
    rdma: f.RdmaFacts | FactMissing = _NOT_COLLECTED
    gpu: f.GpuFacts | FactMissing = _NOT_COLLECTED
    software: f.SoftwareFacts | FactMissing = _NOT_COLLECTED
    imports: f.ImportFacts | FactMissing = _NOT_ASKED
    limits: f.LimitFacts | FactMissing = _NOT_COLLECTED
    env: f.EnvFacts | FactMissing = _NOT_COLLECTED
    clock: f.ClockFacts | FactMissing = _NOT_MEASURED
    script: f.ScriptFacts | FactMissing = _NO_SCRIPT
    firewall: f.FirewallFacts | FactMissing = _NOT_READ
    usage: f.UsageFacts | FactMissing = _NOT_ASKED
    bus: f.BusFacts | FactMissing = _NOT_ASKED
    time: f.TimeFacts | FactMissing = _NOT_ASKED
    master_port: f.MasterPortFacts | FactMissing = _NOT_NODE_0
    master_contact: f.MasterContactFacts | FactMissing = _IS_NODE_0

    @classmethod
    def none(cls, why: str | Phrase) -> Self:
        """A node of which nothing is known, for one reason."""
        missing: Any = FactMissing.because(Phrase(form=why) if isinstance(why, str) else why)
        return cls(**dict.fromkeys(cls.__struct_fields__, missing))

    def items(self) -> Iterator[tuple[str, Any]]:
        """Name and value of every fact, known or missing."""
        for name in self.__struct_fields__:
            yield name, getattr(self, name)


OF_A_CHECK = frozenset({"roll", "reach", "collectives"})
"""Parts of a job that only a check before its start can examine."""


class Fleet(Struct, frozen=True, kw_only=True):
    """All evidence about one job.  None for a part of the job: it was not examined (`why_not` has the reason)."""

    world: j.World
    nodes: Mapping[int, NodeFacts] = {}
    roll: j.RollCall | None = None
    reach: j.Reachability | None = None
    collectives: j.Collectives | None = None
    run_evidence: RunEvidence | None = None  # read after the fact, or gathered from a running job under suspicion
    live: Live | None = None  # only of a job that runs
    runtime: RuntimeFailure | None = None  # only of a call of the runtime library that failed
    settings: Settings | None = None  # only where files or an environment are linted
    why_not: Mapping[str, Reason] = {}  # part ("reach") -> why it was not examined
    inapplicable: frozenset[str] = frozenset()  # parts that this job cannot have: one node has no roll call

    def per_node(self, fact_type: type) -> tuple[dict[int, Any], dict[int, FactMissing]]:
        """Nodes that have a fact of this type, and for the others why they have not."""
        name = next(n for n, t in NODE_FACTS.items() if t is fact_type)
        have: dict[int, Any] = {}
        missing: dict[int, FactMissing] = {}
        for node_rank, node in self.nodes.items():
            value = getattr(node, name)
            if isinstance(value, FactMissing):
                missing[node_rank] = value
            else:
                have[node_rank] = value
        return have, missing
