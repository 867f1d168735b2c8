"""Sentences and phrases of ours, which other languages can say; what was read is quoted as it stood there.

Every form has its Chinese in `text/zh_CN/rules/evidence.toml`, found by the English.
"""

from allready.model import Evidence, Phrase
from allready.model.fill import fill, in_english, phrases_of
from allready.model.fill import said as said
from allready.text.ui import table

_MORE_DOING = {
    "gil": "holds the GIL",
    "joining": "builds its groups",
    "traced": "held by a tracer",
    "ended": "has ended",
    "file_lock": "waits for a file lock",
    "pipe_wait": "waits for a pipe",
    "store_key": "waits for a key of a store",
}
"""What the table of ranks has no words for: other columns say it, or only a system call shows it."""


def doing_words(activity: str) -> Phrase | str | None:
    """What a process does, as the table of ranks names it; how one ended stands as it is."""
    form = _MORE_DOING.get(activity, "")
    form = form or table("en", "run_summary").get(f"activity_{activity}", "")
    return said(form) if form else activity or None


def stated(
    source: str | Phrase, form: str, *, time: str | None = None, node_rank: int | None = None, **values: object
) -> Evidence:
    """Evidence that `form` says; a value may be a phrase, or several, as may the source."""
    return evidence_of(source, said(form, **values), time=time, node_rank=node_rank)


Text = str | Phrase | tuple[Phrase, ...]
"""Words as they were read, or a phrase of ours, or several."""


def evidence_of(source: str | Phrase, text: Text, *, time: str | None = None, node_rank: int | None = None) -> Evidence:
    """Evidence from a source that we name, or in phrases of ours; a text that is none stands as it was read."""
    if isinstance(text, tuple):
        text = said("{texts}", texts=text)
    form, values = (text.form, text.values) if isinstance(text, Phrase) else ("", {})
    known = {name: in_english(value) for name, value in values.items()}
    return Evidence(
        source=in_english(source),
        text=fill(form, known) if form else in_english(text),
        time=time,
        node_rank=node_rank,
        form=form,
        values=known,
        phrases=phrases_of({**values, "source": source}),
    )
