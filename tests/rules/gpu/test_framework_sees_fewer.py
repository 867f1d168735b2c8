from typing import Any

from allready.model import EnvFacts, FactMissing, Fleet
from tests.fleets import check, fleet
from tests.rules.env.test_devices_fail import asked
from tests.rules.gpu.made_up import gpu, gpus

CUDA = {"platform": "cuda", "names": ("NVIDIA H200",)}


def made(module: str = "torch", driver: Any = None, variables: Any = None, **devices: Any) -> Fleet:
    """A machine with two GPUs, and what a module sees of them."""
    more = {} if variables is None else {"env": {0: EnvFacts(variables=variables)}}
    return fleet(1, imports={0: asked(module, **{**CUDA, **devices})}, gpu={0: driver or gpus()}, **more)


def test_says_how_many_are_missing_and_why() -> None:
    [hit] = check("GPU023", made(names=(), error="RuntimeError: Error 802: system not yet initialized")).hits
    assert (hit.culprits.nodes, hit.values["listed"], hit.values["seen"]) == ((0,), 2, 0)
    assert "802" in str(hit.values["error"])


def test_jax_is_counted_where_it_uses_gpus() -> None:
    [hit] = check("GPU023", made("jax", platform="gpu")).hits
    assert (hit.values["module"], hit.values["seen"], hit.values["error"]) == ("jax", 1, None)


def test_fewer_that_are_meant_are_left_alone() -> None:
    others = {
        "all of them": made(names=("NVIDIA H200",) * 2),
        "CUDA_VISIBLE_DEVICES": made(driver=gpus(visible=(0,), visible_devices="0")),
        "JAX_PLATFORMS": made("jax", variables={"JAX_PLATFORMS": "cuda"}, platform="gpu"),
        "two models": made(driver=gpus(gpus=(gpu(0), gpu(1, name="NVIDIA T400")))),
        "MIG": made(driver=gpus(gpus=(gpu(0, is_mig=True), gpu(1)))),
        "torch for CPUs": made(platform="cpu", names=()),
        "torch for ROCm": made(platform="rocm", names=()),
        "JAX on the CPU": made("jax", platform="cpu", names=("cpu",)),
        "no answer": made(outcome="silent", names=()),
    }
    assert {why: state for why, one in others.items() if (state := check("GPU023", one).state) != "clear"} == {}


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU023", fleet(1, imports={0: FactMissing("no python")})).unchecked == {0: "no python"}
