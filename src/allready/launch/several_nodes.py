"""Variables from which it follows that a process is one of several nodes, whatever set them.

No launcher is known here: a count above 1, a place above 0 or a list of several hosts is enough to ask.  Names that
have another meaning as well (RANK of a matrix, SIZE of a page) are enough only beside another sign of a launcher, and
else a doubt.  What is found never becomes part of a layout.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from allready.errors import UsageError
from allready.launch.host_lists import hosts_in, read_host_file
from allready.patterns import compiled

_COUNT = (
    r"(?:^|_)(?:N_?NODES|NUM_?NODES|NODES_NUM|NODES?_COUNT|N_?HOSTS|NUM_?HOSTS|HOSTS?_(?:COUNT|NUM)|NUM_MACHINES|"
    r"MACHINE_COUNT|WORKER_NUM|INSTANCE_COUNT|REPLICA_COUNT|WORLD_SIZE)$"
    # processes of a launcher, of which this is one
    r"|^(?:PMIX?|JSM_NAMESPACE|HOROVOD|CROSS|FLUX_JOB)_SIZE$|^_?(?:CONDOR|MPIRUN)_NPROCS$"
    r"|^PADDLE_TRAINERS_NUM$|^DMLC_NUM_WORKER$|^PJM_NODE$|^LWS_GROUP_SIZE$"
)
_PLACE = (
    r"(?:^|_)(?:NODE_RANK|NODE_INDEX|NODE_?ID|(?:HOST|MACHINE)_(?:RANK|INDEX)|REPLICA_RANK|WORKER_INDEX|ALLOC_INDEX|"
    r"GROUP_RANK)$"
)
_RANK = r"^(?:PMIX?_|MPI_|OMPI_COMM_WORLD_|MV2_COMM_WORLD_|JSM_NAMESPACE_|HOROVOD_|ALPS_APP_)(?:RANK|PE)$"
"""The number of a process of the job, as launchers of processes name it where they give no number of them."""
_BARE = r"^(?:RANK|PE)$"
_MEMBER = r"(?:^|_)(?:RANK|RANK_?ID|PROC_?(?:ID|NO|INDEX)|PROCESS_?(?:ID|INDEX|RANK)|TASK_?RANK)$"
_MEMBERS = (
    r"(?:^|_)(?:SIZE|TOTAL|N_?PROCS|N_?RANKS|N_?TASKS|(?:NUM|TOTAL)_?(?:PROCS|PROCESSES|RANKS|TASKS)|"
    r"(?:PROC|PROCESS|RANK|TASK)_?COUNT)$"
)
"""The number of one process and of all: each alone may mean anything, both of one family are a launcher's."""
_MACHINE = r"(?:NODE|HOST|MACHINE|WORKER|REPLICA|INSTANCE|CONTAINER|POD|PEER|MEMBER)"
_ONE_MACHINE = rf"(?:^|_){_MACHINE}_?(?:RANK|ID|INDEX|NUMBER)$"
_ALL_MACHINES = (
    rf"(?:^|_)(?:(?:(?:N|NUM|TOTAL)_?)?{_MACHINE}S|{_MACHINE}_?(?:COUNT|NUM|TOTAL)|(?:CLUSTER|GANG|GROUP)_SIZE)$"
)
"""The same of machines; all of them may be a number, or a list of their names."""
_THING = (
    r"(?:^|_)(?:MATRIX|LOW|LORA|ADAPTER|SVD|PCA|EMBED|EMBEDDING|KERNEL|LAYER|POOL|PAGE|CACHE|BUFFER|QUEUE|BATCH|BLOCK|"
    r"CHUNK|WINDOW|VOCAB|HIDDEN|FILE|SEARCH|MIN|MAX|TOP|DEFAULT)_(?:SIZE|TOTAL)$"
)
"""Sizes of what is ranked, or has a rank, outside of jobs as well."""
_SIGN = (
    r"^(?:LOCAL_(?:RANK|SIZE|WORLD_SIZE|ID|PROC_?ID)|(?:MASTER|COORDINATOR)_(?:ADDR|ADDRESS|HOST|IP|PORT)|WORLD_SIZE|"
    r"NODE_RANK|PMIX_NAMESPACE|PMI_(?:FD|PORT))$"
)
"""What else a launcher sets, under names without a prefix."""
_OWN_SIGN = r"^(?:LOCAL|NODE)|(?:^|_)(?:ADDR|ADDRESS|HOSTS?|IP|PORT|MASTER|COORDINATOR|NAMESPACE)(?:$|_)"
"""The same behind the prefix of a family."""
_LIST = (
    r"(?:^|_)(?:NODES?_?LIST|HOSTS?_?LIST|NODES?_IPS?(?:_LIST)?|WORKER_HOSTS|WORKER_HOSTNAMES|CONTAINER_ADDRS)$|"
    r"^SM_HOSTS$"
)
_FILE = r"(?i)(?:^|_)(?:NODES?|HOSTS?|MACHINES?|RANK)_?FILE$"
"""Parameters of Open MPI have names in small letters."""
_CLUSTER = r"^(?:TF_CONFIG|CLUSTER_SPEC)$"
_OF_PART = r"(?:^|_)(?:LOCAL|ROLE|TENSOR|PIPELINE|MODEL|DATA|EXPERT|CONTEXT|SEQUENCE|PARALLEL|TP|PP|DP|EP|CP|MP|SP)_"
"""Sizes of something smaller than the job."""
_TESTS = r"^(?:CI|CIRCLE)_NODE_"
"""Which part of a test suite this machine has; it meets no other."""
_SHOWN = 60
_MAX_NODES = 4000
"""A larger number is of processes, or of something else, and is never proposed as that of nodes."""


