"""Whose error it is that a rank caught: one that follows from another rank makes this one no culprit."""

import types

import pytest

from allready.model import FailureCause
from allready.runtime.recovery import cause_of
from tests.cases import cases

FUNCTIONAL = "torch.distributed._functional_collectives"


GLOO = "[/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:6581"
TIMED_OUT = "[/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 300ms for recv operation"


def caught(
    error: Exception, *modules: str, operator: str = "", name: str = "self", function: str = "call"
) -> Exception:
    """As raised in the last of these modules, called by those before it; all have `operator` as a local `name`."""
    call = None
    for place in reversed(modules):
        module = types.ModuleType(place)
        module.__dict__.update(inner=call, error=error, operator=operator)
        text = f"def {function}():\n    {name} = operator\n    if inner is None:\n        raise error\n    inner()"
        exec(text, module.__dict__)
        call = module.__dict__[function]
    assert call is not None
    with pytest.raises(type(error)) as found:
        call()
    return found.value


@pytest.mark.parametrize(
    "modules", [("train", "torch.distributed.distributed_c10d"), ("train", "torch.autograd.graph")]
)
def test_a_collective_that_fails_accuses_nobody(modules: tuple[str, ...]) -> None:
    assert cause_of(caught(RuntimeError("Timed out waiting"), *modules)) is FailureCause.BACKEND


@pytest.mark.parametrize(
    ("error", "modules", "function"),
    [
        (RuntimeError(GLOO), ("train",), "train_step"),  # the wait for an operation in flight
        (RuntimeError("Timed out"), ("train", "torch.nn.parallel.distributed"), "_distributed_broadcast_coalesced"),
    ],
)
def test_so_does_one_whose_call_is_not_in_torch_distributed(
    error: Exception, modules: tuple[str, ...], function: str
) -> None:
    assert cause_of(caught(error, *modules, function=function)) is FailureCause.BACKEND


@cases(
    ("error", "modules"),
    [
        (RuntimeError("shape"), ("train", "torch.nn.functional")),
        (RuntimeError("unused parameters"), ("train", "torch.nn.parallel.distributed")),
        (RuntimeError("cannot open gloo/notes.txt"), ("train",)),
        (RuntimeError("shape"), ("train", "torch._ops")),
        (ValueError("mine"), ("train", "torch.distributed.distributed_c10d")),
        (RuntimeError("mine"), ("torch.distributed.run", "train")),
    ],
)
def test_the_scripts_own_error_is_its_own(error: Exception, modules: tuple[str, ...]) -> None:
    assert cause_of(caught(error, *modules)) is FailureCause.RAISED


@pytest.mark.parametrize(
    ("operator", "modules"),
    [
        ("_c10d_functional.wait_tensor", (FUNCTIONAL, "torch._ops")),
        ("_c10d_functional.all_reduce.default", (FUNCTIONAL, "torch._ops", "torch._library.autograd", "torch._ops")),
        ("_dtensor.shard_dim_alltoall.default", ("torch.distributed.tensor._collective_utils", "torch._ops")),
    ],
)
@pytest.mark.parametrize("name", ["self", "self_"])
def test_a_collective_below_torch_distributed_accuses_nobody(
    operator: str, modules: tuple[str, ...], name: str
) -> None:
    error = caught(RuntimeError("Timed out waiting"), "train", *modules, operator=operator, name=name)
    assert cause_of(error) is FailureCause.BACKEND


@pytest.mark.parametrize(
    ("operator", "modules"),
    [
        ("aten.bernoulli.default", ("torch.distributed.tensor._dispatch", "torch._ops")),
        ("aten.mm", ("torch.distributed.fsdp", "train", "torch._ops")),
        ("_c10d_functional.wait_tensor", ("torch.distributed.fsdp", "train", "torch._ops")),
    ],
)
def test_an_operator_of_the_script_below_torch_distributed_is_its_own(operator: str, modules: tuple[str, ...]) -> None:
    error = caught(RuntimeError("p_in >= 0"), "train", *modules, operator=operator)
    assert cause_of(error) is FailureCause.RAISED


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:DTensor random operators")
def test_a_value_that_a_sharded_tensor_does_not_take_is_the_scripts_own() -> None:
    torch = pytest.importorskip("torch")
    dist = pytest.importorskip("torch.distributed")
    tensors = pytest.importorskip("torch.distributed.tensor")  # since 2.5
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = dist.init_device_mesh("cpu", (1,))
        given = tensors.distribute_tensor(torch.tensor([-1.0, 2.0]), mesh, [tensors.Replicate()])
        with pytest.raises(RuntimeError, match="p_in") as found:
            torch.bernoulli(given)
        assert cause_of(found.value) is FailureCause.RAISED
        with pytest.raises(RuntimeError) as found:
            dist._functional_collectives.all_reduce(torch.ones(2), "none", dist.group.WORLD)
        assert cause_of(found.value) is FailureCause.BACKEND
    finally:
        dist.destroy_process_group()


class OutOfMemoryError(RuntimeError):
    """As torch's."""


@pytest.mark.parametrize("modules", [("torch.autograd.graph",), (FUNCTIONAL,), (FUNCTIONAL, "torch._ops")])
def test_no_memory_left_is_the_ranks_own(modules: tuple[str, ...]) -> None:
    error = caught(OutOfMemoryError("CUDA out of memory"), "train", *modules, operator="_c10d_functional.all_reduce")
    assert cause_of(error) is FailureCause.RAISED


def test_no_error_is_the_scripts_own() -> None:
    assert cause_of(None) is FailureCause.RAISED


@pytest.mark.parametrize("modules", [("train",), ("train", "torch.distributed.distributed_c10d")])
def test_gloo_says_when_a_deadline_has_passed(modules: tuple[str, ...]) -> None:
    assert cause_of(caught(RuntimeError(TIMED_OUT), *modules)) is FailureCause.DEADLINE
    mine = RuntimeError("Timed out waiting 300ms for the licence server")
    assert cause_of(caught(mine, "train")) is FailureCause.RAISED
