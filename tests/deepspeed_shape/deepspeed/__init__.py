"""What examples/deepspeed_eval calls of DeepSpeed, for where it is not installed: an engine with a group of its own."""

from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from deepspeed import comm
from deepspeed.utils import groups


class Engine:
    """Averages the gradients of all ranks in its own group, as DeepSpeed's engine does without ZeRO."""

    def __init__(self, model: torch.nn.Module, config: dict[str, Any]) -> None:
        assert comm.comm.cdb is None, "DeepSpeed would go on with the groups of the engine before"
        assert groups._WORLD_GROUP is None
        comm.comm.cdb = self
        groups._WORLD_GROUP = self._group = dist.new_group(list(range(dist.get_world_size())))
        self.module = model
        given = config["optimizer"]
        self._optimizer = getattr(torch.optim, given["type"])(model.parameters(), **given["params"])

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.module(inputs)
        return found

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def step(self) -> None:
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad, group=self._group)
            parameter.grad /= dist.get_world_size()
        self._optimizer.step()
        self._optimizer.zero_grad()


def initialize(
    *, model: torch.nn.Module, config: dict[str, Any], dist_init_required: bool
) -> tuple[Any, Any, Any, Any]:
    """An engine, and what no rank here asks for."""
    assert not dist_init_required
    return Engine(model, config), None, None, SimpleNamespace()
