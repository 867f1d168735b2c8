"""Pieces of made-up facts that several tests of this folder need."""

from typing import Any

from msgspec.structs import replace

from allready.model import EnvFacts, GpuFacts, HostFacts, LaunchFacts, SoftwareFacts
from tests.fleets import healthy_node


def variables(**values: str) -> EnvFacts:
    """The healthy node's variables and some more."""
    return EnvFacts(variables={"NCCL_DEBUG": "WARN", **values})


def on_all(num_nodes: int, **values: str) -> dict[int, EnvFacts]:
    """The same variables everywhere."""
    return dict.fromkeys(range(num_nodes), variables(**values))


def software(**changes: str | None) -> SoftwareFacts:
    """The healthy node's versions, changed; None: not installed.  torch_cuda stands for torch-cuda."""
    facts = healthy_node(0, 1).software
    assert isinstance(facts, SoftwareFacts)
    new = facts.versions | {k.replace("_", "-"): v for k, v in changes.items()}
    return SoftwareFacts(versions={k: v for k, v in new.items() if v is not None})


def launch(node: int, **changes: Any) -> LaunchFacts:
    """What the healthy node got, changed."""
    facts = healthy_node(node, 4).launch
    assert isinstance(facts, LaunchFacts)
    return replace(facts, **changes)


def gpus(node: int, **changes: Any) -> GpuFacts:
    """The healthy node's GPUs, changed."""
    facts = healthy_node(node, 4).gpu
    assert isinstance(facts, GpuFacts)
    return replace(facts, **changes)


def host(node: int, **changes: Any) -> HostFacts:
    """The healthy node's machine, changed."""
    facts = healthy_node(node, 4).host
    assert isinstance(facts, HostFacts)
    return replace(facts, **changes)


NO_GPU = GpuFacts(gpus=())
