"""A report in one line, for schedulers and monitoring; English, as logs are."""

from allready.judging.arbiter import is_error
from allready.model import Finding, Report, Severity
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
