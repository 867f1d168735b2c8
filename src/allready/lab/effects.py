"""Carries out what faults do, inside a lab's namespaces."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from allready.errors import LabError, StatedError
from allready.lab import holders, hosts
from allready.lab.faults.base import Effect, Links, PacketFilter, Tmpfs
from allready.lab.network import HUB, INTERFACE, LabView, Op
from allready.lab.record import Record
from allready.proc.command import run_command

TIMEOUT_S = 30.0


def run_tool(argv: Sequence[str], text: str = "") -> str:
    """Run one program to its end and give its standard output."""
    environ = os.environ | {"LC_ALL": "C"}
    try:
        done = run_command(argv, timeout_s=TIMEOUT_S, given=text.encode(), env=environ, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError("{program}: {error}", program=argv[0], error=error) from error
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if done.returncode != 0 and not out:
        why = " ".join(err.split()) or StatedError("exit code {code}", code=done.returncode)
        raise LabError("{program}: {error}", program=Path(argv[0]).name, error=why)
    return out


def netlink_argv(record: Record) -> list[str]:
    """Command line of the process that carries out netlink operations in the lab."""
    assert record.hub is not None
    enter = holders.into(record.hub.pid, record.user_namespace, "user", "net")
    return [*enter, sys.executable, "-P", str(Path(__file__).with_name("netlink.py"))]


def netlink_plan(record: Record, ops: Sequence[Op]) -> str:
    """Standard input of that process."""
    pids = {HUB: record.hub.pid if record.hub else 0} | {r: holder.pid for r, holder in enumerate(record.nodes)}
    return json.dumps({"namespaces": pids, "ops": list(ops)})


def netlink_answer(text: str) -> list[str]:
    """What was skipped, because it was optional and this kernel cannot do it."""
    try:
        answer: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise LabError("the lab's netlink process gave no answer: {text}", text=repr(text[:200])) from error
    if "error" in answer:
        raise LabError("cannot change the lab's network: {error}", error=answer["error"])
    return [str(text) for text in answer.get("skipped", [])]


def change_links(record: Record, ops: Sequence[Op]) -> None:
    """Carry out netlink operations.

    Raises:
        LabError: one failed; those before it stay done.
    """
    netlink_answer(run_tool(netlink_argv(record), netlink_plan(record, ops)))


def table(fault_id: int) -> str:
    """The nft table of one fault; each node it filters in has one of this name."""
    return f"allready_{fault_id}"


def _nft(record: Record, node: int, *words: str, script: str = "") -> str:
    enter = holders.into(record.nodes[node].pid, record.user_namespace, "user", "net")
    return run_tool([*enter, holders.tool("nft", "nftables"), *words], script)


def _mount(record: Record, node: int, *argv: str) -> None:
    run_tool([*holders.into(record.nodes[node].pid, record.user_namespace, "user", "mount"), *argv])


def apply(record: Record, fault_id: int, effects: Sequence[Effect]) -> None:
    """Do all of `effects`; when one fails, those before it are taken back."""
    done: list[Effect] = []
    try:
        for effect in effects:
            done.append(effect)
            if isinstance(effect, PacketFilter):
                wanted = (*effect.before, *(f"{match} counter drop" for match in effect.matches))
                rules = "\n".join(f'    iifname "{INTERFACE}" {rule}' for rule in wanted)
                hook = "type filter hook prerouting priority -300; policy accept;"
                sets = "".join(f"  set {definition}\n" for definition in effect.sets)
                script = f"table inet {table(fault_id)} {{\n{sets}  chain wire {{\n    {hook}\n{rules}\n  }}\n}}\n"
                _nft(record, effect.node, "-f", "-", script=script)
            elif isinstance(effect, Tmpfs):
                options = f"size={effect.size_bytes},mode=1777"
                mount = holders.tool("mount", "mount")
                _mount(record, effect.node, mount, "-n", "-t", "tmpfs", "-o", options, "tmpfs", effect.path)
            elif isinstance(effect, Links):
                change_links(record, effect.do)
    except LabError as error:
        done.pop()
        take_back(record, fault_id, done)
        if isinstance(effect, Links):  # a part of it may be done; what is not there cannot be taken back
            for op in effect.undo:
                change_links(record, [op | {"optional": 1}])
        raise error from None


def take_back(record: Record, fault_id: int, effects: Sequence[Effect]) -> None:
    """Undo all of `effects`, in reverse order."""
    for effect in reversed(effects):
        if isinstance(effect, PacketFilter):
            _nft(record, effect.node, "delete", "table", "inet", table(fault_id))
        elif isinstance(effect, Tmpfs):
            # Lazily: a process may have files open there; it keeps them.
            _mount(record, effect.node, holders.tool("umount", "mount"), "-n", "-l", effect.path)
        elif isinstance(effect, Links):
            change_links(record, effect.undo)


def num_dropped(record: Record, fault_id: int, effects: Iterable[Effect]) -> int:
    """Packets that the filters of one fault have dropped so far."""
    total = 0
    for node in sorted({effect.node for effect in effects if isinstance(effect, PacketFilter)}):
        listing = json.loads(_nft(record, node, "-j", "list", "table", "inet", table(fault_id)))
        for item in listing["nftables"]:
            for expression in item.get("rule", {}).get("expr", []):
                total += int(expression["counter"]["packets"]) if "counter" in expression else 0
    return total


def write_hosts(record: Record, folder: Path, effects: Iterable[Effect]) -> None:
    """Bring every node's /etc/hosts to what all active faults together make of it."""
    lab = LabView.of(record)
    edits = [effect for effect in effects if isinstance(effect, hosts.HostsEdit)]
    for node in range(record.num_nodes):
        text = hosts.render(lab, [edit for edit in edits if edit.node == node])
        path = folder / f"hosts-node{node}"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            hosts.rewrite(path, text)
