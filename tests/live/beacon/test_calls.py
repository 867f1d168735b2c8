"""What the user's code calls where no frame tells."""

import math
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

import pytest

from allready.live.beacon.calls import BlockingCalls, callee, may_be_compiled


class Handle:
    """Stands in a call, like the handle of an asynchronous operation in C."""

    def __init__(self) -> None:
        self.seen: tuple[CodeType, int, dict[str, Any]] | None = None

    def wait(self, *values: object) -> object:
        caller = sys._getframe(1)
        self.seen = caller.f_code, caller.f_lasti, caller.f_globals
        return values

    item = cpu = other = block_until_ready = acquire = __call__ = wait


def kind(call: Callable[[Any], object], *, is_jax_job: bool = False) -> str:
    handle = Handle()
    call(handle)
    return BlockingCalls().blocking(handle.seen, is_jax_job=is_jax_job)


def test_a_wait_right_in_the_users_code_is_read_from_its_source() -> None:
    assert kind(lambda work: work.wait()) == "torch"
    assert kind(lambda work: str(work.wait())) == "torch"
    assert kind(lambda work: [work][0].wait(1, (2, 3), "x")) == "torch"
    assert kind(lambda x: x.item()) == "gpu"
    assert kind(lambda x: (x.cpu(), len("x"))) == "gpu"
    assert kind(lambda x: x.other()) == ""
    assert kind(lambda x: x.block_until_ready()) == "jax"
    assert kind(lambda x: x.wait("over", "several lines")) == "torch"


def test_in_a_job_of_jax_a_function_of_any_name_may_wait() -> None:
    assert kind(lambda train_step: train_step(), is_jax_job=True) == "jax"
    assert kind(lambda self: self.other(1), is_jax_job=True) == "jax"
    assert kind(lambda lock: lock.acquire(), is_jax_job=True) == "other"
    assert kind(lambda lock: lock.acquire()) == ""
    assert kind(lambda train_step: train_step()) == ""


def test_what_a_name_means_decides_where_it_can_be_known() -> None:
    made = type("PjitFunction", (), {"__module__": "jaxlib._jax"})()
    module = ModuleType("steps")
    module.step = made  # type: ignore[attr-defined]
    names: dict[str, Any] = {"step": made, "math": math, "steps": module, "thing": Handle(), "time": __import__("time")}
    assert may_be_compiled("step", names)
    assert may_be_compiled("steps.step", names)
    assert may_be_compiled("local_step", names)
    assert may_be_compiled("self.step", names)
    assert may_be_compiled("steps_by_name['x']", names)
    assert not may_be_compiled("time.sleep", names)
    assert not may_be_compiled("math.sqrt", names)
    assert not may_be_compiled("print", names)
    assert not may_be_compiled("thing", names)
    assert not may_be_compiled("queue.get", names)
    assert not may_be_compiled("locks[0].acquire", names)
    assert not may_be_compiled("", names)


def test_nothing_of_an_object_is_run_to_find_out() -> None:
    class Trap:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    assert may_be_compiled("trap.step", {"trap": Trap()})


@pytest.mark.parametrize("source", ["handle.wait()", "x = handle.other"])
def test_source_that_is_not_there_says_nothing(source: str) -> None:
    handle = Handle()
    code = compile(source, "/nowhere/x.py", "exec")
    exec(code, {"handle": handle})
    assert callee(code, 4) == ""
    assert BlockingCalls().blocking(handle.seen, is_jax_job=False) == ""
