"""Why something was not checked, as a sentence in either language."""

from allready.model import NotChecked, Reason, UncheckedKind
from allready.text.ui import ui


def reason(kind: UncheckedKind, **values: object) -> Reason:
    """A reason with the values that its sentence needs, see `UncheckedKind`."""
    return Reason(kind=kind, values={name: str(value) for name, value in values.items()})


def not_checked(code: str, why: Reason, *, node: int | None = None) -> NotChecked:
    """`code` (a rule's or a stage's) was not checked on `node`, or for the whole job."""
    text = ui(f"unchecked.{why.kind}", "en", **why.values)
    return NotChecked(code=code, node=node, why=text, kind=why.kind, values=why.values)


def say_reason(item: NotChecked, language: str) -> str:
    """The reason in `language`; as it was written where its values are not known, as in an older report."""
    if language == "en" or item.kind is UncheckedKind.UNSPECIFIED:
        return item.why
    try:
        return ui(f"unchecked.{item.kind}", language, **item.values)
    except KeyError:
        return item.why
