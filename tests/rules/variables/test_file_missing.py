from allready.model import Confidence
from tests.rules.variables.made import clear, hits, settings

CODE = "VAR029"
GONE = frozenset({"/opt/topo.xml"})


def test_a_path_that_is_not_there() -> None:
    [hit] = hits(CODE, settings(here={"NCCL_TOPO_FILE": "/opt/topo.xml"}, missing_files=GONE))
    assert (hit.values["value"], hit.values["command"]) == ("/opt/topo.xml", "unset NCCL_TOPO_FILE")
    assert hit.confidence is Confidence.CERTAIN


def test_a_script_may_run_where_it_is() -> None:
    [hit] = hits(CODE, settings(("a.sh", "export NCCL_TOPO_FILE=/opt/topo.xml\n"), missing_files=GONE))
    assert hit.confidence is Confidence.LIKELY


def test_a_file_that_is_there() -> None:
    assert clear(CODE, settings(here={"NCCL_TOPO_FILE": "/opt/other.xml"}, missing_files=GONE))


def test_a_container_has_files_of_its_own() -> None:
    assert clear(CODE, settings(("Dockerfile", "FROM x\nENV NCCL_TOPO_FILE=/opt/topo.xml\n"), missing_files=GONE))
