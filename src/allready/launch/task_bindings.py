"""CPUs and GPUs of the tasks that a launcher started on one node, where local rank 0 acts for all of them.

mpirun and srun bind each task of their own.  Ranks inherit from the process that starts them: without this all would
share the CPUs and GPUs of the first task.  So the other tasks hand theirs over before they end.  They meet at an
abstract socket of this machine, which needs no folder, leaves nothing behind and shows who is calling.
"""

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Mapping, MutableMapping

from msgspec import Struct

from allready.launch.request import Note
from allready.model import ranges

DEADLINE_S = 5.0
"""Tasks of one node start within a second or two of each other."""
DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")

_RETRY_S = 0.02
_MAX_BYTES = 1 << 16
_MAX_CALLERS = 4096
_SHOWN_TASKS = 8
_JOB_VARIABLES = (
    "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "PMI_JOBID",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip


class Binding(Struct, frozen=True, kw_only=True):
    """What one task may use; `devices`: variable -> value, as set for it."""

    cpus: tuple[int, ...]
    devices: dict[str, str] = {}


class Tasks(Struct, frozen=True, kw_only=True):
    """This task among those of its node.  `job`: what tells them apart from another job's on this machine."""

    local_rank: int
    number: int
    job: str

    @property
    def address(self) -> bytes:
        return f"\0allready-tasks-{os.geteuid()}-{self.job}".encode()[:107]


class Bindings(Struct, frozen=True, kw_only=True):
    """Local rank -> what that task may use, of those that reported."""

    of_tasks: dict[int, Binding]
    number: int

    @property
    def is_complete(self) -> bool:
        return len(self.of_tasks) == self.number


def tasks_of(environ: Mapping[str, str], *, local_rank: int, number: int, node_rank: int) -> Tasks:
    """The tasks of this node, from a layout; the session tells jobs apart that have no name."""
    words = [environ.get(name, "") for name in _JOB_VARIABLES]
    if not any(words[:2]) and not (words[2] and words[3]):
        words.append(str(os.getsid(0)))
    name = "/".join([*words, str(node_rank), str(number)])
    digest = f"{_checksum(name):016x}"
    return Tasks(local_rank=local_rank, number=number, job=digest)


def _checksum(text: str) -> int:
    import hashlib

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def own_binding(environ: Mapping[str, str]) -> Binding:
    """Of this process."""
    found = {name: environ[name] for name in DEVICE_VARIABLES if environ.get(name)}
    return Binding(cpus=tuple(sorted(os.sched_getaffinity(0))), devices=found)


def is_bound(binding: Binding) -> bool:
    """Whether something restricts it, be it the same for all tasks."""
    return bool(binding.devices) or len(binding.cpus) < (os.cpu_count() or 1)


def hand_over(tasks: Tasks, binding: Binding, *, deadline_s: float = DEADLINE_S) -> bool:
    """Give this task's binding to local rank 0; False where it does not listen in time."""
    body = json.dumps({"local_rank": tasks.local_rank, "cpus": binding.cpus, "devices": binding.devices}).encode()
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(1.0)
            try:
                sock.connect(tasks.address)
                sock.sendall(body)
                sock.shutdown(socket.SHUT_WR)
                return sock.recv(1) == b"+"
            except OSError:
                time.sleep(_RETRY_S)
    return False


def collect(tasks: Tasks, binding: Binding, *, deadline_s: float = DEADLINE_S) -> Bindings:
    """The bindings of all tasks of this node that report within the deadline, the own one among them."""
    found = {tasks.local_rank: binding}
    deadline = time.monotonic() + deadline_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        try:
            server.bind(tasks.address)
            server.listen(tasks.number)
        except OSError:  # another job of this user that cannot be distinguished
            return Bindings(of_tasks=found, number=tasks.number)
        for _ in range(_MAX_CALLERS):
            left_s = deadline - time.monotonic()
            if len(found) >= tasks.number or left_s <= 0:
                break
            server.settimeout(left_s)
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                caller, _address = server.accept()
                with caller:
                    local_rank, its = _read(caller)
                    if 0 <= local_rank < tasks.number:
                        found[local_rank] = its
                        caller.sendall(b"+")
    return Bindings(of_tasks=found, number=tasks.number)


def _read(caller: socket.socket) -> tuple[int, Binding]:
    """One report.  Raises: OSError, ValueError, KeyError, TypeError where it is none, or another user's."""
    credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != os.geteuid():
        raise PermissionError("another user's process")
    caller.settimeout(1.0)
    data = b""
    while len(data) <= _MAX_BYTES and (more := caller.recv(_MAX_BYTES)):
        data += more
    body = json.loads(data)
    cpus = tuple(sorted({int(cpu) for cpu in body["cpus"]}))
    devices = {str(name): str(value) for name, value in body["devices"].items() if name in DEVICE_VARIABLES}
    return int(body["local_rank"]), Binding(cpus=cpus, devices=devices)


def take_over(
    bindings: Bindings, environ: MutableMapping[str, str], *, nproc: int
) -> tuple[tuple[tuple[int, ...], ...], list[Note]]:
    """Widen this process to what all tasks may use; the CPUs of each local rank, and what the user should know.

    The CPUs are () where each rank uses all: one task that stands for several ranks, or tasks that share everything.
    The GPUs of all tasks become visible to every rank, in the order of the tasks: LOCAL_RANK chooses, as in torchrun.
    """
    own = bindings.of_tasks[0]
    if not bindings.is_complete:
        values = {"missing": str(bindings.number - len(bindings.of_tasks)), "tasks": str(bindings.number)}
        return (), [Note(key="tasks.binding_unknown", values={**values, "cpus": ranges(own.cpus)})]
    in_order = [bindings.of_tasks[local_rank] for local_rank in range(bindings.number)]
    notes = _share_devices(in_order, environ)
    cpus = tuple(task.cpus for task in in_order)
    if len(set(cpus)) < 2:
        return (), notes
    with contextlib.suppress(OSError):  # then the ranks keep to what this task may use
        os.sched_setaffinity(0, set().union(*cpus))
    if nproc != bindings.number:
        return (), notes
    shown = "; ".join(f"{rank}: {ranges(each)}" for rank, each in enumerate(cpus[:_SHOWN_TASKS]))
    more = "; ..." if len(cpus) > _SHOWN_TASKS else ""
    return cpus, [*notes, Note(key="tasks.bindings_kept", values={"cpus": shown + more})]


def _share_devices(in_order: list[Binding], environ: MutableMapping[str, str]) -> list[Note]:
    notes = []
    for name in DEVICE_VARIABLES:
        values = [task.devices.get(name, "") for task in in_order]
        if not all(values):
            continue
        words = dict.fromkeys(word.strip() for value in values for word in value.split(",") if word.strip())
        if len(set(values)) > 1:
            environ[name] = ",".join(words)
        elif len(words) < len(in_order):
            number = str(len(in_order))
            notes.append(
                Note(key="tasks.devices_of_one_task", values={"name": name, "value": values[0], "tasks": number})
            )
    return notes


def share(
    tasks: Tasks, environ: MutableMapping[str, str], *, nproc: int, deadline_s: float = DEADLINE_S
) -> tuple[tuple[tuple[int, ...], ...], list[Note]]:
    """Local rank 0 takes over what the node's other tasks may use, and these hand it over; as `take_over`."""
    own = own_binding(environ)
    if tasks.number == 1 and len(own.cpus) < min(nproc, os.cpu_count() or 1):
        return (), [Note(key="tasks.task_bound", values={"cpus": ranges(own.cpus), "nproc": str(nproc)})]
    if tasks.number == 1 or not is_bound(own):
        return (), []
    if tasks.local_rank != 0:
        hand_over(tasks, own, deadline_s=deadline_s)
        return (), []
    return take_over(collect(tasks, own, deadline_s=deadline_s), environ, nproc=nproc)
