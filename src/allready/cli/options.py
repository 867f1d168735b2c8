"""Options that several commands share, and how their values are read: anything else is an ArgumentTypeError."""

import argparse
import re
import sys
from typing import Any

from allready.patterns import compiled
from allready.text.usage import usage_text

_SIZE = r"(?i)(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?"


def size_bytes(text: str) -> int:
    """`64M`, `1GiB`, `4096`: powers of 1024 as in nccl-tests."""
    match = compiled(_SIZE).fullmatch(text.strip())
    if not match:
        raise argparse.ArgumentTypeError(usage_text("{text!r} is not a size; write 4096, 64K, 16M or 1G", text=text))
    number, prefix, _ = match.groups()
    return int(float(number) * 1024 ** " kmgt".index(prefix.lower() or " "))


def port_range(text: str) -> tuple[int, int]:
    """`29500-29510` or one port."""
    match = re.fullmatch(r"(\d{1,5})(?:[-:](\d{1,5}))?", text.strip())
    low, high = (int(match.group(1)), int(match.group(2) or match.group(1))) if match else (0, 0)
    if not 1 <= low <= high <= 65535:
        raise argparse.ArgumentTypeError(usage_text("{text!r} is not a range of ports; write 29500-29510", text=text))
    return low, high


def positive_s(text: str) -> float:
    """Seconds, above zero."""
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = 0.0
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError(usage_text("{text!r} is not a positive number of seconds", text=text))
    return value


def count(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(usage_text("{text!r} is not a whole number from 1", text=text))
    return int(text)


def count_from_0(text: str) -> int:
    """A whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(usage_text("{text!r} is not a whole number from 0", text=text))
    return int(text)


def add_both_spellings(parser: Any, name: str, **kwargs: Any) -> None:
    """`--node-rank` and `--node_rank`, as torchrun takes them."""
    spellings = [f"--{name}"] + ([f"--{name.replace('-', '_')}"] if "-" in name else [])
    parser.add_argument(*spellings, **kwargs)


def add_language(parser: Any) -> None:
    """--lang."""
    parser.add_argument(
        "--lang", choices=("en", "zh"), help="language of the report and the messages (default: from the locale)"
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    """--json, --html, --lang, --report-dir, -v, -q."""
    group = parser.add_argument_group("results")
    group.add_argument("--json", metavar="FILE", help="write report.json to FILE (- for standard output)")
    group.add_argument("--html", metavar="FILE", help="write a self-contained HTML report to FILE")
    add_both_spellings(group, "report-dir", metavar="DIR", help="write report.json and report.html to DIR")
    add_language(group)
    group.add_argument("-v", "--verbose", action="count", default=0, help="show more evidence; twice: debug log")
    group.add_argument("-q", "--quiet", action="store_true", help="print only the verdict")


def configure_logging(verbose: int) -> None:
    """Our own log on standard error: warnings; with -vv everything."""
    import logging

    level = logging.DEBUG if verbose > 1 else logging.WARNING
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(name)s %(levelname)s %(message)s")


def count_gpus() -> int:
    """GPUs that a process of this node sees; 0 where none can be asked."""
    from allready.facts.gpu import count_visible
    from allready.facts.live import LiveHost

    return count_visible(LiveHost(), timeout_s=10.0)


def version(text: str) -> str:
    """A release, as in 2.15.0+cu130."""
    if not re.match(r"\d+\.\d+", text):
        raise argparse.ArgumentTypeError(usage_text("{text!r} is not a version; write for example 2.15.0", text=text))
    return text
