"""VAR026."""

import re
from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Malformed, Settings, Severity, Slip
from allready.rules.variables._settings import at_line, line_remedy
from allready.rules.variables.name_misspelt import misspelt
from allready.variables import table

_NAME = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b")
_BLANKS = {Slip.BLANK_BEFORE_EQUALS, Slip.BLANK_AFTER_EQUALS}


@Rule(
    code="VAR026",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A line that assigns nothing, because of blanks around =",
    message="{text} sets no variable: there must be no blank around =",
    remedy=line_remedy("write {name}=VALUE without blanks around ="),
)
def line_assigns_nothing(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Lines like `export NCCL_DEBUG = INFO` or `NCCL_DEBUG= INFO` with a name that a library reads.
    ## Why it matters
    The shell takes the parts as separate words: the variable stays as it was, or becomes empty, and the script goes on
    after at most one message.
    ## Check by hand
    `bash -n` accepts the line; `bash -x SCRIPT` shows what it does.
    ## When it is harmless
    In a file that no shell reads, with a reader that allows blanks.
    """
    for line in settings.malformed:
        name = _name(line)
        if line.slip in _BLANKS and name is not None:
            yield at_line(line.source, line.line, name, text=repr(line.text[:80]))


def _name(line: Malformed) -> str | None:
    """The variable that the line is about, if a library reads it."""
    for word in _NAME.findall(line.text):
        if word in table.load() or misspelt(word) is not None:
            return str(word)
    return None
