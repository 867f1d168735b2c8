"""What a source is, from its first bytes; names are not asked, they lie.

A log may contain anything: a stack, a table of nccl-tests, a RAS answer.  So another kind than "log" is given only to
what is nothing else from its first line on.
"""

import ast
import re
import warnings

from allready.patterns import compiled_bytes

HEAD_BYTES = 1 << 16

LOG, FLIGHT, RAS, STACKS, NCCL_TESTS, INSPECTOR = "log", "flight recorder", "ras", "stacks", "nccl-tests", "inspector"
REPORT, PAGE, SCRIPT, BINARY, EMPTY, ELASTIC_ERROR = "report", "page", "script", "binary", "empty", "elastic error"
NODE_STATUS, ATTEMPTS, RECORD, EVENT_LOG = "node status", "attempts", "record", "event log"

READ = (LOG, FLIGHT, RAS, STACKS, NCCL_TESTS, INSPECTOR, REPORT, ELASTIC_ERROR, NODE_STATUS, ATTEMPTS, EVENT_LOG)
"""Kinds that have a reader."""
PASSED_OVER = (PAGE, SCRIPT, BINARY, EMPTY, RECORD)

_BINARY_MAGICS = (
    b"\x7fELF", b"\x89PNG", b"%PDF-", b"SQLite format 3\0", b"\x93NUMPY", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"OggS",
    b"\x00\x00\x00\x18ftyp", b"\x1a\x45\xdf\xa3", b"PK\x03\x04", b"PK\x05\x06", b"\xca\xfe\xba\xbe", b"!<arch>\n",
    b"LPKSHHRH", b"GGUF", b"PAR1", b"ARROW1", b"\x89HDF", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b"\xfe\xff",
)  # fmt: skip

_SOCKETS_START = b'{"node_rank": '
"""Of `sockets.json`, which a run writes for people and programs: the report has what it tells."""
_ATTEMPTS_START = b'{"attempt":'

_NOT_TEXT = bytes(c for c in range(1, 32) if c not in b"\a\b\t\n\v\f\r\x1b") + b"\x7f"
_MAX_NOT_TEXT = 0.05
"""Share of control characters that a log does not have; random bytes have 0.10."""

_TABLE_STARTS = (
    b"# Collective test starting",
    b"# nccl-tests version",
    b"# rccl-tests",
    b"# nThread ",
    b"# Using devices",
)
_RAS_MARKS = (b"NCCL version", b"SERVER PROTOCOL", b"PEER_", b'"nccl_version"', b'"communicators')
_STACK_MARKS = (b"(most recent call first)", b"Thread ", b"Process ", b"#0 ", b"[<0>]")
_MARKS = ((INSPECTOR, (b"nccl_",), 4096), (RAS, _RAS_MARKS, HEAD_BYTES), (STACKS, _STACK_MARKS, HEAD_BYTES))
"""Kinds of text, what is cheap to ask first, and where."""

_LOG_LINE = rb" NCCL (?:INFO|WARN|CALL|TRACE) |\[rank\d+\]:|\[default\d+\]:"
_ERROR_FILE = rb'\s*\{\s*"message"\s*:\s*[{"]'

_RECORD = rb'\{\s*"schema"\s*:\s*"allready\.'
"""Facts, the manifest of a bundle, and other files of allready that tell nothing of a run."""

_COMMENTS = rb"(?:[ \t]*(?:#[^\n]*)?\n)*"
_STATEMENT = rb"import [\w.]|from [\w.]+ import\b|(?:async )?def \w+\(|class \w+ ?[:(]|@\w|if __name__ ?=="
"""What only a program begins with, after comments and a docstring."""

_TOP_LEVEL = rb"(?m)^(?:import|from|def|class|async def|@|if|for|try|with|\w+ ?=) ?"
_PROGRAM_BYTES = 8192
_MAX_CUTS = 20
TAIL_BYTES = 4096
_LAST_LINES, _FEW_LINES = 20, 4
_MARK = (
    rb"(?i)\W{0,4}(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[^'\"]{0,40}\b(?:DEBUG|INFO|WARNING|ERROR)\b|"
    rb"(?:step|iter|iteration|epoch)s?\W{0,3}\d{1,9}(?:/\d{1,9})?\b[^'\"(=]{0,60}?\b\w{0,20}(?:loss|time|lr)\w{0,20}\s?[:=]\s?\d)"
)
"""A time with a level, or a step with what was measured."""
_STATEMENTS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def kind_of(head: bytes, *, name: str = "") -> str:
    """The kind of a source that begins with `head` (up to 64 KiB).  `name` changes nothing.

    "log" is what remains when it is text and nothing special.
    """
    del name
    if not head.strip(b"\0\r\n\t "):
        return BINARY if b"\0" in head else EMPTY
    is_pickle = head[:1] == b"\x80" and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}
    if is_pickle or is_binary(head):  # pickles of protocol 0 and 1 have no mark
        return FLIGHT if _is(FLIGHT, head) else BINARY
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\0\r\n\t ")
    if text.startswith((b"{", b"[{", b"[\n", b"[ ")):
        return _kind_of_json(text)
    if text[:15].lower() == b"<!doctype html>" or text[:6].lower() == b"<html>":
        return PAGE
    if text.startswith(b"#!") or _is_python(text, is_whole=len(head) < HEAD_BYTES):
        return SCRIPT
    if text.startswith(_TABLE_STARTS):
        return NCCL_TESTS
    if compiled_bytes(_LOG_LINE).search(text):
        return LOG
    for kind, marks, most in _MARKS:
        begin = text[:most]
        if any(mark in begin for mark in marks) and _is(kind, text):
            return kind
    return LOG


