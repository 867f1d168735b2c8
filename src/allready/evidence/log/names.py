"""What a file's name says of who wrote it.  Only a hint: what the lines say wins."""

import functools
import re

from msgspec import Struct

from allready.patterns import compiled

_RANK = r"(?<![a-z])(?:global[_\-.]?)?rank[_\-.=]?(\d{1,6})(?!\d)"
_LOCAL_RANK = r"(?<![a-z])local[_\-.]?rank[_\-.=]?(\d{1,4})(?!\d)"
_ATTEMPT = r"attempt_\d+/(\d{1,4})/(?:stdout|stderr|error)[^/]*$"
_AGENTS = r"(?P<folder>(?:.*/)?attempt_\d+)/(?P<local>\d{1,4})/(?:stdout|stderr|error)[^/]*$"
_NODE = (
    r"(?<![a-z])((?:[a-z0-9]+-)*(?:node|worker|master|launcher|host|server|gpu-node|pod|task)[_\-]?\d{1,6})(?![\da-z])"
)
_PID = r"(?<![a-z])pid[_\-.=]?(\d{1,9})(?!\d)"
_SUFFIX = r"\.(?:log|txt|out|err|gz|zst|xz|bz2|\d{1,2})$"
_NOT_HOSTS = (
    r"(?:nccl|rccl|debug|info|log|logs|file|warn|trace|subsys|output|out|err|stdout|stderr|rank\d*|node\d*|v\d.*|\d+)?$"
)


class Hints(Struct, frozen=True, kw_only=True):
    """Parts of a path that look like a rank, a node, a host or a process."""

    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    host: str | None = None
    pid: int | None = None


def place_of_agent(source: str) -> tuple[str, int] | None:
    """The folder that torchrun's agent of one node made for one attempt, and the local rank that wrote this file."""
    found = compiled(_AGENTS).match(_path(source))
    return None if found is None else (found["folder"], int(found["local"]))


def _path(source: str) -> str:
    return source.replace("!", "/").replace("\\", "/")


def hints(source: str) -> Hints:
    """`nccl.node0.vm.1130.log`, `rank_3/stderr.log`, `attempt_0/3/stdout.log`, `worker-1.txt`, ..."""
    parts = [part for part in _path(source).split("/") if part][-4:]
    if not parts or source == "-":
        return Hints()
    tail = "/".join(parts).lower()
    has_rank = "rank" in tail
    local = (compiled(_LOCAL_RANK).search(tail) if has_rank else None) or compiled(_ATTEMPT).search(tail)
    rank = next(
        (
            m
            for part in reversed(parts)
            if has_rank and (m := compiled(_RANK).search(compiled(_LOCAL_RANK).sub("", part.lower())))
        ),
        None,
    )
    # Folders are those of the file before.
    node = next((word for part in reversed(parts) if (word := _node(part)) is not None), None)
    name = parts[-1]
    while (match := compiled(_SUFFIX).search(name)) is not None:
        name = name[: match.start()]
    host, pid = _debug_file(name)
    pid_match = compiled(_PID).search(name.lower())
    return Hints(
        rank=None if rank is None else int(rank[1]),
        local_rank=None if local is None else int(local[1]),
        node=node,
        host=host,
        pid=int(pid_match[1]) if pid_match is not None else pid,
    )


@functools.lru_cache(maxsize=1024)
def _node(part: str) -> str | None:
    found = compiled(_NODE).search(part.lower())
    return None if found is None else found[1]


def _debug_file(name: str) -> tuple[str | None, int | None]:
    """NCCL_DEBUG_FILE's usual `nccl...%h.%p`: host and process."""
    if not name.lower().startswith(("nccl", "rccl")):
        return None, None
    match = re.match(r"(.+?)[._\-](\d{2,9})$", name)
    if match is None:
        return None, None
    words = [word for word in re.split(r"[._]", match[1]) if not compiled(_NOT_HOSTS).match(word.lower())]
    first = re.sub(r"^[nr]ccl[\-]?(?:debug|info|log)?-?", "", words[-1], flags=re.IGNORECASE) if words else ""
    return first or None, int(match[2])
