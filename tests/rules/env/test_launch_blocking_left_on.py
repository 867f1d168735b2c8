from allready.model import FactMissing
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.env.made import NO_GPU, on_all, variables

NAME = "CUDA_LAUNCH_BLOCKING"


def test_warns_and_names_the_node() -> None:
    [hit] = check("ENV008", fleet(4, env={2: variables(CUDA_LAUNCH_BLOCKING="1")})).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((2,), (NAME,))


def test_blames_no_node_when_it_is_on_everywhere() -> None:
    [hit] = check("ENV008", fleet(4, env=on_all(4, CUDA_LAUNCH_BLOCKING="1"))).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((), (NAME,))


@cases("value", ["0", "", " ", "off"])
def test_knows_what_off_looks_like(value: str) -> None:
    assert check("ENV008", fleet(2, env=on_all(2, CUDA_LAUNCH_BLOCKING=value))).state == "clear"


def test_does_not_mind_nodes_without_gpus() -> None:
    case = fleet(2, env=on_all(2, CUDA_LAUNCH_BLOCKING="1"), gpu=dict.fromkeys((0, 1), NO_GPU))
    assert check("ENV008", case).state == "clear"


def test_is_clear_when_it_is_not_set() -> None:
    assert check("ENV008", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV008", fleet(2, env={1: FactMissing("not sent")})).unchecked == {1: "not sent"}
