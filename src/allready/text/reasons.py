"""Why something was not checked, as a sentence in either language."""

from allready.model import FactMissing, NotChecked, Reason, SourceRecord, UncheckedKind
from allready.model.fill import in_english, phrases_of
from allready.text.catalog import joined_or, with_phrases
from allready.text.ui import ui


def reason(kind: UncheckedKind, **values: object) -> Reason:
    """A reason with the values that its sentence needs, see `UncheckedKind`."""
    return Reason(
        kind=kind, values={name: in_english(value) for name, value in values.items()}, phrases=phrases_of(values)
    )


def fact_missing(fact: FactMissing) -> Reason:
    """That a fact is not there, which says why."""
    return Reason(kind=UncheckedKind.FACT_MISSING, values={"why": fact.why}, phrases={"why": (fact.phrase,)})


def say_missing(fact: FactMissing, language: str) -> str:
    """Why a fact is not there; as it was written where `language` lacks that."""
    return joined_or(fact.why, (fact.phrase,), language)


def say_problems(source: SourceRecord, language: str) -> str:
    """Why a source could not be read, or only in part; empty where it was."""
    if source.problem is None or language == "en" or not source.problems:
        return source.problem or ""
    return joined_or(source.problem, source.problems, language)


def not_checked(code: str, why: Reason, *, node: int | None = None) -> NotChecked:
    """`code` (a rule's or a stage's) was not checked on `node`, or for the whole job."""
    text = ui(f"unchecked.{why.kind}", "en", **why.values)
    return NotChecked(code=code, node=node, why=text, kind=why.kind, values=why.values, phrases=why.phrases)


def say_reason(item: NotChecked, language: str) -> str:
    """The reason in `language`; as it was written where its values are not known, as in an older report."""
    if language == "en" or item.kind is UncheckedKind.UNSPECIFIED:
        return item.why
    try:
        return ui(f"unchecked.{item.kind}", language, **with_phrases(item, language))
    except KeyError:
        return item.why
