from typing import Any

from allready.model import FactMissing, Severity
from tests.fleets import check, fleet
from tests.rules.env.test_devices_fail import asked
from tests.rules.env.test_import_fails import imports
from tests.rules.env.test_import_hangs import SILENT

ASLEEP: dict[str, Any] = {**SILENT}


def test_a_question_that_sleeps_names_the_node_and_the_place() -> None:
    place = ('File "/a/torch/cuda/__init__.py", line 412 in _lazy_init',)
    [hit] = check("ENV021", fleet(2, imports={0: asked(), 1: asked("torch", **ASLEEP, stack=place)})).hits
    assert (hit.culprits.nodes, hit.severity, hit.values["place"]) == ((1,), None, place[0])


def test_it_is_an_error_only_after_a_long_time() -> None:
    [hit] = check("ENV021", fleet(1, imports={0: asked(**{**ASLEEP, "limit_s": 29.0})})).hits
    assert hit.severity is Severity.ERROR


def test_one_that_still_computes_is_only_slow() -> None:
    for changes in ({"recent_cpu_s": 0.7, "state": "running"}, {"recent_cpu_s": None}, {"wchan": "nfs_wait"}):
        assert check("ENV021", fleet(1, imports={0: asked(**{**ASLEEP, **changes})})).state == "clear", changes
    assert check("ENV021", fleet(1, imports={0: imports(**ASLEEP)})).state == "clear", "the import is ENV013's"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV021", fleet(1, imports={0: FactMissing("no python")})).unchecked == {0: "no python"}
