from typing import Any

from msgspec.structs import replace

from allready.model import Devices, FactMissing, ImportFacts
from tests.fleets import check, fleet
from tests.rules.env.test_import_fails import imports
from tests.rules.gpu.made_up import gpus


def asked(module: str = "jax", **changes: Any) -> ImportFacts:
    """A module that was imported and asked for its devices."""
    devices = Devices(**{"outcome": "answered", "platform": "cpu", "names": ("cpu",), **changes})
    return imports(module=module, devices=devices)


def test_an_end_of_the_interpreter_names_the_node_and_how() -> None:
    died = asked(outcome="died", exit_code=1, error="Unknown flag in XLA_FLAGS: --xla_nonsense=1")
    [hit] = check("ENV020", fleet(2, imports={0: asked(), 1: died})).hits
    assert (hit.culprits.nodes, hit.values["exit_code"]) == ((1,), 1)
    assert "xla_nonsense" in hit.evidence[0].text


def test_torch_without_gpus_may_fail_and_jax_may_not() -> None:
    failed = {"outcome": "failed", "error": "RuntimeError: Found no NVIDIA driver on your system"}
    for has_gpus in (True, False):
        driver = gpus() if has_gpus else replace(gpus(), gpus=(), visible=())
        for module in ("torch", "jax"):
            outcome = check("ENV020", fleet(1, imports={0: asked(module, **failed)}, gpu={0: driver}))
            assert outcome.state == ("hit" if has_gpus or module == "jax" else "clear"), (module, has_gpus)


def test_an_answer_silence_and_no_question_are_no_failure() -> None:
    for one in (asked(), asked(outcome="silent", state="running"), imports()):
        assert check("ENV020", fleet(1, imports={0: one})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV020", fleet(1, imports={0: FactMissing("no python")})).unchecked == {0: "no python"}
