"""The sentences that terminal and HTML share: status, verdict, culprits, what was checked, the roll call.

Everything returned here is made harmless by `safe.plain`.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from allready import model, units
from allready.judging.arbiter import likely_end
from allready.report.bench import best as best_point
from allready.report.matrix import Cell, Matrix
from allready.report.run_words import ended
from allready.report.safe import plain
from allready.text.catalog import label_of, remedy_text, say, say_note, say_remedies, say_text
from allready.text.reasons import say_reason
from allready.text.ui import ui

MANY_LINKS = 3
LATE_S = 1.0
"""A node that came this much after the typical one is called late."""

SYMBOLS = {model.Status.HEALTHY: "✓", model.Status.WAITING: "…", model.Status.FAULT: "✗", model.Status.UNKNOWN: "?",
           model.Status.INTERRUPTED: "■"}  # fmt: skip


def t(name: str, language: str, /, **values: object) -> str:
    """The report's own text `name`, as `allready.text.ui.ui` gives it."""
    return ui(f"report.{name}", language, **values)


def count(name: str, number: int, language: str) -> str:
    """`1 node`, `2 nodes`: the text `name` with its number."""
    return t(name, language, count=number)


def run_label(run: model.CollectiveRun, language: str) -> str:
    """What a run of collectives is called: the first one is that of the whole job."""
    return t("run_all", language) if run.label == "all" else plain(run.label, most=80)


def run_name(run: model.CollectiveRun, language: str) -> str:
    """`all · nccl · 4 ranks`."""
    return " · ".join(
        (run_label(run, language), plain(run.backend, most=40), count("num_ranks", len(run.ranks), language))
    )


def members(some: Sequence[int], run: model.CollectiveRun, language: str) -> str:
    """Ranks of a run compactly, or that it is none or all of them."""
    if not some:
        return t("stage_none", language)
    return t("stage_all", language) if set(some) == set(run.ranks) else model.ranges(some)


def reach_cell(cell: Cell, language: str) -> str:
    """What one direction is, beside its colour: `0 → 1: refused (...)`."""
    of = f"{cell.src} → {cell.dst}{t('colon', language)}{t(f'outcome_{cell.outcome}', language)}"
    detail = cell.detail(language)
    return f"{of}{t('semicolon', language)}{detail}" if detail else of


def reach_lines(reach: model.Reachability, table: Matrix, language: str) -> list[str]:
    """How many directions carry data, how many of them were tried, and the round trips."""
    name, nodes = "reach_bad" if table.num_bad else "reach_ok", count("num_nodes", table.num_nodes, language)
    lines = [t(name, language, bad=table.num_bad, count=table.num_cells, nodes=nodes)]
    if reach.num_pairs_done < reach.num_pairs_all:
        lines.append(t("reach_sampled", language, done=reach.num_pairs_done, all=reach.num_pairs_all))
    if table.rtt_s is not None:
        low, median, high = map(units.time, table.rtt_s)
        lines.append(t("reach_rtt", language, low=low, median=median, high=high))
    return lines


def size_of_world(report: model.Report, language: str) -> tuple[str, str]:
    """`2 nodes` and `4 ranks`."""
    return count("num_nodes", report.world.num_nodes, language), count("num_ranks", report.world.world_size, language)


def size_text(report: model.Report, language: str) -> str:
    """`2 nodes, 4 ranks`."""
    return t("comma", language).join(size_of_world(report, language))


def stage_detail(stage: model.StageResult, language: str) -> str:
    """Where in a sweep a stage ended, and what its ranks reported."""
    parts = [units.size(stage.size_bytes)] if stage.size_bytes is not None else []
    parts += [t("iteration", language, number=stage.iteration)] if stage.iteration is not None else []
    parts += [say_text(stage, "detail", language)] if stage.detail else []
    return plain(" · ".join(parts), most=600)


def has_details(run: model.CollectiveRun) -> bool:
    """Whether any stage has one."""
    return any(stage_detail(stage, "en") for stage in run.stages)


def process_state(state: model.RankState, language: str) -> str:
    """What the process did."""
    return plain(label_of("state", state.state, language), most=60)


def last_step(state: model.RankState, language: str) -> str:
    """The last thing that the rank had reported."""
    return plain(say_text(state, "step", language), most=200)


def how_it_ended(state: model.RankState, language: str) -> str:
    """Error, signal, exit code and kernel function of a rank, as far as known."""
    code = None if state.exit_code is None else t("exit_code", language, number=state.exit_code)
    how = [say_text(state, "error", language), state.signal, code, state.wchan]
    return plain(" · ".join(h for h in how if h), most=1000)


