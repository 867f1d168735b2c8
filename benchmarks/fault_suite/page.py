"""The scoreboard as Markdown: docs/scoreboard.md and docs/zh/scoreboard.md; nothing in them is typed by hand."""

from collections.abc import Sequence
from pathlib import Path

from fault_suite.board import Scoreboard, Summary, by_row, load, merged, summarize
from fault_suite.labels import label
from fault_suite.result import Result
from fault_suite.rows import ROWS

LANGUAGES = {"en": "scoreboard.md", "zh": "zh/scoreboard.md"}


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.1f} %"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def timeout_words(result: Result, language: str) -> str:
    """The framework's own time-out, in words."""
    if result.control:
        return ""
    if result.default_timeout_s is None:
        return label("never", language)
    return f"{result.default_timeout_s:.0f} s"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def summary_rows(summary: Summary, language: str) -> list[tuple[str, str]]:
    """Name and value of everything in the summary."""
    return [
        (label("faults_played", language), str(summary.num_faults)),
        (label("detected", language), _share(summary.detected_share)),
        (label("class_right", language), _share(summary.class_share)),
        (label("culprit_right", language), _share(summary.culprit_share)),
        (label("innocents", language), str(summary.num_innocents_blamed)),
        (label("median_p90", language), f"{_seconds(summary.median_s)} / {_seconds(summary.p90_s)}"),
        (label("controls_played", language), str(summary.num_controls)),
        (label("false_alarms", language), str(summary.num_false_alarms)),
        (label("not_played", language), str(summary.num_not_played)),
    ]


def page(board: Scoreboard, language: str) -> str:
    """The whole page."""

    def say(name: str, **values: object) -> str:
        return label(name, language, **values)

    parts = [
        f"# {say('page_title')}\n",
        say("page_about") + "\n",
        say(
            "page_made",
            made=board.made[:10],
            num_cpus=board.num_cpus,
            seeds=_seeds(board),
            versions=", ".join(f"{k} {v}" for k, v in board.versions.items()),
        )
        + "\n",
        *_summary(board, language),
        f"## {say('page_rows')}\n",
        _table(
            (
                say("row"),
                say("fault"),
                say("right"),
                say("class_right"),
                say("culprit_right"),
                say("time"),
                say("default"),
            ),
            [_row(results, language) for results in by_row(board.results).values()],
        ),
    ]
    misses = [r for r in board.results if not r.passed]
    parts.append(f"## {say('page_misses')}\n")
    if misses:
        head = (say("row"), say("seed"), say("outcome"), say("truth"), say("said"))
        parts.append(_table(head, [_miss(result, language) for result in misses]))
    else:
        parts.append(say("no_misses") + "\n")
    if board.not_shown:
        parts.append(f"## {say('page_not_shown')}\n")
        parts.append(_table((say("row"), say("fault"), say("why")), [(n.row, n.title, n.why) for n in board.not_shown]))
    other = "zh/scoreboard.md" if language == "en" else "../scoreboard.md"
    parts.append(f"[{'中文' if language == 'en' else 'English'}]({other})\n")
    return "\n".join(parts)


def _seeds(board: Scoreboard) -> str:
    """`5`, or `1-5` where some rows were played more often."""
    counts = sorted(len(results) for results in by_row(board.results).values())
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]}-{counts[-1]}"


def _summary(board: Scoreboard, language: str) -> list[str]:
    """Of everything, and beside it of the core where more was played."""
    everything = summary_rows(board.summary, language)
    core_ids = {row.id for row in ROWS.values() if row.core}
    core = [result for result in board.results if result.row in core_ids]
    heading = label("summary", language)
    if len(core) in {0, len(board.results)}:
        return [_table((heading, ""), everything)]
    of_core = summary_rows(summarize(core), language)
    head = (heading, label("core_rows", language), label("all_rows", language))
    rows = [(name, own, whole) for (name, own), (_, whole) in zip(of_core, everything, strict=True)]
    return [_table(head, rows)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _row(results: Sequence[Result], language: str) -> tuple[str, ...]:
    first, played = results[0], [r for r in results if r.outcome != "not played"]
    right = sum(r.passed for r in played)
    times = sorted(r.culprit_s for r in played if r.culprit_s is not None)
    if first.control:
        return (first.row, first.title, f"{right}/{len(played)}", "", "", "", "")
    return (
        first.row,
        first.title,
        f"{right}/{len(played)}",
        f"{sum(r.class_right for r in played)}/{len(played)}",
        f"{sum(r.culprit_right for r in played)}/{len(played)}",
        f"{_seconds(times[len(times) // 2])} / {_seconds(times[-1])}" if times else "-",
        timeout_words(first, language),
    )


def _miss(result: Result, language: str) -> tuple[str, ...]:
    truth = ", ".join(part for part in (result.victim, result.dose) if part)
    named = ", ".join(f"{key} {list(value)}" for key, value in result.culprits.items())
    said = f"{result.status} {result.code} {result.fault_class} {named}".strip()
    if result.blamed_innocents:
        said += f"; {label('innocents', language)}: {', '.join(result.blamed_innocents)}"
    outcome = label(f"is_{result.outcome.replace(' ', '_')}", language)
    return (result.row, str(result.seed), outcome, truth, result.problem or said)


def publish(saved: Sequence[Path], docs: Path) -> None:
    """Write both pages below `docs` from saved scoreboards."""
    board = merged([load(path) for path in saved])
    for language, name in LANGUAGES.items():
        (docs / name).write_text(page(board, language), encoding="utf-8")
