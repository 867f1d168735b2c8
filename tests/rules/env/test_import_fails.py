from typing import Any

from allready.model import FactMissing, Import, ImportFacts
from tests.fleets import check, fleet


def imports(**changes: Any) -> ImportFacts:
    return ImportFacts(modules=(Import(**{"module": "torch", "outcome": "imported", **changes}),))


def test_an_exception_on_import_names_the_node_and_the_error() -> None:
    failed = imports(outcome="failed", error="ImportError: undefined symbol: ncclCommRegister")
    [hit] = check("ENV012", fleet(2, imports={1: failed, 0: imports()})).hits
    assert hit.culprits.nodes == (1,)
    assert "ncclCommRegister" in str(hit.values["error"])


def test_a_crash_names_its_signal() -> None:
    [hit] = check("ENV012", fleet(1, imports={0: imports(outcome="died", signal="SIGSEGV")})).hits
    assert hit.values["signal"] == "SIGSEGV"


def test_an_import_that_is_only_slow_is_no_failure() -> None:
    assert check("ENV012", fleet(1, imports={0: imports(outcome="silent", state="running")})).state == "clear"


def test_what_is_not_installed_is_clear() -> None:
    assert check("ENV012", fleet(1, imports={0: ImportFacts(modules=())})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("ENV012", fleet(1, imports={0: FactMissing("no python")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "no python"})
