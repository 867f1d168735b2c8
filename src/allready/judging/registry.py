"""Rules and what they need.

A rule is a generator function under `@Rule(...)`.  Its parameters say what it needs:

- `net: PerNode[NetFacts]`: that fact of every node that has it; the others are listed as not checked;
- `roll: RollCall`, `reach: Reachability`, `collectives: Collectives`: a part of the job; not checked without it;
- `world: World`: names of the nodes, always there;
- `case: Analysis`: what several rules ask of the same evidence, always there; `case.facts(NetFacts)` and `case.roll`
  are evidence whose absence is not worth a "not checked";
- a parameter with default None is optional: its absence is not worth a "not checked".

A file has one rule, or the few that ask one question of the same evidence; its folder gives the area (`loading`
imports them).
"""

import inspect
from collections.abc import Callable, Iterator
from enum import Flag, auto
from typing import Any, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.layers import Layer as Layer
from allready.judging.signs import Sign
from allready.model.fill import placeholders as placeholders
from allready.model.fill import placeholders_of
from allready.patterns import compiled
from allready.text import catalog
from allready.text.steps import resolved

JOB_PARTS: dict[type, str] = {
    model.World: "world",
    model.RollCall: "roll",
    model.Reachability: "reach",
    model.Collectives: "collectives",
    model.RunEvidence: "run_evidence",
    model.Live: "live",
    model.Settings: "settings",
    model.RuntimeFailure: "runtime",
}


class Applies(Flag):
    """Where a rule is asked: of a check, of what a run left, of a job that runs; and of parts of these."""

    CHECK = auto()
    OFFLINE = auto()
    LIVE = auto()
    TRAFFIC = auto()
    """Of the connections of a check's ranks, as if they were those of a job."""
    ALONE = auto()
    """By a node that node 0 does not hear: no other node has to confirm it."""
    JOB_FACTS = auto()
    """Of the facts of a job's nodes while its ranks import: it stays true of a machine that a job uses."""
    RUN = OFFLINE | LIVE
    FACTS = CHECK | OFFLINE | JOB_FACTS
    CONNECTIONS = LIVE | TRAFFIC


_HEADING = r"(?m)^## (.+)$"
HEADINGS = ("What it checks", "Why it matters", "Check by hand", "When it is harmless")


class Need(Struct, frozen=True):
    """One parameter of a rule."""

    parameter: str
    fact_type: type
    per_node: bool
    optional: bool


class Rule(Struct, frozen=True, kw_only=True):
    """One rule.  Used as a decorator, it registers a copy with the decorated function as `body`.

    `layer`: where in the chain of causes its findings lie; of equally severe findings the deeper one is the verdict: a
    name that resolves to loopback explains the absent node, not the other way round.
    `explains`: codes of the same layer that it explains, where both are found.
    `is_launcher_summary`: says only that something ended; information beside a finding that explains it.
    `raised`: the situation in which its warning is the verdict.  `knows_least`: a node says it that sees less than any
    node that names another fault; left out beside one.
    `applies`: where it is asked; by default wherever what it needs is there.  `unless`: what explains more, so that it
    is not asked where the evidence shows one of these.  `signature`: of the log line that it is about, if it is.
    """

    code: str
    severity: model.Severity
    fault_class: model.FaultClass
    title: str
    message: str
    remedy: str | model.RemedyStep | tuple[model.RemedyStep, ...]
    layer: Layer
    since: str = "0.1"
    explains: tuple[str, ...] = ()
    is_launcher_summary: bool = False
    raised: model.Raised | None = None
    knows_least: bool = False
    applies: Applies | None = None
    unless: tuple[Sign, ...] = ()
    body: Callable[..., Iterator[model.Hit]] | None = None
    needs: tuple[Need, ...] = ()
    area: str = ""
    signature: str = ""

    def __call__(self, body: Callable[..., Iterator[model.Hit]]) -> "Rule":
        """Register the rule under its code."""
        letters = self.code.rstrip("0123456789")
        is_code = (len(letters), len(self.code)) == (3, 6) and letters.isalpha() and letters.isupper()
        assert is_code, self.code
        assert self.code not in RULES, f"code {self.code} is taken by {RULES[self.code].body}"
        needs = tuple(_needs(body))
        rule = replace(
            self, body=body, needs=needs, applies=self.applies or _where(needs), area=body.__module__.split(".")[-2]
        )
        RULES[rule.code] = rule
        return rule

    @property
    def steps(self) -> tuple[model.RemedyStep, ...]:
        """The steps of the remedy, those that are shared written out; a plain sentence is one without a command."""
        if isinstance(self.remedy, str):
            return (model.RemedyStep(explanation=self.remedy),)
        return resolved(self.remedy if isinstance(self.remedy, tuple) else (self.remedy,))

    @property
    def module(self) -> str:
        """Where it is written."""
        assert self.body is not None
        return self.body.__module__

    def text_in(self, language: str, slot: str) -> str:
        """The "title", "message" or "page" in `language`; English where that lacks it."""
        return catalog.in_language(str(getattr(self, slot)), language, self.area, self.code, slot)

    def sections(self, language: str) -> tuple[tuple[str, str], ...]:
        """Headings and texts of the page; of a text each paragraph is one line."""
        parts = compiled(_HEADING).split(self.text_in(language, "page"))[1:]
        return tuple((head, catalog.one_line(body)) for head, body in zip(parts[::2], parts[1::2], strict=True))

    @property
    def page(self) -> str:
        """What `allready explain` says of it: the function's docstring."""
        return inspect.getdoc(self.body) or ""

    @property
    def name(self) -> str:
        """The function's name, which is also the name of its test and its page's anchor."""
        assert self.body is not None
        return self.body.__name__

    def placeholders(self) -> frozenset[str]:
        """Names of the values that message and remedy need."""
        return placeholders(self.message) | placeholders_of(self.steps)


RULES: dict[str, Rule] = {}


def _where(needs: tuple[Need, ...]) -> Applies:
    """Where a rule with these needs can be asked."""
    if any(need.fact_type is model.Live and not need.optional for need in needs):
        return Applies.LIVE
    if any(need.fact_type is model.RuntimeFailure for need in needs):
        return Applies.CHECK | Applies.RUN
    return (
        Applies.RUN if any(need.fact_type is model.RunEvidence for need in needs) else Applies.CHECK | Applies.OFFLINE
    )


def _needs(body: Any) -> Iterator[Need]:
    """Of the function's own parts: `inspect.signature` takes ten times as long, and there are hundreds."""
    code = body.__code__
    names = code.co_varnames[: code.co_argcount]
    optionals = names[len(names) - len(body.__defaults__ or ()) :]
    hints = body.__annotations__
    if any(isinstance(hint, str) for hint in hints.values()):
        hints = get_type_hints(body)
    for name in names:
        hint = hints[name]
        optional = name in optionals
        if optional:
            hint = next(a for a in get_args(hint) if a is not type(None))
        per_node = get_origin(hint) is model.PerNode
        fact_type = get_args(hint)[0] if per_node else hint
        known = model.NODE_FACTS.values() if per_node else {*JOB_PARTS, Analysis}
        assert fact_type in known, f"{body.__module__}.{body.__name__}: no such evidence: {hint}"
        yield Need(name, fact_type, per_node, optional)
