"""Rules made from the signature tables: one per finding that a line of a log can mean.

The table says what a line means in general; what it means in this run (`Event.role`) was settled when the evidence
was put together.  Only lines that may be the first cause keep the table's severity; echoes and noise are reported as
information, so that a reader who meets the line in a log finds out that it is one.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from allready import model
from allready.errors import TableError
from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.majority import is_minority
from allready.judging.processes import overcome
from allready.judging.registry import RULES, Applies, Need, Rule, placeholders
from allready.judging.run_signs import TIME_TO_SPEAK_S, by_signature, speaks_beside_its_launcher, who
from allready.judging.stated import said, stated
from allready.model.fill import named_by, placeholders_of
from allready.signatures import Signature, load
from allready.signatures.conditions import CULPRITS, hint_of
from allready.signatures.names import LAUNCHERS
from allready.text.steps import resolved

MAX_EVIDENCE = 8
MAX_LINES_OF_A_MESSAGE = 12
_NEEDS = (
    Need(parameter="case", fact_type=Analysis, per_node=False, optional=False),
    Need(parameter="run", fact_type=model.RunEvidence, per_node=False, optional=False),
)
"""Of all these rules; to ask each function for its parameters took longer than to load the tables."""

CONFIDENCE = {model.Role.ROOT: model.Confidence.CERTAIN, model.Role.RECORD: model.Confidence.POSSIBLE}


@functools.cache
def _findings() -> dict[str, Signature]:
    return {signature.code: signature for signature in load().values() if signature.code is not None}


def register() -> None:
    """Put every finding of the tables among the rules, under the area `log_FAMILY`; harmless when called again."""
    findings = _findings()
    if findings.keys() <= RULES.keys():  # each judgement asks
        return
    for code, signature in findings.items():
        if code in RULES:
            continue
        RULES[code] = Rule(
            code=code,
            severity=signature.severity,
            fault_class=signature.fault_class,
            title=signature.title,
            message=signature.message,
            remedy=signature.steps,
            since=signature.since,
            layer=_layer(signature),
            is_launcher_summary=signature.is_launcher_summary,
            raised=signature.raised,
            body=_body(signature),
            needs=_NEEDS,
            applies=Applies.RUN,
            area=f"log_{signature.family}",
            signature=signature.id,
        )


def _layer(signature: Signature) -> Layer:
    if signature.layer not in set(Layer):
        valid = ", ".join(Layer)
        raise TableError(f"signatures/{signature.family}.toml: {signature.id}: layer is one of: {valid}")
    return Layer(signature.layer)


def _body(signature: Signature) -> Callable[..., Iterator[model.Hit]]:
    def body(case: Analysis, run: model.RunEvidence) -> Iterator[model.Hit]:
        del run  # what these rules are about
        events = case.of(by_signature)[signature.id]
        roots = [e for e in events if e.role in {model.Role.ROOT, model.Role.RECORD}]
        roots = roots or [e for e in events if e.role is not model.Role.HARMLESS]  # those of a job before say nothing
        needed = placeholders(signature.message) | placeholders_of(resolved(signature.steps))
        groups = {name for line in signature.lines for name in line.groups}
        yield _hit(signature, roots or events, case, needed | groups)

    body.__name__, body.__doc__ = signature.id.partition(".")[2], signature.page
    return body


def _hit(signature: Signature, events: Sequence[model.Event], case: Analysis, names: AbstractSet[str]) -> model.Hit:
    run = case.run
    events = sorted(events, key=lambda e: (e.time_s is None, e.time_s or 0.0))
    is_overcome = all(e.role is model.Role.ROOT and overcome(case, signature, e) for e in events)
    if not is_overcome:
        events = [e for e in events if e.role is not model.Role.ROOT or not overcome(case, signature, e)]
    first = events[0]
    accusing = first.role in {model.Role.ROOT, model.Role.RECORD}
    mild = signature.role is model.Role.ROOT and signature.severity.weight < model.Severity.ERROR.weight
    culprits = accused(signature, events, run) if first.role is model.Role.ROOT or mild else model.Culprits()
    values: dict[str, str | None] = {**dict.fromkeys(names), **hint_of(signature.id, first.text), **_values(events)}
    values["who"] = called(run, [e for e in events if _is_alike(e, first, names)])
    if "reporter" in names:
        values["reporter"] = _machine(first.origin, run)
    confidence = model.Confidence.CERTAIN if mild else CONFIDENCE.get(first.role, model.Confidence.CERTAIN)
    wrote = {n for e in events for n in _nodes_of(e, run)} if culprits.nodes else set()
    is_whole = signature.culprit == "none"  # it is certain although it accuses no rank; whom it suggests is inferred
    inferred = set(culprits.nodes) - wrote or (is_whole and culprits.ranks)
    if first.role is model.Role.ROOT and (inferred or (not culprits and not is_whole)):
        confidence = model.Confidence.LIKELY
    if first.role is model.Role.ROOT:
        confidence = min(confidence, signature.max_confidence, key=lambda c: c.weight)
    severity = _severity(signature, events, case) if accusing else model.Severity.INFO
    if all(e.is_last_output for e in events):
        confidence = min(confidence, model.Confidence.LIKELY, key=lambda c: c.weight)
    if is_overcome:
        severity, culprits, confidence = model.Severity.WARNING, model.Culprits(), model.Confidence.POSSIBLE
    fault_class = signature.case_of(events, case.of(by_signature)).fault_class
    if signature.class_if_alive is not None and _lived_on(culprits.ranks, case):
        fault_class, confidence = (
            signature.class_if_alive,
            min(confidence, model.Confidence.LIKELY, key=lambda c: c.weight),
        )
    return model.Hit(
        values=values,
        culprits=culprits,
        severity=severity,
        fault_class=fault_class,
        confidence=confidence,
        fault_time=model.clock_time(first.time_s),
        evidence=(
            *(
                model.Evidence(source=str(e.origin), text=e.text, time=model.clock_time(e.time_s))
                for e in events[:MAX_EVIDENCE]
            ),
            *(_of_variables(signature.variables, culprits.nodes, wrote, run) if accusing else ()),
        ),
    )


def _of_variables(
    variables: Sequence[str], accused_nodes: Sequence[int], wrote: set[int], run: model.RunEvidence
) -> Iterator[model.Evidence]:
    """The values that accused nodes had, as far as logs show them; and why nodes are accused whose logs show none."""
    shown: dict[tuple[str, str], model.ProcessRecord] = {}
    for process in run.processes:
        if process.rank is not None and run.node_of_rank.get(process.rank) in accused_nodes:
            for name in variables:
                if name in process.env:
                    shown.setdefault((name, process.env[name]), process)
    for (name, value), process in list(shown.items())[:MAX_EVIDENCE]:
        source = next(iter(process.sources), "")
        yield stated(source, "rank {rank}: {name}={value}", rank=process.rank, name=name, value=value)
    late = [node for node in accused_nodes if node not in wrote]
    for node in late[:MAX_EVIDENCE] if variables else ():
        yield stated(
            said("node {node}", node=node),
            "nothing shows what {name} does there; most launchers give all nodes one environment",
            name=variables[0],
        )


def _values(events: Sequence[model.Event]) -> dict[str, str]:
    """Of the first line, and of those of the same writer right below it that belong to the same message: launchers
    write the rank in one line and the exit code in the next."""
    first = events[0]
    values = {k: v for k, v in first.values.items() if v}
    origin = first.origin
    for event in events[1:]:
        other = event.origin
        distance = (other.line or 0) - (origin.line or 0)
        is_near = other.source == origin.source and 0 < distance <= MAX_LINES_OF_A_MESSAGE
        if not is_near or replace(other, line=origin.line) != origin:
            continue
        more = {k: v for k, v in event.values.items() if v}
        if any(values.get(k, v) != v for k, v in more.items()):
            break
        values |= more
    return values


def _machine(origin: model.Origin, run: model.RunEvidence) -> str | None:
    """What people call the machine that wrote a line: its host name, but where several nodes have the same one."""
    nodes = {run.node_of_rank.get(p.rank) for p in run.processes if p.rank is not None and p.host == origin.host}
    number = run.node_of_rank.get(origin.rank) if origin.rank is not None else None
    if origin.host and (len(nodes) < 2 or number is None):
        return origin.host
    names = {known: name for name, known in run.node_numbers.items()}
    if number is None:
        return origin.node or None
    return names.get(number) or named_by(said("node {node}", node=number))


OF_ONE_CALL = ("op", "seq")
"""Values that a sentence states of all ranks that it names."""


def _is_alike(event: model.Event, first: model.Event, names: AbstractSet[str]) -> bool:
    """Whether what the sentence says of the first holds for this one: no rank is shown in another's
    operation."""
    return all(event.values.get(name) == first.values.get(name) for name in OF_ONE_CALL if name in names)


def called(run: model.RunEvidence, events: Sequence[model.Event]) -> str | None:
    """The ranks that wrote them; where none is known, host and process of the first, as far as they are."""
    ranks = {e.origin.rank for e in events if e.origin.rank is not None}
    if ranks:
        return who(run, ranks, with_processes=len(ranks) == 1)
    origin = events[0].origin
    host = origin.host or origin.node
    if origin.pid is None:
        return host or None
    return f"{host} (pid {origin.pid})" if host else f"pid {origin.pid}"


def _severity(signature: Signature, events: Sequence[model.Event], case: Analysis) -> model.Severity | None:
    """As the table has it for such lines.  That sizes differ is an echo where records show whose differ."""
    is_desync = signature.fault_class in {model.FaultClass.DESYNC_ARGS, model.FaultClass.DESYNC_FLOW}
    if is_desync and signature.culprit == "none" and any(m.odd for m in case.run.mismatches):
        return model.Severity.WARNING
    return signature.case_of(events, case.of(by_signature)).severity


def _lived_on(ranks: Sequence[int], case: Analysis) -> bool:
    """Whether all of them were seen when they were missed: their launcher had to end them, stacks were taken, or
    their agents see them."""
    run, live = case.run, case.live
    ended = {d.rank for d in run.deaths if not d.by_launcher and not d.earlier}
    seen = {d.rank for d in run.deaths if d.by_launcher} | {s.rank for s in run.stacks if s.role == "rank"}
    seen |= {r for r, s in live.ranks().items() if not s.is_gone} if live is not None else set()
    return bool(ranks) and all(r in seen and r not in ended for r in ranks)


def accused(signature: Signature, events: Sequence[model.Event], run: model.RunEvidence) -> model.Culprits:
    """Whom lines of one signature accuse, as ranks or nodes of this run; empty when that cannot be known."""
    accusing = [e for e in events if e.role in {model.Role.ROOT, model.Role.RECORD}]
    ranks: set[int] = set()
    nodes: set[int] = set()
    for event in accusing:
        named_ranks, named_nodes = _named(signature.culprit, event, run)
        ranks |= named_ranks
        nodes |= named_nodes
    if signature.id in CULPRITS:
        ranks |= CULPRITS[signature.id](accusing)
    if signature.culprit == "ranks" and run.expected_ranks and len(ranks) >= run.expected_ranks:
        ranks.clear()  # all ranks: that accuses none
    if signature.fault_class is model.FaultClass.START_ABSENT and not ranks | nodes:
        ranks |= _absentees(events, run)
        nodes |= set() if ranks else _silent_nodes(events, run)
    if nodes and signature.variables:
        nodes |= _not_cleared(signature.variables, events, run)
    return model.Culprits(ranks=tuple(sorted(ranks)), nodes=tuple(sorted(nodes)), variables=signature.variables)


def _named(culprit: str, event: model.Event, run: model.RunEvidence) -> tuple[set[int], set[int]]:
    """Ranks and nodes that one line names."""
    own = set() if event.origin.rank is None else {event.origin.rank}
    match culprit:
        case "rank":
            return own, set()
        case "node":
            nodes = _nodes_of(event, run)
            return (set() if nodes else own), nodes
        case "peer":
            found = run.peers.get(event.values.get("peer", "").strip())
            return set(found) if isinstance(found, tuple) else set(), set()
        case "ranks":
            return set(numbers(event.values.get("ranks", ""))), set()
        case _:
            return set(), set()


def _absentees(events: Sequence[model.Event], run: model.RunEvidence) -> set[int]:
    """Who is missing, where lines tell how many came: the ranks of which no source shows anything, if they are as "
    "many."""
    spoken = {e.origin.rank for e in run.events} | {p.rank for p in run.processes} | {d.rank for d in run.deaths}
    known = {r for r in spoken if r is not None}
    for event in events:
        joined, expected = event.values.get("joined", ""), event.values.get("expected", "")
        if not (joined.isdecimal() and expected.isdecimal() and len(expected) < 7):
            continue
        silent = set(range(int(expected))) - known
        if len(silent) == int(expected) - int(joined):
            return silent
    if any(e.values.get("expected") for e in events) or not known or max(known) > 100_000:
        return set()
    gaps = set(range(max(known) + 1)) - known
    return gaps if is_minority(len(gaps), len(gaps | known)) else set()


