"""How the holder of the master port is written and what ends it."""

from collections.abc import Mapping

from allready.judging.stated import evidence_of, said
from allready.model import Culprits, Evidence, Hit, MasterPortFacts, Phrase, PortHolder, World

STORES = frozenset({"torch-store", "allready"})
"""Services that belong to a distributed job: another job's when node 0 finds one on its own port."""

ANSWERED: Mapping[bool | None, str] = {True: "answered", False: "not answered", None: "not tried"}
"""What became of datagrams that a node sent, by `heard_by_datagram`."""

_IN_USE = ("in use", "EADDRINUSE")


def is_taken(facts: MasterPortFacts) -> bool:
    """Node 0 could not open the port because another process has it."""
    error = facts.error or ""
    return not facts.opened and (
        facts.holder is not None or facts.service is not None or any(w in error for w in _IN_USE)
    )


def holder_text(holder: PortHolder | None, service: str | None) -> str:
    """`pid 4242, python -m http.server, user=alice, started=2026-01-02T03:04:05 (http)`, with what is known."""
    parts = [f"pid {holder.pid if holder is not None and holder.pid is not None else '?'}"]
    if holder is not None:
        parts += [holder.command] if holder.command else []
        parts += [f"user={holder.user}"] if holder.user else []
        parts += [f"started={holder.started}"] if holder.started else []
    return ", ".join(parts) + (f" ({service})" if service else "")


def end_command(holder: PortHolder | None, port: int) -> str:
    """The command that ends the holder, or shows it to root when its pid may not be seen."""
    if holder is not None and holder.pid is not None:
        return f"kill {holder.pid}"
    return f"sudo ss -ltnp 'sport = :{port}'"


def taken_hit(world: World, node: int, facts: MasterPortFacts) -> Hit:
    """The hit of a rule about who holds the master port."""
    return Hit(
        culprits=Culprits(nodes=(node,)),
        values={
            "port": facts.port,
            "node": world.label(node),
            "holder": holder_text(facts.holder, facts.service),
            "end": end_command(facts.holder, facts.port),
        },
        evidence=port_evidence(facts),
    )


def port_evidence(facts: MasterPortFacts) -> tuple[Evidence, ...]:
    """What node 0 found on its port."""
    error: str | Phrase = facts.error or said("could not be opened")
    return tuple(evidence_of("master port", text, node_rank=0) for text in (error, facts.banner) if text)
