"""The roll call of the HTML report: who came when, as a drawing and as a table."""

import math
from typing import Any

from allready import units
from allready.model import Claim, Report
from allready.report.curve import round_ticks
from allready.report.safe import shorten
from allready.report.words import absent, late_by_s

MAX_ROWS = 32
LEFT, RIGHT = 160, 640
ROW_HEIGHT = 22


def roll(report: Report) -> dict[str, Any] | None:
    """What the template draws; None without a roll call.  At most `MAX_ROWS` nodes: absent, then late ones first."""
    call = report.roll
    if call is None:
        return None
    if call.num_nodes == 1:
        return {"rows": []}
    claims: dict[int, Claim] = {c.node_rank: c for c in call.claims if c.refused is None}
    members = claims if call.partial else range(call.num_nodes)
    order = sorted(members, key=lambda n: (n in claims, n not in call.lost, -_arrival_s(claims.get(n))))
    shown = sorted(order[:MAX_ROWS])
    last_s = max([call.waited_s if absent(call) else 0.0, *(_arrival_s(c) for c in claims.values())])
    ticks, end_s = round_ticks(last_s)
    late = late_by_s(call)

    def x(at_s: float) -> float:
        return round(LEFT + min(at_s, end_s) / end_s * (RIGHT - LEFT), 1)

    rows: list[dict[str, Any]] = []
    for node_rank in shown:
        claim = claims.get(node_rank)
        state = "missing" if claim is None else "lost" if node_rank in call.lost else "here"
        label = report.world.label(node_rank)
        rows.append(
            {
                "y": 14 + ROW_HEIGHT * len(rows),
                "x": x(_arrival_s(claim) if claim else call.waited_s),
                "css": " gone" if state != "here" else " late" if node_rank in late else "",
                "label": label,
                "short": shorten(label, 22),
                "claim": claim,
                "state": state,
            }
        )
    refused = [
        {"label": f"{c.node_rank} ({c.name})", "claim": c, "state": "refused"}
        for c in call.claims
        if c.refused is not None
    ]
    return {
        "ticks": [{"at": x(s), "label": units.time(s)} for s in ticks],
        "height": 14 + ROW_HEIGHT * len(rows) + 14,
        "drawn": rows,
        "rows": rows + refused[:MAX_ROWS],
        "more": max(0, len(order) - MAX_ROWS),
    }


def _arrival_s(claim: Claim | None) -> float:
    if claim is None or not math.isfinite(claim.arrival_s):
        return 0.0
    return max(0.0, claim.arrival_s)