def _silent_nodes(events: Sequence[model.Event], run: model.RunEvidence) -> set[int]:
    """Nodes of which only a launcher speaks, where others say that a rank did not come; none if these are fewer.

    Not where ranks have files of their own, which may lack, nor nodes that were ended when the first gave up: they may
    have waited as well.
    """
    if not speaks_beside_its_launcher(run, (e.origin.source for e in events)):
        return set()
    waited = {n for e in events for n in _nodes_of(e, run)}
    spoken = {n for e in run.events if e.family not in LAUNCHERS for n in _nodes_of(e, run)}
    seen = {p.rank for p in run.processes}
    spoken |= {node for rank, node in run.node_of_rank.items() if rank in seen}
    for death in run.deaths:
        number = run.node_numbers.get(death.node or death.origin.node or "")
        if number is not None and not death.by_launcher:
            spoken.add(number)
    silent = set(run.node_numbers.values()) - waited - spoken - _ended_with(events, run)
    return silent if len(silent) < len(waited) + 1 and waited else set()


def _ended_with(events: Sequence[model.Event], run: model.RunEvidence) -> set[int]:
    """Nodes whose launcher ended their processes as soon as the first of `events` had been written."""
    since_s = min((e.time_s for e in events if e.time_s is not None), default=None)
    ended: dict[int, float] = {}
    for death in run.deaths:
        number = run.node_numbers.get(death.node or death.origin.node or "")
        if number is not None and death.by_launcher and death.time_s is not None:
            ended[number] = max(ended.get(number, death.time_s), death.time_s)
    return {n for n, time_s in ended.items() if since_s is not None and time_s <= since_s + TIME_TO_SPEAK_S}


