"""What became of a rank, and how far it came, as a sentence in either language."""

from collections.abc import Iterable

from allready.model import GroupPosition, Happening, RunEvent
from allready.text.catalog import label_of
from allready.text.ui import ui


def say_event(event: RunEvent, language: str, *, of_group: bool = False) -> str:
    """What happened; what a log or a program wrote stays as it stood there.

    of_group: where a rank waits, name the group as well, as an entry of the timeline does.
    """
    match event.kind:
        case Happening.ENDED_WELL:
            return _t("ended_well", language)
        case Happening.WAITS:
            return _t("enters" if of_group else "waits_in", language, operation=_named(event), group=event.group)
        case Happening.INITIALISED:
            return _t("init_of", language, group=event.group)
        case Happening.LOGGED:
            return event.text
        case Happening.DIED:
            how = label_of("how", event.text, language) or event.signal or ""
            if not how and event.exit_code is not None:
                how = _t("exit_code", language, number=event.exit_code)
            return _t("by_launcher", language, how=how) if event.by_launcher else how


def say_position(position: GroupPosition, language: str) -> str:
    """`65 enqueued, 63 completed, waits in all_reduce #64`, or why nothing is known."""
    if position.absent is not None:
        return _t(f"absent_{position.absent.name.lower()}", language)
    parts = [_t("enqueued", language, number=position.enqueued)]
    if position.completed is not None:
        parts.append(_t("completed", language, number=position.completed))
    if position.waits is not None:
        parts.append(say_event(position.waits, language))
    parts += [label_of("how", position.error, language)] if position.error else []
    return _t("clause", language).join(parts)


def say_positions(positions: Iterable[GroupPosition], language: str) -> dict[str, str]:
    """The same of several groups, by their names and the kinds of evidence."""
    return {position.called: say_position(position, language) for position in positions}


def _named(event: RunEvent) -> str:
    return event.operation if event.seq is None else f"{event.operation} #{event.seq}".lstrip()


def _t(name: str, language: str, **values: object) -> str:
    return ui(f"run_summary.{name}", language, **values)
