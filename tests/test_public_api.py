"""What others may build on: docs/README.md#what-is-public.  Names may come; none may go or change its meaning."""

import importlib
import inspect
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


@cases("name", PUBLIC)
def test_a_public_module_lists_its_names_and_each_has_its_text(name: str) -> None:
    module = importlib.import_module(name)
    assert set(module.__all__) >= PUBLIC[name]
    for member in module.__all__:
        found = getattr(module, member)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert inspect.getdoc(found), f"{name}.{member} has no docstring"


def test_the_version_needs_nothing_else() -> None:
    code = "import sys, allready; print(allready.__version__, [m for m in sys.modules if m.startswith('allready.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{allready.__version__} []\n"