def _not_cleared(variables: tuple[str, ...], events: Sequence[model.Event], run: model.RunEvidence) -> set[int]:
    """Nodes that ended before they could show what the variable does there.

    Launchers hand one environment to every node, and the first that fails ends the others: a node is cleared by another
    value, by an interface that it found or by a communicator that it completed, not by having been too late to look.
    """
    if not all(e.origin.rank is not None or e.origin.node for e in events):
        return set()
    cleared: set[int] = set()
    for process in run.processes:
        node = run.node_of_rank.get(process.rank) if process.rank is not None else None
        if node is None:
            node = run.node_numbers.get(process.node or process.host or "")
        shown = process.interfaces or process.oob or any(c.init_completed for c in process.comms)
        if node is not None and (shown or any(v in process.env for v in variables)):
            cleared.add(node)
    return set(run.node_numbers.values()) - cleared


def _nodes_of(event: model.Event, run: model.RunEvidence) -> set[int]:
    if event.origin.rank is not None and event.origin.rank in run.node_of_rank:
        return {run.node_of_rank[event.origin.rank]}
    number = run.node_numbers.get(event.origin.node or "") if event.origin.node else None
    if number is None and event.origin.host:
        number = run.node_numbers.get(event.origin.host)
    return set() if number is None else {number}


def numbers(text: str) -> tuple[int, ...]:
    """Ranks out of `1, 2, 5-7`, `[0, 3]`, `task:4`; ranges are spread, at most 100,000 ranks."""
    found: set[int] = set()
    tasks = re.findall(r"task:(\d{1,7})", text)
    if tasks:  # `/job:jax_worker/replica:0/task:1`: its other numbers are no ranks
        return tuple(sorted(map(int, tasks)))
    for low, high in re.findall(r"(\d{1,7})(?:\s*-\s*(\d{1,7}))?", text):
        last = int(high) if high else int(low)
        if int(low) <= last and last - int(low) < 100_000:
            found |= set(range(int(low), last + 1))
    return tuple(sorted(found))
