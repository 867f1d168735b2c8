"""Whether a log's last line is whole, though it may have no newline: a program that was still writing had no end."""

from collections.abc import Sequence

from allready.patterns import compiled

_ENDS_A_LINE = (
    r"(?i)(?:\b(?:done|finished|completed?|success(?:fully)?)|"
    r"\.(?:csv|json|txt|md|html|pdf|png|pt|pth|pkl|npz|npy|ckpt|bin|safetensors|onnx|h5|log|parquet))[\s.!\W]{0,20}$"
)
_BRACKETS = ("(", ")"), ("[", "]"), ("{", "}")
_CLOSES = tuple(")]}")
_PROMPT = r"(?:[\w~)\]/:] ?[$#]|[A-Za-z~)\]/:] ?[>%]|^[$#>%]) ?$"
"""A shell's, behind a program that ended on a terminal; neither `97%` nor a bar of `=>` or `##`."""


def is_whole(lines: Sequence[str], tail: bytes) -> bool:
    """Whether the last line has an end: a newline, or else all that an earlier one of its kind has, the bracket that
    closes what it opened, a file's whole name, or the word that something is done; copies of logs lose newlines.

    `tail`: the log's last bytes.
    """
    last = lines[-1]
    if tail.endswith(b"\n") or compiled(_PROMPT).search(last) is not None:
        return True
    if not last or tail.endswith(b"\r"):
        return False
    if compiled(_ENDS_A_LINE).search(last) is not None:
        return True
    if last.endswith(_CLOSES) and all(last.count(a) == last.count(b) for a, b in _BRACKETS):
        return True
    form = without_numbers(last)
    return not last[-1].isalnum() and any(without_numbers(text) == form for text in lines[:-1])


def is_open(last: str, tail: bytes) -> bool:
    """Whether the last line itself shows that more was to come: a bar's state, a bracket that is not closed."""
    return tail.endswith(b"\r") or any(last.count(a) > last.count(b) for a, b in _BRACKETS)


def without_numbers(text: str) -> str:
    """The same for lines that differ in their numbers alone."""
    return compiled(r"\d+").sub("0", text)
