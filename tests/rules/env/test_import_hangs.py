from allready.model import FactMissing, Severity
from tests.fleets import check, fleet
from tests.rules.env.test_import_fails import imports

SILENT = {"outcome": "silent", "duration_s": 2.5, "limit_s": 2.5, "recent_cpu_s": 0.0, "state": "sleeping"}


def test_an_import_that_sleeps_names_the_node_and_the_place() -> None:
    place = ('File "/a/torch/__init__.py", line 7 in <module>',)
    [hit] = check("ENV013", fleet(2, imports={0: imports(), 1: imports(**SILENT, stack=place)})).hits
    assert (hit.culprits.nodes, hit.severity, hit.values["place"]) == ((1,), None, place[0])


def test_it_is_an_error_only_after_a_long_time() -> None:
    [hit] = check("ENV013", fleet(1, imports={0: imports(**{**SILENT, "limit_s": 60.0})})).hits
    assert hit.severity is Severity.ERROR


def test_a_slow_import_is_not_called_a_hang() -> None:
    slow = {"outcome": "silent", "duration_s": 2.5, "limit_s": 2.5}
    for recent_s, state in ((0.7, "running"), (0.0, "disk"), (None, None)):
        more = {"recent_cpu_s": recent_s, "state": state}
        assert check("ENV013", fleet(1, imports={0: imports(**slow, **more)})).state == "clear", more


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV013", fleet(1, imports={0: FactMissing("no python")})).unchecked == {0: "no python"}


def test_one_that_waits_for_a_network_file_system_is_only_slow() -> None:
    for place in ("request_wait_answer", "nfs_wait_bit_killable", "rpc_wait_bit_killable"):
        assert check("ENV013", fleet(1, imports={0: imports(**SILENT, wchan=place)})).state == "clear", place
    for other in ("hrtimer_nanosleep", "futex_wait_queue", None):
        assert check("ENV013", fleet(1, imports={0: imports(**SILENT, wchan=other)})).state == "hit", other
