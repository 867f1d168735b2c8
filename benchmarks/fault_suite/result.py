"""What came of one scenario: data for the scoreboard."""

from collections.abc import Sequence

import msgspec

from allready.lab.inject.truth import Injected
from fault_suite import verdicts
from fault_suite.scenario import Row, Setup
from fault_suite.watch import Said

DEFAULT_TIMEOUT_S = {"gloo": 1800.0, "jax": None}
"""What a user waits for without a tool; JAX's collectives have no time-out at all."""
START_TIMEOUT_S = {"gloo": 900.0, "jax": 300.0}
"""The same before the first step: torchrun's static rendezvous, `jax.distributed.initialize`."""
EARLY_S = 0.25
"""A report's file may bear a time so little before the onset was noted."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One row, one seed.  Times are seconds after the fault could first be seen.

    `outcome`: "right", "missed" (nothing was reported), "wrong" (something else was reported), "quiet" and "false
    alarm" for controls, "not played" with `problem`.
    """

    row: str
    title: str
    seed: int
    control: bool
    outcome: str
    dose: str = ""
    victim: str = ""
    step: int | None = None
    detected: bool = False
    class_right: bool = False
    culprit_right: bool = False
    blamed_innocents: tuple[str, ...] = ()
    detect_s: float | None = None
    culprit_s: float | None = None
    reported_detect_s: float | None = None
    code: str = ""
    fault_class: str = ""
    status: str = ""
    culprits: dict[str, tuple[object, ...]] = {}
    sentence: str = ""
    default_timeout_s: float | None = None
    duration_s: float = 0.0
    ran: bool = False  # the job ran in spite of the fault, and that is right
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing is to be bettered here."""
        return self.outcome in {"right", "quiet"} and not self.blamed_innocents


def judge(
    row: Row,
    seed: int,
    setup: Setup,
    said: Sequence[Said],
    truth: Sequence[Injected],
    *,
    shows_s: float | None,
    ended_s: float,
    problem: str,
    duration_s: float,
    ran: bool = False,
) -> Result:
    """Compare what the reports said, and when, with what was done."""
    timeouts = START_TIMEOUT_S if setup.from_launch else DEFAULT_TIMEOUT_S
    base = Result(
        row=row.id,
        title=row.title,
        seed=seed,
        control=row.control,
        outcome="not played",
        dose=setup.dose,
        victim=setup.victim,
        step=next((t.step for t in truth if t.step is not None), None),
        default_timeout_s=timeouts[row.framework],
        duration_s=round(duration_s, 1),
    )
    if not problem and any(t.status == "not_injected" for t in truth):
        problem = next(t.why for t in truth if t.status == "not_injected")
    before_end = [s for s in said if s.time_s <= ended_s]
    if problem or (shows_s is None and setup.expected.answers) or not (before_end or row.control):
        return msgspec.structs.replace(base, problem=problem or "no report was written, or the fault never came")
    if row.control:
        return _judge_control(base, before_end)
    assert shows_s is not None
    result = _judge_fault(base, setup, before_end, truth, shows_s)
    is_only_right = result.class_right and result.culprit_right and not result.blamed_innocents
    if ran and (result.outcome == "missed" or is_only_right):  # nothing is wrong any more that could stand: the job ran
        return msgspec.structs.replace(result, outcome="right", class_right=True, culprit_right=True, ran=True)
    return result


def _judge_control(base: Result, said: Sequence[Said]) -> Result:
    alarms = [s for s in said if verdicts.is_false_alarm(s)]
    if not said:
        return msgspec.structs.replace(base, problem="no report was written")
    worst = alarms[0] if alarms else said[-1]
    return _with_words(
        msgspec.structs.replace(base, outcome="false alarm" if alarms else "quiet", detected=bool(alarms)), worst
    )


def _judge_fault(base: Result, setup: Setup, said: Sequence[Said], truth: Sequence[Injected], shows_s: float) -> Result:
    expected, layout = setup.expected, setup.layout
    nodes = expected.nodes or (0,)
    onset_s = min([t.injected_s for t in truth if t.status == "injected"], default=shows_s)
    if setup.from_launch:
        onset_s = 0.0
    innocent: dict[str, str] = {}
    for one in said:
        if one.node in nodes:
            for who in verdicts.innocents(one, expected, layout):
                innocent.setdefault(who, f"{who} ({one.code} after {one.time_s - shows_s:.1f} s)")
            if one.time_s < onset_s - EARLY_S and one.status == "fault":
                innocent[one.code] = f"{one.code} before the fault"
    after = [s for s in said if s.time_s >= onset_s - EARLY_S and s.node in nodes]
    last = {s.node: s for s in after}
    right = [s for s in after if verdicts.is_right(s, expected, layout)]
    stands = any(verdicts.is_right(s, expected, layout) for s in last.values())
    noticed = [s for s in after if s.status != "healthy" or (expected.in_findings and s in right)]
    final = next((s for s in last.values() if verdicts.is_right(s, expected, layout)), None)
    final = final or next((s for s in reversed(after) if s.verdict is not None), None) or (after[-1] if after else None)
    result = msgspec.structs.replace(
        base,
        outcome="right" if stands else "wrong" if final is not None and final.verdict is not None else "missed",
        detected=bool(noticed),
        class_right=stands or (final is not None and verdicts.class_right(final.verdict, expected)),
        culprit_right=stands or (final is not None and verdicts.culprit_right(final.verdict, expected, layout)),
        blamed_innocents=tuple(innocent.values()),
        detect_s=_after(noticed, shows_s),
        culprit_s=_after(right, shows_s) if stands else None,
    )
    return _with_words(result, final) if final is not None else result


def _after(said: Sequence[Said], shows_s: float) -> float | None:
    return round(max(said[0].time_s - shows_s, 0.0), 2) if said else None


def _with_words(result: Result, said: Said) -> Result:
    verdict = said.verdict or {}
    return msgspec.structs.replace(
        result,
        code=said.code,
        fault_class=said.fault_class,
        status=said.status,
        culprits=dict(said.culprits()),
        sentence=str(verdict.get("sentence", "")),
        reported_detect_s=verdict.get("detect_s"),
    )
