"""The roll call of the HTML report: who came when, as a drawing and as a table."""

import math
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from allready.model import Claim, Report, RollCall
from allready.report import units
from allready.report.safe import plain, shorten
from allready.report.words import absent, late_by_s, roll_lines, t

MAX_ROWS = 32
LEFT, RIGHT = 160, 640
ROW_HEIGHT = 22

Both = Callable[[Callable[[str], str]], Markup]


def roll(report: Report, language: str, both: Both) -> dict[str, Any] | None:
    """What the template draws; None without a roll call.  At most `MAX_ROWS` nodes: absent, then late ones first."""
    call = report.roll
    if call is None:
        return None
    said = zip(roll_lines(report, "en"), roll_lines(report, "zh"), strict=True)
    lines = [both({"en": english, "zh": chinese}.__getitem__) for english, chinese in said]
    if call.num_nodes == 1:
        return {"lines": lines, "rows": []}
    claims: dict[int, Claim] = {c.node_rank: c for c in call.claims if c.refused is None}
    members = claims if call.partial else range(call.num_nodes)
    order = sorted(members, key=lambda n: (n in claims, n not in call.lost, -_arrival_s(claims.get(n))))
    shown = sorted(order[:MAX_ROWS])
    last_s = max([call.waited_s if absent(call) else 0.0, *(_arrival_s(c) for c in claims.values())])
    ticks, end_s = _ticks(last_s)
    late = late_by_s(call)

    def x(at_s: float) -> float:
        return round(LEFT + min(at_s, end_s) / end_s * (RIGHT - LEFT), 1)

    rows: list[dict[str, Any]] = []
    for node_rank in shown:
        claim = claims.get(node_rank)
        state = _state(node_rank, claim, call)
        rows.append(
            {
                "y": 14 + ROW_HEIGHT * len(rows),
                "x": x(_arrival_s(claim) if claim else call.waited_s),
                "css": " gone" if state != "here" else " late" if node_rank in late else "",
                "after": units.time(claim.arrival_s) if claim else "✗",
                "label": plain(report.world.label(node_rank), most=80),
                "short": shorten(plain(report.world.label(node_rank), most=80), 22),
                "address": plain(claim.address) if claim else "",
                "arrival": units.time(claim.arrival_s) if claim else units.UNKNOWN,
                "state": state,
                "state_css": "o-ok" if state == "here" else "o-bad",
                "why": "",
            }
        )
    refused = [_refused(c) for c in call.claims if c.refused is not None][:MAX_ROWS]
    return {
        "lines": lines,
        "title": t("roll_chart", language),
        "ticks": [{"at": x(s), "label": units.time(s)} for s in ticks],
        "height": 14 + ROW_HEIGHT * len(rows) + 14,
        "drawn": rows,
        "rows": rows + refused,
        "more": max(0, len(order) - MAX_ROWS),
    }


def _arrival_s(claim: Claim | None) -> float:
    if claim is None or not math.isfinite(claim.arrival_s):
        return 0.0
    return max(0.0, claim.arrival_s)


def _state(node_rank: int, claim: Claim | None, call: RollCall) -> str:
    if claim is None:
        return "missing"
    return "lost" if node_rank in call.lost else "here"


def _refused(claim: Claim) -> dict[str, Any]:
    return {
        "label": plain(f"{claim.node_rank} ({claim.name})", most=80),
        "address": plain(claim.address),
        "arrival": units.time(claim.arrival_s),
        "state": "refused",
        "state_css": "o-bad",
        "why": plain(claim.refused or "", most=80),
    }


def _ticks(last_s: float) -> tuple[list[float], float]:
    """Four to six round instants from 0, and the end of the axis."""
    if not math.isfinite(last_s) or last_s <= 0:
        return [0.0, 1.0], 1.0
    raw = last_s / 5
    base = 10.0 ** math.floor(math.log10(raw))
    step = next(f * base for f in (1, 2, 5, 10) if f * base >= raw * (1 - 1e-9))
    num = math.ceil(last_s / step - 1e-9)
    return [round(i * step, 9) for i in range(num + 1)], num * step
