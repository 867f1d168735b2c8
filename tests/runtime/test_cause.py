"""Whose error it is that a rank caught: one that follows from another rank makes this one no culprit."""

import types

import pytest

from allready.model import FailureCause
from allready.runtime.recovery import cause_of


def caught(error: Exception, *modules: str) -> Exception:
    """As raised in the last of these modules, called by those before it."""
    call = None
    for name in reversed(modules):
        module = types.ModuleType(name)
        module.__dict__.update(inner=call, error=error)
        exec("def call():\n    if inner is None:\n        raise error\n    inner()", module.__dict__)
        call = module.__dict__["call"]
    assert call is not None
    with pytest.raises(type(error)) as found:
        call()
    return found.value


@pytest.mark.parametrize(
    "modules",
    [
        ("train", "torch.distributed.distributed_c10d"),
        ("train", "torch.autograd.graph"),
        ("train", "torch.distributed.tensor._dispatch", "torch._ops"),
    ],
)
def test_a_collective_that_fails_accuses_nobody(modules: tuple[str, ...]) -> None:
    assert cause_of(caught(RuntimeError("Timed out waiting"), *modules)) is FailureCause.BACKEND


@pytest.mark.parametrize(
    ("error", "modules"),
    [
        (RuntimeError("shape"), ("train", "torch.nn.functional")),
        (RuntimeError("shape"), ("train", "torch._ops")),
        (ValueError("mine"), ("train", "torch.distributed.distributed_c10d")),
        (RuntimeError("mine"), ("torch.distributed.run", "train")),
    ],
)
def test_the_scripts_own_error_is_its_own(error: Exception, modules: tuple[str, ...]) -> None:
    assert cause_of(caught(error, *modules)) is FailureCause.RAISED


def test_no_error_is_the_scripts_own() -> None:
    assert cause_of(None) is FailureCause.RAISED
