r"""Tracebacks that a service put into one line: with `\n` for their newlines, or with blanks."""

from allready.patterns import compiled

_HEADER = "Traceback (most recent call last):"
_MAX_CHARS = 1 << 16
_NEWLINE = r"\\{1,4}n"
_QUOTE = r"\\{1,4}([\"'])"
_FRAME = r'File "[^"]{1,1000}", line \d{1,9}, in (?:<\w{1,40}>|\w{1,200})'
_BEGUN = r"\s{0,8}(?:\[\.\.\.\]\s{1,8})?File \""
_ERROR = (
    r"(?:^|(?<=\s))(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,80}"
    r"(?:Error|Exception|Interrupt|Exit|Iteration|Timeout|Failure|Died)(?=: |$)"
)
_CHAIN = r"(?:The above exception was the direct cause|During handling of the above) .{1,40}exception[^:]{0,20}:"
_HINT = r"(?s)\s*To find out more about why your job exited.*$"


def rows_of(text: str) -> list[str]:
    """The lines below the header; none where it is one as Python prints it."""
    begin = text.find(_HEADER)
    rest = text[begin + len(_HEADER) : begin + _MAX_CHARS]
    if begin < 0 or not rest.strip():
        return []
    rest = compiled(_HINT).sub("", rest)
    if compiled(_NEWLINE).match(rest.lstrip()) is not None:
        return compiled(_QUOTE).sub(r"\1", compiled(_NEWLINE).sub("\n", rest)).split("\n")[1:]
    return _parted(rest) if compiled(_BEGUN).match(rest) is not None else []


def _parted(text: str) -> list[str]:
    """A line for each frame, for the code below it and for the exception."""
    rows = list[str]()
    frames = list(compiled(_FRAME).finditer(text))
    for at, frame in enumerate(frames):
        end = frames[at + 1].start() if at + 1 < len(frames) else len(text)
        rows.append(f"  {frame[0]}")
        code = text[frame.end() : end].strip()
        chained = _HEADER in code
        error = compiled(_ERROR).search(code) if chained or at + 1 == len(frames) else None
        if error is None:
            rows.append(f"    {code}")
            continue
        said = code[error.start() :].partition(_HEADER)[0]
        chain = compiled(_CHAIN).search(said)
        rows += [f"    {code[: error.start()].strip()}", (said[: chain.start()] if chain else said).strip()]
        rows += ["", chain[0] if chain else "", "", _HEADER] if chained else []
    return rows
