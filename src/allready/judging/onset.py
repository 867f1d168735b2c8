"""When a hang began: a watchdog speaks one time-out later."""

from allready.model import RunEvidence


def onset(run: RunEvidence) -> float | None:
    """The earliest moment at which somebody entered the operation that never completed, in seconds since 1970."""
    found = []
    for event in run.events:
        ran = event.values.get("ran_ms", "")
        if event.signature == "torch.watchdog_timeout" and event.time_s is not None and ran.isdecimal():
            found.append(event.time_s - int(ran) / 1000)
    if found:
        return min(found)
    created = [
        p.stuck.created_s
        for g in run.progress
        for p in g.positions.values()
        if p.stuck is not None and p.stuck.created_s is not None
    ]
    return min(created, default=None)
