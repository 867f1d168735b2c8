"""Variables from which it follows that a process is one of several nodes, whatever set them.

No launcher is known here: a count above 1, a place above 0 or a list of several hosts is enough to ask.  What is found
never becomes part of a layout.
"""

import re
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from allready.errors import UsageError
from allready.launch.host_lists import hosts_in, read_host_file

_COUNT = re.compile(
    r"(?:^|_)(?:N_?NODES|NUM_?NODES|NODES_NUM|NODES?_COUNT|N_?HOSTS|NUM_?HOSTS|HOSTS?_(?:COUNT|NUM)|NUM_MACHINES|"
    r"MACHINE_COUNT|WORKER_NUM|INSTANCE_COUNT|REPLICA_COUNT|WORLD_SIZE)$"
    # processes of a launcher, of which this is one
    r"|^(?:PMIX?|JSM_NAMESPACE|HOROVOD|CROSS|FLUX_JOB)_SIZE$|^_?(?:CONDOR|MPIRUN)_NPROCS$"
    r"|^PADDLE_TRAINERS_NUM$|^DMLC_NUM_WORKER$|^PJM_NODE$"
)
_PLACE = re.compile(
    r"(?:^|_)(?:NODE_RANK|NODE_INDEX|NODE_?ID|HOST_RANK|MACHINE_RANK|REPLICA_RANK|WORKER_INDEX|ALLOC_INDEX|GROUP_RANK)$"
)
_RANK = re.compile(r"^(?:PMIX?_|MPI_|OMPI_COMM_WORLD_|MV2_COMM_WORLD_|JSM_NAMESPACE_|HOROVOD_|ALPS_APP_)?(?:RANK|PE)$")
"""The number of a process of the job, as launchers of processes name it where they give no number of them."""
_MEMBER = re.compile(r"(?:^|_)(?:RANK|RANK_?ID|PROC_?(?:ID|NO|INDEX)|PROCESS_?(?:ID|INDEX|RANK)|TASK_?RANK)$")
_MEMBERS = re.compile(
    r"(?:^|_)(?:SIZE|TOTAL|N_?PROCS|N_?RANKS|N_?TASKS|(?:NUM|TOTAL)_?(?:PROCS|PROCESSES|RANKS|TASKS)|"
    r"(?:PROC|PROCESS|RANK|TASK)_?COUNT)$"
)
"""The number of one process and of all: each alone may mean anything, both of one family are a launcher's."""
_LIST = re.compile(
    r"(?:^|_)(?:NODES?_?LIST|HOSTS?_?LIST|NODES?_IPS?(?:_LIST)?|WORKER_HOSTS|WORKER_HOSTNAMES|CONTAINER_ADDRS)$|^SM_HOSTS$"
)
_FILE = re.compile(r"(?:^|_)(?:NODES?_?FILE|HOSTS?_?FILE)$")
_CLUSTER = re.compile(r"^(?:TF_CONFIG|CLUSTER_SPEC)$")
_OF_PART = re.compile(
    r"(?:^|_)(?:LOCAL|ROLE|TENSOR|PIPELINE|MODEL|DATA|EXPERT|CONTEXT|SEQUENCE|PARALLEL|TP|PP|DP|EP|CP|MP|SP)_"
)
"""Sizes of something smaller than the job."""
_SHOWN = 60


class SeveralNodes(Struct, frozen=True, kw_only=True):
    """The variable, its value shortened, and the number of nodes or processes, 0 where only a place is known."""

    name: str
    value: str
    count: int


def several_nodes(environ: Mapping[str, str], read: Callable[[str], str] = read_host_file) -> SeveralNodes | None:
    """The variable that speaks for several nodes, the surest first; None where none does."""
    kinds = (
        (_COUNT, _count),
        (_LIST, _words),
        (_FILE, _lines),
        (_CLUSTER, _processes),
        (_PLACE, _place),
        (_RANK, _place),
    )
    for pattern, count_of in kinds:
        for name in sorted(environ):
            if not pattern.search(name) or _OF_PART.search(name):
                continue
            count = count_of(environ[name].strip(), read)
            if count is not None:
                return _found(environ, name, count)
    return _one_of_many(environ, read)


def _one_of_many(environ: Mapping[str, str], read: Callable[[str], str]) -> SeveralNodes | None:
    """A process that a launcher of processes has numbered, `X_RANK` beside `X_NUM_PROCS`, whatever X is."""
    families = {_family(_MEMBER, name) for name in environ if environ[name].strip().isdecimal()} - {None}
    for name in sorted(environ):
        is_of_all = _family(_MEMBERS, name) in families and not _OF_PART.search(name)
        count = _count(environ[name].strip(), read) if is_of_all else None
        if count is not None:
            return _found(environ, name, count)
    return None


def _family(pattern: re.Pattern[str], name: str) -> str | None:
    """What stands before the word that says what the variable holds."""
    match = pattern.search(name)
    return name[: match.start()] if match is not None else None


def _found(environ: Mapping[str, str], name: str, count: int) -> SeveralNodes:
    return SeveralNodes(name=name, value=" ".join(environ[name].split())[:_SHOWN], count=count)


def _count(text: str, _read: Callable[[str], str]) -> int | None:
    most = text.rpartition(":")[2]  # MIN:MAX
    return int(most) if most.isascii() and most.isdecimal() and len(most) < 8 and int(most) > 1 else None


def _place(text: str, _read: Callable[[str], str]) -> int | None:
    return 0 if text.isascii() and text.isdecimal() and len(text) < 8 and int(text) > 0 else None


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