def verdict_finding(report: model.Report) -> model.Finding | None:
    """The finding that the verdict was made of; None when there is no verdict."""
    verdict = report.verdict
    if verdict is None:
        return None
    same = [f for f in report.findings if (f.code, f.culprits) == (verdict.code, verdict.culprits)]
    return next((f for f in same if f.message == verdict.sentence), same[0] if same else None)


def other_findings(report: model.Report) -> tuple[model.Finding, ...]:
    """All findings except the verdict's, the most severe first."""
    main = verdict_finding(report)
    rest = [f for f in report.findings if f is not main]
    return tuple(sorted(rest, key=lambda f: -f.severity.weight))


def grouped(
    findings: Iterable[model.Finding], main: model.Finding | None = None
) -> list[tuple[model.Finding, list[model.Finding]]]:
    """Findings of one rule that differ in place and numbers alone: the first, and the others; `main` stands alone."""
    found: dict[object, tuple[model.Finding, list[model.Finding]]] = {}
    for finding in findings:
        key = (finding.code, finding.severity, finding.fault_class, finding is main)
        if key in found:
            found[key][1].append(finding)
        else:
            found[key] = (finding, [])
    return list(found.values())


def phrase(finding: model.Finding, slot: str, language: str) -> str:
    """`title` or `message` of a finding on one line."""
    return plain(say(finding, slot, language))


def steps(finding: model.Finding, language: str) -> list[model.Remedy]:
    """What to do about a finding, every text on one line."""
    return _plain_steps(say_remedies(finding, language))


def _plain_steps(steps: Iterable[model.Remedy]) -> list[model.Remedy]:
    found = [
        model.Remedy(explanation=plain(s.explanation), command=plain(s.command), where=plain(s.where), step=s.step)
        for s in steps
    ]
    return [step for step in found if step.explanation or step.command]


_MAX_SIGN = 60
_MAX_QUOTE = 120


def sentence(report: model.Report, language: str) -> str:
    """The answer in one sentence."""
    finding = verdict_finding(report)
    if finding is not None:
        return phrase(finding, "message", language)
    if report.verdict is not None:
        return plain(report.verdict.sentence)
    if report.status is model.Status.HEALTHY:
        closing = report.summary.closing if report.summary is not None else None
        if closing is not None and closing.signs:
            return t("sentence_reads_well", language, signs=_signs_of_end(closing, language))
        if closing is not None:
            where = plain(str(closing.origin))
            text = plain(closing.text[:_MAX_QUOTE])
            return t("sentence_ended_well", language, where=where, text=text)
        nodes, ranks = size_of_world(report, language)
        num_seen = len(report.world.nodes)
        if report.command == "doctor" and num_seen < report.world.num_nodes:
            seen = count("num_nodes", num_seen, language)
            return t("sentence_healthy_part", language, seen=seen, nodes=nodes)
        return t("sentence_healthy", language, nodes=nodes, ranks=ranks)
    if report.status is model.Status.WAITING:
        return _waiting(report, language)
    if report.status is model.Status.INTERRUPTED:
        why = why_not_checked(report.not_checked[0], language) if report.not_checked else "-"
        return t("sentence_interrupted", language, why=why)
    if report.status is model.Status.UNKNOWN:
        likely = likely_end(report.findings) if report.command == "diagnose" else None
        if likely is not None:
            return t("sentence_likely", language, message=phrase(likely, "message", language))
        whys = sorted(report.not_checked, key=lambda n: n.node is not None)
        return t("sentence_unknown", language, why=why_not_checked(whys[0], language) if whys else units.UNKNOWN)
    return t("sentence_fault", language)


def _signs_of_end(closing: model.Closing, language: str) -> str:
    """The weak signs that a log's end was judged by, one of each kind, the last one."""
    told = {sign.kind: sign for sign in closing.signs}
    return t("semicolon", language).join(
        t(
            "sign_of_end",
            language,
            sign=t(f"sign_{kind}", language),
            where=plain(f"{closing.origin.source}:{sign.line}"),
            text=plain(sign.text[:_MAX_SIGN]),
        )
        for kind, sign in told.items()
    )


def absent(roll: model.RollCall) -> tuple[int, ...]:
    """Node ranks that did not come; none when this node knows only a part of the roll."""
    return () if roll.partial else roll.missing


def _waiting(report: model.Report, language: str) -> str:
    roll = report.roll
    if roll is None or not absent(roll):
        return t("sentence_waiting_stage", language)
    missing = plain(report.world.labels(roll.missing))
    return t("sentence_waiting", language, present=len(roll.present), num_nodes=roll.num_nodes, missing=missing)


