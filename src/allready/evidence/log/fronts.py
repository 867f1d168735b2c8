"""Takes off many lines what their logger put in front; `evidence.prefix` says what that means, and takes longer."""

import functools
import re

from allready.evidence import prefix_forms as forms
from allready.patterns import compiled

_GROUP = r"\(\?P<\w+>"


def _unnamed(form: str) -> str:
    """The form without the names of its groups, so that it may stand beside another."""
    return compiled(_GROUP).sub("(?:", form)


@functools.cache
def _front() -> re.Pattern[str]:
    date, time, logged, named, logging = map(
        _unnamed, (forms.DATE, forms.TIME, forms.LOGGED, forms.LOGGED_NAME, forms.LOGGING)
    )
    where = rf"(?:\[(?:[\w./-]{{1,80}}\.py(?::\d{{1,6}})?|line:\d{{1,6}}|{forms.LEVEL_NAME})\]\s{{0,2}}){{1,3}}"
    loguru = r"\s{0,4}\|?\s{0,2}[A-Za-z_][\w.]{0,120}:[\w<>.]{1,80}:\d{1,6} - "
    dated = rf"\[? ?(?:{date}|{time}) ?\]?(?:{where}|(?:{logged}|{named})(?:{loguru})?)?"
    return re.compile(rf"\s{{0,4}}(?:{dated}|{where}|{logging})\s{{0,8}}")


def without_front(text: str) -> str:
    """The line as the program wrote it, without its logger's time, level and place."""
    match = _front().match(text)
    return text if match is None else text[match.end() :]
