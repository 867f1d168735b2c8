"""Evidence in a sentence of ours, which other languages can say; what was read is quoted as it stood there."""

from allready.model import Evidence
from allready.model.fill import UNKNOWN, fill


def stated(
    source: str, form: str, *, time: str | None = None, node_rank: int | None = None, **values: object
) -> Evidence:
    """Evidence that `form` says, a template as of a rule's message; a value that is None is not known.

    Every form has its Chinese in `text/zh_CN/rules/evidence.toml`, found by the English.
    """
    known = {name: UNKNOWN if value is None else str(value) for name, value in values.items()}
    return Evidence(source=source, text=fill(form, known), time=time, node_rank=node_rank, form=form, values=known)
