"""A report for schedulers and monitoring, in one line or in their forms; English, as logs are."""

from datetime import UTC, datetime, timedelta
from typing import Any

from allready.judging.arbiter import is_error
from allready.model import Finding, Report, Severity, Status
from allready.report.safe import plain

MAX_CHARS = 240
"""Schedulers keep about this much of a reason."""


def line_of(report: Report) -> str:
    """The worst finding, and how many there are besides; else that it is healthy, or why that is not known."""
    worst = _worst(report)
    if worst:
        more = f" (+{len(worst) - 1} more)" if len(worst) > 1 else ""
        return plain(f"{worst[0].code} {worst[0].message}", most=MAX_CHARS - len(more)) + more
    if report.status == "healthy":
        return "healthy"
    why = "; ".join(dict.fromkeys(item.why for item in report.not_checked))
    return plain(f"{report.status}: {why}", most=MAX_CHARS)


def _worst(report: Report) -> list[Finding]:
    """Errors, or where there are none the warnings, the deepest cause first."""
    errors = [finding for finding in report.findings if is_error(finding)]
    return errors or [finding for finding in report.findings if finding.severity is Severity.WARNING]


def nagios(report: Report) -> tuple[str, int]:
    """The line and the exit code of a plugin of Nagios: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""
    errors = sum(map(is_error, report.findings))
    warnings = sum(finding.severity is Severity.WARNING for finding in report.findings)
    code = 2 if errors else 1 if warnings else 0 if report.status == "healthy" else 3
    word = ("OK", "WARNING", "CRITICAL", "UNKNOWN")[code]
    # A bar begins the figures, so there is none in the text.
    return f"ALLREADY {word} - {line_of(report).replace('|', '/')} | errors={errors} warnings={warnings}", code


CONDITION = "AllreadyFault"


def node_condition(report: Report) -> dict[str, Any]:
    """A patch of a node's status in Kubernetes, with a condition that is "True" where there is a fault."""
    worst = [finding for finding in report.findings if is_error(finding)]
    status = {Status.FAULT: "True", Status.HEALTHY: "False"}.get(report.status, "Unknown")
    reason = worst[0].code if worst else {"False": "NoFault", "Unknown": "NotChecked"}.get(status, "Fault")
    now = _ends(report).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": CONDITION, "status": status, "reason": reason, "message": line_of(report)}
    return {"status": {"conditions": [{**condition, "lastHeartbeatTime": now, "lastTransitionTime": now}]}}


def ctrf(report: Report) -> dict[str, Any]:
    """The report in the Common Test Report Format: a test for each finding, for what was not checked, for the whole."""
    stop_ms = round(_ends(report).timestamp() * 1000)
    duration_ms = round(report.duration_s * 1000)
    of_machine = {Status.HEALTHY: "passed", Status.FAULT: "failed"}.get(report.status, "other")
    tests = [_test(f"allready {report.command}", of_machine, line_of(report), duration_ms)]
    for finding in report.findings:
        status = "failed" if is_error(finding) else "other" if finding.severity is Severity.WARNING else "passed"
        name = f"{finding.code} {finding.title}".strip()
        tests.append({**_test(name, status, plain(finding.message, most=2000)), "tags": [finding.code]})
    tests += [
        {**_test(f"{item.code} not checked", "skipped", plain(item.why, most=2000)), "tags": [item.code]}
        for item in report.not_checked
    ]
    counts = {name: sum(test["status"] == name for test in tests) for name in ("passed", "failed", "skipped", "other")}
    summary = {"tests": len(tests), **counts, "pending": 0, "start": stop_ms - duration_ms, "stop": stop_ms}
    tool = {"name": "allready", "version": report.tool_version}
    return {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "results": {"tool": tool, "summary": summary, "tests": tests},
    }


def _test(name: str, status: str, message: str, duration_ms: int = 0) -> dict[str, Any]:
    return {"name": name, "status": status, "duration": duration_ms, "message": message}


def _ends(report: Report) -> datetime:
    """When the report was made, in UTC."""
    return datetime.fromisoformat(report.started).astimezone(UTC) + timedelta(seconds=report.duration_s)
