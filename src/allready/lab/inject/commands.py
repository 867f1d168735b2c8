"""What each node of a lab runs, from one command: launchers get their flags, a plain script its ranks' environment."""

import os
import shutil
import sys
from collections.abc import Sequence

from msgspec import Struct

from allready.errors import UsageError

FLAGS = ("nnodes", "node-rank", "nproc-per-node", "master-addr", "master-port")


class NodeCommand(Struct, frozen=True, kw_only=True):
    """One process to start in a node."""

    node: int
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    label: str = ""  # before its lines on the terminal


class LabLayout(Struct, frozen=True, kw_only=True):
    """How many nodes and ranks, and where rank 0 listens."""

    num_nodes: int
    nproc_per_node: int
    master_addr: str
    master_port: int = 29500

    def node_of(self, rank: int) -> int:
        return rank // self.nproc_per_node

    def ranks_of(self, node: int) -> tuple[int, ...]:
        return tuple(range(node * self.nproc_per_node, (node + 1) * self.nproc_per_node))

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.nproc_per_node


def launcher_words(command: Sequence[str]) -> int | None:
    """How many words a launcher takes (`allready run`, `torchrun`, `python -m torch.distributed.run`); None: none."""
    name = os.path.basename(command[0])  # noqa: PTH119 - a word of a command line, not a path of ours
    if name == "torchrun":
        return 1
    if name == "allready" and command[1:2] == ["run"]:
        return 2
    if not name.startswith("python") or "-m" not in command:
        return None
    at = list(command).index("-m")
    if any(not word.startswith("-") for word in command[1:at]):
        return None
    module, then = command[at + 1 : at + 2], command[at + 2 : at + 3]
    if module in (["torch.distributed.run"], ["torch.distributed.launch"], ["allready.run"]):
        return at + 2
    return at + 3 if module == ["allready"] and then == ["run"] else None


def node_commands(command: Sequence[str], layout: LabLayout) -> list[NodeCommand]:
    """What every node runs.  Flags that the user gave stay as they are, and ours come before them."""
    words = list(command)
    if not words:
        raise UsageError("no command was given; write: allready lab run ... -- torchrun SCRIPT")
    if words[0] in {"python", "python3"}:
        words[0] = sys.executable
    elif words[0] in {"allready", "torchrun"} and shutil.which(words[0]) is None:
        words[:1] = [sys.executable, "-m", "allready" if words[0] == "allready" else "torch.distributed.run"]
    elif shutil.which(words[0]) is None:
        raise UsageError("no such program: {word!r}", word=words[0])
    at = launcher_words(words)
    found = []
    for node in range(layout.num_nodes):
        if at is not None:
            found.append(
                NodeCommand(
                    node=node, argv=(*words[:at], *_flags(words[at:], node, layout), *words[at:]), label=f"node{node}"
                )
            )
            continue
        for rank in layout.ranks_of(node):
            env = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank % layout.nproc_per_node),
                "WORLD_SIZE": str(layout.world_size),
                "LOCAL_WORLD_SIZE": str(layout.nproc_per_node),
                "GROUP_RANK": str(node),
                "MASTER_ADDR": layout.master_addr,
                "MASTER_PORT": str(layout.master_port),
            }
            found.append(NodeCommand(node=node, argv=tuple(words), env=env, label=f"rank{rank}"))
    return found


def _flags(given: Sequence[str], node: int, layout: LabLayout) -> list[str]:
    values = {
        "nnodes": layout.num_nodes,
        "node-rank": node,
        "nproc-per-node": layout.nproc_per_node,
        "master-addr": layout.master_addr,
        "master-port": layout.master_port,
    }
    end = next((i for i, word in enumerate(given) if word.endswith(".py") or word in {"-m", "--"}), len(given))
    own = given[:end]  # what comes later are the script's own arguments
    used = {word.partition("=")[0].lstrip("-").replace("_", "-") for word in own if word.startswith("--")}
    if "rdzv-endpoint" in used or "rdzv-backend" in used:
        values = {name: value for name, value in values.items() if not name.startswith("master")}
    return [f"--{name}={value}" for name, value in values.items() if name not in used]
