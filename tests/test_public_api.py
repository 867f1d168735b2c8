"""What others may build on: docs/README.md#what-is-public.  Names may come; none may go or change its meaning."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import allready
from tests.cases import cases

PUBLIC = {
    "tests.fleets": {
        "address_of",
        "check",
        "claim",
        "fleet",
        "healthy_collectives",
        "healthy_node",
        "healthy_path",
        "healthy_reach",
        "healthy_roll",
    },
    "allready.lab": {
        "AppliedFault",
        "Command",
        "Lab",
        "NodeOutcome",
        "ScenarioResult",
        "names",
        "probe",
        "run_scenario",
        "take_down",
    },
    "allready.lab.faults": {
        "DataPortsDropped",
        "DoNotStart",
        "HostsEntry",
        "HostsLoopback",
        "HostsMissing",
        "IdleForgotten",
        "InterfaceMtu",
        "LinkDown",
        "MtuBlackHole",
        "OneWayDrop",
        "PortDropped",
        "RandomLoss",
        "SecondInterface",
        "SlowLink",
        "StartLate",
        "TinyShm",
        "from_file",
        "from_mapping",
        "from_words",
    },
}
MODULES = [
    found.name for found in pkgutil.walk_packages(allready.__path__, "allready.") if not found.name.endswith("__main__")
]


@cases("name", PUBLIC)
def test_a_public_module_lists_its_names_and_each_has_its_text(name: str) -> None:
    module = importlib.import_module(name)
    assert set(module.__all__) >= PUBLIC[name]
    for member in module.__all__:
        found = getattr(module, member)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert inspect.getdoc(found), f"{name}.{member} has no docstring"


def test_all_names_of_every_module_that_lists_some_exist() -> None:
    missing = []
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name in {"torch", "jax"}:
                continue
            raise
        listed = getattr(module, "__all__", ())
        missing += [f"{name}.{member}" for member in listed if not hasattr(module, member)]
        assert len(set(listed)) == len(listed), name
    assert not missing


def test_the_version_needs_nothing_else() -> None:
    code = "import sys, allready; print(allready.__version__, [m for m in sys.modules if m.startswith('allready.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{allready.__version__} []\n"