def _is(kind: str, text: bytes) -> bool:
    """Asks the reader of a kind, which is imported for that."""
    if kind == INSPECTOR:
        from allready.evidence.inspector import is_inspector as is_it
    elif kind == RAS:
        from allready.evidence.ras import is_ras as is_it
    elif kind == NODE_STATUS:
        from allready.evidence.node_status import is_node_status as is_it
    elif kind == EVENT_LOG:
        from allready.evidence.event_log import is_event_log as is_it
    elif kind == STACKS:
        from allready.evidence.stacks.read import is_stacks as is_it
    else:
        from allready.evidence.flight.reader import is_dump as is_it
    return is_it(text)


def _is_python(text: bytes, *, is_whole: bool) -> bool:
    """Whether it is source code of Python, which often lies beside a run's logs and quotes their errors.

    It begins like a program, and all of it is one (of a long one: its first kilobytes).  So a program with what it
    printed below, as people paste them, is a log.
    """
    if not _begins_like_python(text):
        return False
    ends = [len(text)]
    if not is_whole:
        cuts = [match.start() for match in compiled_bytes(_TOP_LEVEL).finditer(text, 0, _PROGRAM_BYTES)]
        ends = [*cuts[: -_MAX_CUTS - 1 : -1], *cuts[1:_MAX_CUTS]]  # the last ones may stand inside a text
    for end in ends:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text[:end])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if any(isinstance(node, _STATEMENTS) for node in tree.body):
            return True
    return False


def is_output(tail: bytes) -> bool:
    """Whether a file that begins like a program ends with what one printed: lines with marks of a log."""
    lines = [line for line in tail.partition(b"\n")[2].splitlines() if line.strip()][-_LAST_LINES:]
    return 2 * sum(compiled_bytes(_MARK).match(line) is not None for line in lines) > len(lines) > _FEW_LINES


def _begins_like_python(text: bytes) -> bool:
    text = text[compiled_bytes(_COMMENTS).match(text).end() :]  # type: ignore[union-attr]
    quote = next((q for q in (b'"""', b"'''") if text.startswith(q)), None)
    if quote is not None:
        end = text.find(quote, 3) + 3
        text = text[end:] if end >= 6 else b""
        text = text[compiled_bytes(_COMMENTS).match(text).end() :]  # type: ignore[union-attr]
    return compiled_bytes(_STATEMENT).match(text) is not None


def is_binary(head: bytes) -> bool:
    """No text in any encoding that logs have.

    NUL bytes alone do not make a log binary: one that was cut while it was written begins with many.
    """
    if head.startswith(_BINARY_MAGICS) or _is_safetensors(head):
        return True
    num_meant = len(head) - (head.count(0) if 0 in head else 0)  # a search is faster than a count
    if not num_meant:
        return True
    if any(byte in head for byte in _NOT_TEXT):  # most logs have none, which is found faster than how many
        num_wrong = num_meant - len(head.translate(None, _NOT_TEXT + b"\0"))
        if num_wrong > _MAX_NOT_TEXT * num_meant:
            return True
    # Sparse bytes between many zeros: numbers, a core dump.  A log with holes has whole lines between them.
    return num_meant < len(head) // 2 and not _has_words(head)


def _has_words(head: bytes) -> bool:
    return re.search(rb"[\t\x20-\x7e\x80-\xff]{20}", head) is not None and b"\n" in head


def _is_safetensors(head: bytes) -> bool:
    return len(head) > 10 and head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 32


def _kind_of_json(text: bytes) -> str:
    start = text[:4096]
    if b'"allready.report/' in start and b'"schema"' in start:
        return REPORT
    if compiled_bytes(_RECORD).match(start):
        return RECORD
    if start.startswith(b'{"event":"begin"') and _is(EVENT_LOG, text):
        return EVENT_LOG
    if b'"process_state"' in text and _is(NODE_STATUS, text):
        return NODE_STATUS
    if start.startswith(_SOCKETS_START) and b'"sockets": [' in text:
        return RECORD
    if start.startswith(_ATTEMPTS_START) and b'"outcome":' in start:
        return ATTEMPTS
    is_perf = b'"coll_perf"' in text or b'"p2p_perf"' in text or (b'"header"' in start and b'"n_ranks"' in start)
    if is_perf and _is(INSPECTOR, text):
        return INSPECTOR
    if (b'"communicators"' in text or b'"PEER_' in text or b'"nccl_version"' in start) and _is(RAS, text):
        return RAS
    if b'"entries"' in text or b'"pg_config"' in text or b'"pg_status"' in text:
        return FLIGHT if _is(FLIGHT, text) else LOG
    if compiled_bytes(_ERROR_FILE).match(start) and any(
        key in text for key in (b'"extraInfo"', b'"errorCode"', b'"timestamp"')
    ):
        return ELASTIC_ERROR
    return STACKS if b'"frames"' in text and _is(STACKS, text) else LOG