def remedies(report: model.Report, language: str) -> list[model.Remedy]:
    """What to do about the verdict; empty when there is none."""
    finding = verdict_finding(report)
    if finding is not None:
        return steps(finding, language)
    verdict = report.verdict
    if verdict is None:
        return []
    return _plain_steps(verdict.remedies or (model.Remedy(explanation=verdict.remedy),))


def remedy(report: model.Report, language: str) -> str:
    """What to do about the verdict, in one line."""
    return remedy_text(remedies(report, language), language)


def culprits(guilty: model.Culprits, world: model.World, language: str, *, most: int = 8) -> tuple[str, ...]:
    """One short text per node, per group of ranks, per link and per variable."""
    named: list[str] = []
    if guilty.nodes:
        named.append(t("culprit_node", language, label=plain(world.labels(guilty.nodes, most=most))))
    if guilty.ranks:
        named.append(t("culprit_ranks", language, ranks=model.ranges(guilty.ranks)))
    links = _links(guilty.links, world, language)
    named += links[:most]
    if len(links) > most:
        named.append(f"… +{len(links) - most}")
    named += [plain(v) for v in guilty.variables[:most]]
    return tuple(named)


def _links(links: Sequence[tuple[int, int]], world: model.World, language: str) -> list[str]:
    """One text per link; the links from one node, or to one, together where they are many."""
    rest, named = list(dict.fromkeys(links)), []
    while rest:
        ends = Counter((end, link[end]) for link in rest for end in (0, 1))
        (end, node), number = max(ends.items(), key=lambda item: item[1])
        if number < MANY_LINKS:
            break
        others = tuple(link[1 - end] for link in rest if link[end] == node)
        rest = [link for link in rest if link[end] != node]
        label = plain(world.label(node))
        src, dst = (label, model.ranges(others)) if end == 0 else (model.ranges(others), label)
        named.append(t("culprit_links", language, src=src, dst=dst, count=number))
    return named + [t("culprit_link", language, src=plain(world.label(a)), dst=plain(world.label(b))) for a, b in rest]


def paths_ok(report: model.Report) -> tuple[int, int]:
    """How many paths carry data, of how many that were tried; also those that the report does not list."""
    if report.reach is None:
        return 0, 0
    outcomes = Counter(p.outcome for p in report.reach.paths) + Counter(report.reach.paths_left_out)
    return outcomes["ok"], outcomes.total() - outcomes["not_run"]


def summary(report: model.Report, language: str) -> tuple[str, ...]:
    """What was checked and how it went, one short text each; parts that were not checked are left out."""
    texts: list[str] = []
    if report.roll is not None and report.roll.num_nodes > 1 and not report.roll.partial:
        texts.append(t("summary_roll", language, present=len(report.roll.present), num_nodes=report.roll.num_nodes))
    ok, tried = paths_ok(report)
    if tried:
        name = "summary_reach" if ok == tried else "summary_reach_bad"
        texts.append(t(name, language, ok=ok, bad=tried - ok, count=tried))
    for run in report.collectives.runs[:1] if report.collectives else ():
        stages = [s for s in run.stages if s.outcome != "skipped"]
        ok, backend = sum(s.outcome == "ok" for s in stages), plain(run.backend)
        if run.bad is not None:
            stage, outcome = plain(run.bad.name), stage_word(run.bad.outcome, language)
            texts.append(t("summary_stage_bad", language, stage=stage, outcome=outcome, backend=backend))
        elif stages:
            ranks = count("num_ranks", len(run.ranks), language)
            texts.append(t("summary_stages", language, ok=ok, count=len(stages), ranks=ranks, backend=backend))
        best = best_point(run.points)
        if best is not None and best.busbw_gb_per_s > 0:
            busbw, size = units.bandwidth_with_unit(best.busbw_gb_per_s), units.size(best.size_bytes)
            texts.append(t("summary_busbw", language, operation=plain(best.operation), busbw=busbw, size=size))
    if report.summary is not None:
        texts += ended(report.summary, language)
    return tuple(texts)


def stage_word(outcome: str, language: str) -> str:
    """A stage's outcome in the reader's language; an unknown one as it is."""
    known = {"ok", "failed", "hung", "wrong", "skipped"}
    return t(f"stage_{outcome}", language) if outcome in known else plain(outcome)


