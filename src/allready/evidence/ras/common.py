"""What the three forms of an answer share: names of operations and results, hashes, times."""

from datetime import UTC, datetime, timedelta

from allready.evidence.operation_names import known_operation
from allready.evidence.untyped import as_int
from allready.patterns import compiled

RESULTS = {
    1: "unhandled cuda error",
    2: "unhandled system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote process exited or there was a network error",
    8: "timeout",
}
"""ncclResult_t: 0 is success, 7 is "in progress"."""

_RESULT_OF_TEXT = {
    "unhandled cuda error": 1,
    "system error": 2,
    "internal error": 3,
    "invalid argument": 4,
    "invalid usage": 5,
    "remote process error": 6,
}

MAX_RANKS = 1_000_000  # A rank or a size beyond is a broken number
VERSION = r"NCCL version \S{1,60} compiled with CUDA \S+"
_TIME = r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)"


def operation_name(name: str) -> str:
    """`all_reduce` for `AllReduce`; what is not known stays as it is."""
    return known_operation(name) or name[:40]


def error_text(number: int) -> str | None:
    """What an ncclResult_t says; None for success and "in progress"."""
    return None if number in (0, 7) else RESULTS.get(number, f"NCCL result {number}")


def error_of_text(text: str) -> str | None:
    """RAS's own word for a result in the words of NCCL."""
    number = _RESULT_OF_TEXT.get(text.strip().lower())
    return text.strip()[:200] or None if number is None else RESULTS[number]


def hash_name(text: str) -> str:
    """`0x14a3fe109bd176c` for every way a communicator's hash is written: the commId of NCCL's Init lines."""
    digits = text.strip().lower().removeprefix("0x").lstrip("0")
    return f"0x{digits or '0'}"


def parse_time(text: str) -> float | None:
    """`YYYY-MM-DD HH:MM:SS` as if it were UTC."""
    match = compiled(_TIME).search(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(g) for g in match.groups())
    if not (1970 <= year < 2200 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    moment = datetime(year, month, 1, hour, minute, tzinfo=UTC) + timedelta(days=day - 1, seconds=second)
    return moment.timestamp()


def as_rank(value: object) -> int | None:
    """A rank or size that can be one."""
    return as_int(value, 0, MAX_RANKS)


def as_pid(value: object) -> int | None:
    """A process number; RAS writes -1 where it has none."""
    return as_int(value, 1, (1 << 31) - 1)
