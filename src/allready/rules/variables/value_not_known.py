"""VAR012."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Settings, Severity
from allready.model.fill import UNKNOWN
from allready.rules.variables._settings import hit, problems, remedy
from allready.variables import table
from allready.variables.values import Kind

MAX_WORDS = 16
"""Shown of a long list of accepted words."""


@Rule(
    code="VAR012",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A value that the variable does not accept",
    message="{name}={value}: {part} is not among the words it takes ({accepted})",
    remedy=remedy("[[write {better}|write one of {choice}]]"),
)
def value_not_known(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Words that are not among the accepted ones, or are in the wrong case where case matters (NCCL_P2P_LEVEL=nvl).
    In lists each word counts by itself; blanks belong to the word. Where plugins bring words of their own (NCCL_NET,
    FI_PROVIDER), only words that are nearly one of the known, or are another name for one (tcp for Socket).
    ## Why it matters
    NCCL passes over an unknown level or ends at an unknown algorithm; NCCL_DEBUG with an unknown word logs nothing, and
    one unknown word in NCCL_DEBUG_SUBSYS makes all of it invalid since 2.30.
    ## Check by hand
    `allready env explain NAME` lists the accepted words.
    ## When it is harmless
    When a newer release, or a plugin, knows the word.
    """
    for same, problem in problems(settings, Kind.UNKNOWN_WORD, Kind.WRONG_CASE):
        words = table.load()[same.name].values
        is_near = problem.better != ", ".join(words)
        accepted = ", ".join([*words[:MAX_WORDS], "..."] if len(words) > MAX_WORDS else words)
        yield hit(
            same,
            part=repr(problem.part),
            accepted=accepted,
            better=problem.better if is_near else UNKNOWN,
            choice=UNKNOWN if is_near else accepted,
        )
