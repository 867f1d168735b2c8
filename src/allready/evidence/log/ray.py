"""The lines below Ray's word on a dead actor: its class, its process and its machine."""

from collections.abc import Sequence

from allready.evidence.log.line import Line
from allready.patterns import compiled

DIED = "launcher.ray_actor_died"

_MAX_BELOW = 8
_FIELD = r"\s{1,8}(class_name|actor_id|pid|namespace|ip|name|label): (\S.{0,200}?)\s*$"
_NAMES = {"class_name": "actor", "pid": "pid", "ip": "ip"}


def named_below(lines: Sequence[Line], at: int) -> dict[str, str]:
    """What stands there as `name: value`, indented, right below `lines[at]`."""
    found: dict[str, str] = {}
    opener = lines[at]
    for line in lines[at + 1 : at + 1 + _MAX_BELOW]:
        field = compiled(_FIELD).match(line.rest)
        if field is None or line.prefix.writer != opener.prefix.writer:
            break
        line.is_understood = True
        if field[1] in _NAMES:
            found[_NAMES[field[1]]] = field[2]
    return found