class SeveralNodes(Struct, frozen=True, kw_only=True):
    """The variable, its value shortened, and the number of nodes or processes, 0 where only a place is known.

    `is_doubtful`: the name has another meaning as well, and nothing else speaks for a launcher.
    """

    name: str
    value: str
    count: int
    is_doubtful: bool = False


def several_nodes(environ: Mapping[str, str], read: Callable[[str], str] = read_host_file) -> SeveralNodes | None:
    """The variable that speaks for several nodes, the surest first; None where none does."""
    kinds = (
        (compiled(_COUNT), _count),
        (compiled(_LIST), _words),
        (compiled(_FILE), _lines),
        (compiled(_CLUSTER), _processes),
        (compiled(_PLACE), _place),
        (compiled(_RANK), _place),
    )
    names = [
        name for name in sorted(environ) if not compiled(_OF_PART).search(name) and not compiled(_TESTS).search(name)
    ]
    for pattern, count_of in kinds:
        for name in names:
            count = count_of(environ[name].strip(), read) if pattern.search(name) else None
            if count is not None:
                return _found(environ, name, count)
    found = [*_one_of_many(names, environ, read), *_numbered(names, environ, read)]
    return min(found, key=lambda one: one.is_doubtful, default=None)


def _one_of_many(
    names: Sequence[str], environ: Mapping[str, str], read: Callable[[str], str]
) -> Iterator[SeveralNodes]:
    """What a launcher has numbered, `X_RANK` beside `X_NUM_PROCS` or `X_NODE_ID` beside `X_NODES`, whatever X is.

    Such numbers begin at 0, or at 1, which is in doubt; a larger one counts something else.
    """
    for one, all_of_them in ((_MEMBER, _MEMBERS), (_ONE_MACHINE, _ALL_MACHINES)):
        members: dict[str, int] = {}
        for name in names:
            family, number = _family(compiled(one), name), _number(environ[name].strip())
            if family is not None and number is not None:
                members[family] = min(number, members.get(family, number))
        for name in names:
            family = _family(compiled(all_of_them), name)
            if family not in members:
                continue
            text = environ[name].strip()
            count = _count(text, read) or (_words(text, read) if all_of_them == _ALL_MACHINES else None)
            if count is None or members[family] > count:
                continue
            is_sure = members[family] < count and bool(family) and not compiled(_THING).search(name)
            yield _found(environ, name, count, is_doubtful=not is_sure and not _has_sign(environ, family))


def _numbered(names: Sequence[str], environ: Mapping[str, str], read: Callable[[str], str]) -> Iterator[SeveralNodes]:
    """`RANK` or `PE` above 0, which may be a matrix' as well."""
    for name in names:
        if compiled(_BARE).search(name) and _place(environ[name].strip(), read) is not None:
            yield _found(environ, name, 0, is_doubtful=not _has_sign(environ, ""))


def _has_sign(environ: Mapping[str, str], family: str) -> bool:
    """Whether a launcher has set more than the numbers of this family."""
    own = (name.removeprefix(family) for name in environ if family and name.startswith(family))
    return any(compiled(_SIGN).search(name) for name in environ) or any(
        compiled(_OWN_SIGN).search(name) for name in own
    )


def _family(pattern: re.Pattern[str], name: str) -> str | None:
    """What stands before the word that says what the variable holds, with the `_` behind it."""
    match = pattern.search(name)
    return None if match is None else name[: match.start()] + "_" if match[0].startswith("_") else ""


def _found(environ: Mapping[str, str], name: str, count: int, *, is_doubtful: bool = False) -> SeveralNodes:
    return SeveralNodes(
        name=name,
        value=" ".join(environ[name].split())[:_SHOWN],
        count=count if count <= _MAX_NODES else 0,
        is_doubtful=is_doubtful,
    )


def _count(text: str, _read: Callable[[str], str]) -> int | None:
    most = _number(text.rpartition(":")[2])  # MIN:MAX
    return most if most is not None and most > 1 else None


def _place(text: str, _read: Callable[[str], str]) -> int | None:
    return 0 if _number(text) else None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else None


def _words(text: str, read: Callable[[str], str]) -> int | None:
    try:
        hosts = hosts_in("nodelist" if re.search(r"\w\[[\d,-]+\]", text) else "words", text, read)
    except UsageError:
        return None
    return len(hosts) if len(hosts) > 1 else None


def _processes(text: str, _read: Callable[[str], str]) -> int | None:
    """Of TensorFlow's `{"cluster": {"worker": ["host:port", ...], ...}}`, which other launchers set as well."""
    try:
        spec = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    cluster = spec.get("cluster", spec) if isinstance(spec, dict) else None
    groups = cluster.values() if isinstance(cluster, dict) else ()
    count = sum(len(hosts) for hosts in groups if isinstance(hosts, list))
    return count if count > 1 else None


def _lines(text: str, read: Callable[[str], str]) -> int | None:
    try:
        hosts = hosts_in("file", text, read)
    except (OSError, ValueError, UsageError):
        return None
    return len(hosts) if len(hosts) > 1 else None
