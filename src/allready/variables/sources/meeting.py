"""Where the ranks of a job meet, beside how many nodes its file asks for."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from msgspec import Struct

from allready.model.settings import MeetingPlan, Setting
from allready.patterns import compiled
from allready.variables.sources.loaders import MAX_PLANS
from allready.variables.sources.parsed import MAX_VALUE_CHARS

_NODES = (
    r"(?m)--(?:nnodes|num[_-](?:machines|nodes)|nodes)[= ][ \t]{0,9}[\"']?(?P<option>\d{1,5})(?::\d{1,5})?\b"
    r"|^#SBATCH[ \t]{1,20}(?:[^#\n]{0,200}[ \t])?(?:--nodes[= ]|-N[ \t]{0,9})(?P<batch>\d{1,5})(?:-\d{1,5})?\b"
    r"|\bsrun[ \t](?:[^#\n]{0,200}[ \t])?-N[ \t]{0,9}(?P<step>\d{1,5})\b"
    r"|^[ \t-]{0,40}[\"']?(?:num_machines|num_nodes|nnodes)[\"']?[ \t]{0,9}[:=][ \t]{0,9}[\"']?(?P<key>\d{1,5})\b"
    r"|--nnodes[= ][ \t]{0,9}[\"']?\$\{?(?P<name>\w{1,80})\}?"
)
_ADDRESS = (
    r"(?m)(?:--(?:master[_-]addr(?:ess)?|main[_-]process[_-]ip|rdzv[_-]endpoint)(?:[= ]|[\"']?,[ \t]{0,9})"
    r"|^[ \t-]{0,40}[\"']?(?:master_addr|rdzv_endpoint)[\"']?[ \t]{0,9}[:=])"
    r"[ \t]{0,9}[\"']?(?P<address>\$\{?\w{1,80}\}?|\[[0-9A-Fa-f:.]{2,50}\]|[\w.-]{1,253}|::1)(?::[\w${}]{1,90})?"
)
_PLACE = r"--(?:node|machine)[_-]rank[= ][ \t]{0,9}[\"']?(?:(?P<place>\d{1,5})\b|\$\{?(?P<name>\w{1,80}))"
_VARIABLE = "MASTER_ADDR"
_ONE_NODE = "--standalone"


class _Nodes(Struct, frozen=True):
    number: int
    line: int
    text: str


def meetings(source: str, text: str, settings: Sequence[Setting]) -> Iterator[MeetingPlan]:
    """Each address that the file names, with the fewest nodes that it asks for, if it asks for several throughout.

    settings: what the file assigns.  A file in which one command runs on one node says nothing of the others, and one
    that starts several nodes by itself has them all on one machine.  An address from elsewhere is None.
    """
    body = "\n".join(_without_comment(line) for line in text.split("\n"))
    breaks = [at for at, character in enumerate(body) if character == "\n"]
    asked = list(_asked(body, settings, breaks))
    if not asked or min(nodes.number for nodes in asked) < 2 or _ONE_NODE in body or _starts_several(body):
        return
    fewest = min(asked, key=lambda nodes: nodes.number)
    for address, line, shown in list(_named(body, settings, breaks))[:MAX_PLANS]:
        yield MeetingPlan(
            source=source,
            line=line,
            text=shown,
            address=address,
            nodes=fewest.number,
            nodes_line=fewest.line,
            nodes_text=fewest.text,
        )


def _starts_several(body: str) -> bool:
    """Whether the file starts more than one node: with their numbers, or in a loop over them."""
    places = [match.group("place", "name") for match in compiled(_PLACE).finditer(body)]
    names = {name for _, name in places if name}
    loops = set(re.findall(r"\bfor[ \t]{1,9}(\w{1,80})[ \t]{1,9}in\b", body)) if names else set()
    return len({place for place, _ in places if place}) > 1 or bool(names & loops)


def _without_comment(line: str) -> str:
    bare = line.lstrip()
    return "" if bare.startswith(("#", "//")) and not bare.startswith("#SBATCH") else line


def _asked(body: str, settings: Sequence[Setting], breaks: Sequence[int]) -> Iterator[_Nodes]:
    for match in compiled(_NODES).finditer(body):
        line, said = _line_of(breaks, match.start()), " ".join(match[0].split())
        if name := match["name"]:
            for setting in _of(name, settings):
                if setting.value and re.fullmatch(r"\d{1,5}", setting.value):
                    yield _Nodes(int(setting.value), setting.line or line, f"{name}={setting.value}")
        else:
            yield _Nodes(int(next(n for n in match.group("option", "batch", "step", "key") if n)), line, said)


def _named(body: str, settings: Sequence[Setting], breaks: Sequence[int]) -> Iterator[tuple[str | None, int, str]]:
    """Address, line and text of each; None where it is only known when the file runs."""
    for setting in _of(_VARIABLE, settings):
        yield setting.value, setting.line or 1, f"{_VARIABLE}={setting.value if setting.value is not None else '$...'}"
    for match in compiled(_ADDRESS).finditer(body):
        address, line = match["address"], _line_of(breaks, match.start())
        name = address.strip("${}")
        if not address.startswith("$"):
            yield address.strip("[]"), line, " ".join(match[0].split())[:MAX_VALUE_CHARS]
        elif name != _VARIABLE:
            for setting in _of(name, settings):
                yield setting.value, setting.line or line, f"{name}={setting.value}"


def _of(name: str, settings: Sequence[Setting]) -> list[Setting]:
    return [setting for setting in settings if setting.name == name]


def _line_of(breaks: Sequence[int], place: int) -> int:
    """The line of a match; one that begins with the end of a line is of the next."""
    return bisect_right(breaks, place) + 1