def roll_lines(report: model.Report, language: str) -> tuple[str, ...]:
    """The roll call in one to six short texts; empty when there was none."""
    roll, world = report.roll, report.world
    if roll is None:
        return ()
    if roll.num_nodes == 1 and len(roll.present) == 1 and not roll.callers:
        return (t("roll_one", language),)
    texts: list[str] = []
    here = [c for c in roll.claims if c.refused is None]
    if absent(roll):
        present, waited_s, missing = len(roll.present), units.seconds(roll.waited_s), plain(world.labels(roll.missing))
        named = {"present": present, "num_nodes": roll.num_nodes, "waited_s": waited_s, "missing": missing}
        texts.append(t("roll_some", language, **named))
    elif not roll.partial:
        last = max((c.arrival_s for c in here), default=roll.waited_s)
        texts.append(t("roll_all", language, num_nodes=roll.num_nodes, seconds=units.seconds(last)))
    late = [
        t("roll_late_item", language, label=plain(world.label(n)), seconds=units.seconds(s))
        for n, s in late_by_s(roll).items()
    ]
    if late:
        texts.append(t("roll_late", language, who=_some(late, language)))
    longest = max((c.waited_s for c in here), default=0.0)
    if longest > LATE_S and longest > 2 * typical_arrival_s(roll):
        texts.append(t("roll_first_waited", language, seconds=units.seconds(longest)))
    refused = [
        t(
            "roll_refused_item" if c.address else "roll_refused_item_unseen",
            language,
            label=plain(f"{c.node_rank} ({c.name})"),
            address=plain(c.address),
            why=why,
        )
        for c in roll.claims
        if (why := plain(label_of("why", c.refused or "", language)))
    ]
    if refused:
        texts.append(t("roll_refused", language, who=_some(refused, language)))
    if roll.lost:
        texts.append(t("roll_lost", language, who=plain(world.labels(roll.lost))))
    if roll.callers:
        callers = [_caller(c, language) for c in roll.callers]
        texts.append(t("roll_callers", language, who=_some(callers, language)))
    return tuple(texts)


def refused(claim: model.Claim, language: str) -> str:
    """Why node 0 refused a node."""
    return plain(label_of("why", claim.refused or "", language), most=80)


def _caller(caller: model.Caller, language: str) -> str:
    kind, detail = label_of("caller", caller.kind, language), say_text(caller, "detail", language)
    return plain(f"{caller.address} {kind} {detail}".strip(), most=120)


def typical_arrival_s(roll: model.RollCall) -> float:
    """The median arrival of the nodes other than node 0, which is there from the start; 0 when none came."""
    others = [c.arrival_s for c in roll.claims if c.refused is None and c.node_rank != 0]
    return statistics.median_low(others) if others else 0.0


def late_by_s(roll: model.RollCall) -> dict[int, float]:
    """Node rank -> seconds after the typical other node, or after node 0 when there are only two, latest first."""
    arrivals = {c.node_rank: c.arrival_s for c in roll.claims if c.refused is None}
    typical = typical_arrival_s(roll) if len(arrivals) > 2 else min(arrivals.values(), default=0.0)
    late = {n: s - typical for n, s in arrivals.items() if s - typical > LATE_S}
    return dict(sorted(late.items(), key=lambda item: -item[1]))


def _some(items: Sequence[str], language: str, most: int = 8) -> str:
    more = [f"… +{len(items) - most}"] if len(items) > most else []
    return t("comma", language).join([*items[:most], *more])


def not_checked_groups(report: model.Report) -> list[tuple[model.NotChecked, tuple[str, ...], tuple[int | None, ...]]]:
    """(one of them, codes, nodes) with the same reasons together; the reason that hides most comes first."""
    groups: dict[str, list[model.NotChecked]] = defaultdict(list)
    for item in report.not_checked:
        groups[item.why].append(item)
    rows = [
        (
            items[0],
            tuple(sorted({plain(item.code) for item in items})),
            tuple(sorted({item.node for item in items}, key=lambda n: -1 if n is None else n)),
        )
        for items in groups.values()
    ]
    return sorted(rows, key=lambda row: (-len(row[1]), row[0].why))


def why_not_checked(item: model.NotChecked, language: str) -> str:
    """The reason on one line."""
    return plain(say_reason(item, language), most=300)


def where(nodes: Sequence[int | None], language: str) -> str:
    """Node ranks compactly, or "whole job" where the reason concerns no single node."""
    ranks = [n for n in nodes if n is not None]
    named = [t("not_checked_job", language)] if None in nodes else []
    if ranks:
        named.append(model.ranges(ranks))
    return t("comma", language).join(named)


def notes(report: model.Report, language: str) -> tuple[str, ...]:
    """The notes, without those that stand with their source as well."""
    sources = report.summary.sources if report.summary is not None else ()
    shown = {f"{source.path}: {source.problem}" for source in sources}
    known = report.noted if len(report.noted) == len(report.notes) else (None,) * len(report.notes)
    return tuple(
        text if note is None else say_note(note, language)
        for text, note in zip(report.notes, known, strict=True)
        if text not in shown
    )
