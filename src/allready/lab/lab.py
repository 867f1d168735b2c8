"""One laboratory: nodes as namespaces on this machine, commands in them, faults applied and lifted.

Any process of the same user can use a lab by its name: everything it needs is in the record.
"""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from allready.errors import AllreadyError, DeadlineExceeded, LabError, UsageError
from allready.lab import effects, holders, lifecycle, record
from allready.lab.faults import Fault, PortDropped, from_mapping
from allready.lab.faults.base import Effect
from allready.lab.network import LabView
from allready.lab.record import ActiveFault, Record
from allready.proc.kill import end_child
from allready.proc.process import identify, is_running

Stream = int | IO[Any] | None


class AppliedFault:
    """A fault that is in force; `undo`, or the end of the `with` block, lifts it."""

    def __init__(self, lab: "Lab", fault_id: int, fault: Fault) -> None:
        self.id = fault_id
        self.fault = fault
        self._lab = lab

    def undo(self) -> None:
        """Lift it; nothing happens when it was lifted already."""
        if self.id in self._lab.faults():
            self._lab.lift(self.id)

    def num_dropped(self) -> int:
        """Packets that it has dropped so far; 0 for faults that drop none by rule."""
        return self._lab.num_dropped(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


class Lab:
    """A running lab, made by `Lab.up` or found by `Lab.attach`; as context manager it ends with the block."""

    def __init__(self, name: str, state_dir: Path) -> None:
        self.name = name
        self._state_dir = state_dir
        self._started: list[subprocess.Popen[Any]] = []
        self._is_down = False

    @classmethod
    def up(
        cls,
        num_nodes: int = 2,
        *,
        name: str = "default",
        subnet: str = "10.77.0.0/24",
        subnet6: str = "fd00:77::/64",
        mtu_bytes: int = 1500,
        user_namespace: bool | None = None,
        state_dir: Path | None = None,
    ) -> Self:
        """Make a lab of `num_nodes` nodes, ready for commands when this returns (well under a second).

        It stays until `down`, also when this process ends.

        Args:
            subnet: IPv4 network of the nodes; node r has host number r + 1.
            subnet6: the same for IPv6; empty for none.
            user_namespace: make the namespaces inside a user namespace; None: only where root's rights are missing.
            state_dir: where labs are recorded, a folder of this user with mode 0700; None: `default_state_dir()`.

        Raises:
            UsageError: bad arguments, or there is a lab of that name.
            LabError: this machine does not allow it; with the reason.  Nothing is left.
        """
        view = LabView.checked(num_nodes, subnet, subnet6 if Path("/proc/sys/net/ipv6").exists() else "", mtu_bytes)
        state_dir = record.default_state_dir() if state_dir is None else state_dir
        record.check_name(name)
        for program, package in (("unshare", "util-linux"), ("nsenter", "util-linux"), ("mount", "mount")):
            holders.tool(program, package)
        cls._forget_dead(name, state_dir)
        record.create(state_dir, name)
        lab = cls(name, state_dir)
        with record.locked(state_dir, name) as folder:
            try:
                lifecycle.make(folder, name, view, user_namespace)
            except BaseException:
                lifecycle.remove(state_dir, folder)
                raise
        return lab

    @classmethod
    def attach(cls, name: str = "default", *, state_dir: Path | None = None) -> Self:
        """The running lab of that name.

        Raises:
            UsageError: there is none.
            LabError: it was not completed, or some of it was killed; `down` removes the rest.
        """
        lab = cls(name, record.default_state_dir() if state_dir is None else state_dir)
        lab.record()
        return lab

    @classmethod
    def _forget_dead(cls, name: str, state_dir: Path) -> None:
        """Remove the record of a lab that is gone altogether, after a reboot for example."""
        with contextlib.suppress(UsageError), record.locked(state_dir, name) as folder:
            found = record.read(folder)
            if found is not None and not record.is_alive(found):
                record.remove(state_dir, folder)

    def record(self) -> Record:
        """The lab's record, after a check that the lab is whole.

        Raises:
            UsageError: there is no lab of that name (any more).
            LabError: it was not completed, or some of it was killed; `down` removes the rest.
        """
        with record.locked(self._state_dir, self.name) as folder:
            return self._whole(folder)

    def _whole(self, folder: Path) -> Record:
        found = record.read(folder)
        if found is None or not found.ready or not all(is_running(p) for p in found.holders):
            raise LabError(
                "the lab {name} is not whole; remove it with: allready lab down --name {name}", name=self.name
            )
        return found

    @property
    def folder(self) -> Path:
        """Where the lab keeps its files; `down` removes it with everything in it."""
        return self._state_dir / self.name

    @property
    def view(self) -> LabView:
        return LabView.of(self.record())

    def status(self) -> dict[str, Any]:
        """Nodes, running commands and faults in force, as plain data for JSON."""
        own = self.record()
        view = LabView.of(own)
        return {
            "name": self.name,
            "running": True,
            "user_namespace": own.user_namespace,
            "mtu_bytes": own.mtu_bytes,
            "nodes": [
                {
                    "node": n,
                    "name": view.name(n),
                    "address": view.address(n),
                    "address6": view.address6(n),
                    "pid": p.pid,
                }
                for n, p in enumerate(own.nodes)
            ],
            "commands": [p.pid for p in own.processes if is_running(p)],
            "faults": [{"id": active.id, "values": active.fault} for active in own.faults],
        }

    def popen(
        self,
        node: int,
        argv: Sequence[str],
        *,
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        text: bool = False,
    ) -> subprocess.Popen[Any]:
        """Start a command in a node, in a session of its own; its pid is the command's own pid.

        `down` ends it, its process group, and whatever else still runs in the node.

        Args:
            env: added to this process's environment; None as a value takes a variable out.
            cwd: folder to start in, default this process's.

        Raises:
            UsageError: no such node, or no such lab any more.
        """
        with record.locked(self._state_dir, self.name) as folder:
            own = self._whole(folder)
            if not 0 <= node < own.num_nodes:
                raise UsageError(
                    "no node {node}; the lab {name!r} has node 0 to {last}",
                    node=node,
                    name=self.name,
                    last=own.num_nodes - 1,
                )
            if not argv:
                raise UsageError("no command was given")
            enter = holders.into(own.nodes[node].pid, own.user_namespace, "user", "net", "uts", "mount")
            shell = [holders.tool("sh", "dash"), "-c", 'cd "$1" && shift && exec "$@"', "lab"]
            changed = os.environ | dict(env or {})
            self._started = [process for process in self._started if process.poll() is None]
            process = subprocess.Popen(
                [*enter, *shell, os.fspath(cwd or Path.cwd()), *argv],
                env={key: value for key, value in changed.items() if value is not None},
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                text=text,
                start_new_session=True,
            )
            self._started.append(process)
            started = identify(process.pid)
            if started is not None:
                running = tuple(p for p in own.processes if is_running(p))
                record.write(folder, msgspec.structs.replace(own, processes=(*running, started)))
        return process

    def run(
        self,
        node: int,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        input: str = "",  # noqa: A002 - as in subprocess.run
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a node to its end and give its exit code, standard output and standard error.

        Raises:
            DeadlineExceeded: it still ran after `timeout_s`; its process group was killed and it was reaped.
        """
        process = self.popen(
            node,
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = process.communicate(input, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise DeadlineExceeded(f"{' '.join(argv)} in node{node} still ran after {timeout_s:g} s") from error
        finally:
            end_group(process)
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def faults(self) -> dict[int, Fault]:
        return {active.id: from_mapping(active.fault) for active in self.record().faults}

    def apply(self, fault: Fault) -> AppliedFault:
        """Put a fault in force now.

        Raises:
            UsageError: it names nodes that are not there, only makes sense in a scenario, or changes what another fault
                in force has changed already.
            LabError: this machine cannot do it; the lab is as before.
        """
        if fault.scenario_only:
            raise UsageError(
                "fault {kind} is about how a scenario starts its commands; a running lab cannot have it",
                kind=fault.kind,
            )

        def change(own: Record, folder: Path) -> Record:
            view = LabView.of(own)
            fault.check_nodes(own.num_nodes)
            for active in own.faults:
                if taken := set(fault.slots_taken()) & set(from_mapping(active.fault).slots_taken()):
                    what = " ".join(min(taken))
                    raise UsageError(
                        "fault {id} ({fault}) has changed this already: {what}; lift it",
                        id=active.id,
                        fault=active.fault["fault"],
                        what=what,
                    )
            wanted = fault.effects(view)
            effects.apply(own, own.next_fault, wanted)
            active = ActiveFault(id=own.next_fault, fault=fault.as_dict())
            changed = msgspec.structs.replace(own, faults=(*own.faults, active), next_fault=own.next_fault + 1)
            effects.write_hosts(changed, folder, _all_effects(changed))
            return changed

        return AppliedFault(self, self._change(change).faults[-1].id, fault)

    def lift(self, fault_id: int) -> None:
        """Take a fault back.

        Raises:
            UsageError: no fault of that id is in force.
            LabError: it could not be taken back; it stays recorded.
        """

        def change(own: Record, folder: Path) -> Record:
            fault = self._active(own, fault_id)
            effects.take_back(own, fault_id, fault.effects(LabView.of(own)))
            changed = msgspec.structs.replace(own, faults=tuple(a for a in own.faults if a.id != fault_id))
            effects.write_hosts(changed, folder, _all_effects(changed))
            return changed

        self._change(change)

    def num_dropped(self, fault_id: int) -> int:
        """Packets dropped so far by the filters of a fault in force."""
        own = self.record()
        return effects.num_dropped(own, fault_id, self._active(own, fault_id).effects(LabView.of(own)))

    @staticmethod
    def _active(own: Record, fault_id: int) -> Fault:
        for active in own.faults:
            if active.id == fault_id:
                return from_mapping(active.fault)
        have = ", ".join(f"{a.id} ({a.fault['fault']})" for a in own.faults) or "none"
        raise UsageError("no active fault {fault_id}; active: {have}", fault_id=fault_id, have=have)

    def _change(self, change: Callable[[Record, Path], Record]) -> Record:
        with record.locked(self._state_dir, self.name) as folder:
            changed = change(self._whole(folder), folder)
            record.write(folder, changed)
            return changed

    def down(self) -> None:
        """End every process of the lab, reap ours, and remove its record.  Nothing happens the second time.

        Raises:
            UsageError: there is no lab of that name.
            LabError: a process cannot be killed (uninterruptible sleep); the record stays, try again.
        """
        if self._is_down:
            return
        with record.locked(self._state_dir, self.name) as folder:
            lifecycle.remove(self._state_dir, folder, self._started)
        self._started = []
        self._is_down = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


def names(state_dir: Path | None = None) -> list[str]:
    """Names of this user's labs, whole or not."""
    return record.names(record.default_state_dir() if state_dir is None else state_dir)


def take_down(name: str, state_dir: Path | None = None) -> None:
    """End a lab by name, whole or not, for example after its creator was killed.

    Raises:
        UsageError: there is no lab of that name.
        LabError: as `Lab.down`.
    """
    Lab(name, record.default_state_dir() if state_dir is None else state_dir).down()


def probe(*, packet_filters: bool = False) -> str | None:
    """Why this machine cannot have a lab; None when it can.

    It makes a lab of one node and takes it down again, in less than a second.

    `packet_filters`: also try a fault that needs nft.
    """
    try:
        holders.tool("unshare", "util-linux")
        with tempfile.TemporaryDirectory(prefix="allready-probe-") as folder:
            Path(folder).chmod(0o700)
            with Lab.up(1, name=f"probe-{os.getpid()}", state_dir=Path(folder) / "labs") as lab:
                if packet_filters:
                    lab.apply(PortDropped(node=0, port=1)).undo()
    except (AllreadyError, OSError) as error:
        return str(error)
    return None


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kill a command's process group if the command still runs, and reap it; close our ends of its pipes."""
    end_child(process, timeout_s=holders.END_TIMEOUT_S)


def _all_effects(own: Record) -> list[Effect]:
    view = LabView.of(own)
    return [effect for active in own.faults for effect in from_mapping(active.fault).effects(view)]
