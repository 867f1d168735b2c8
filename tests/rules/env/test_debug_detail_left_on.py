import pytest

from allready.model import FactMissing
from tests.fleets import check, fleet
from tests.rules.env.made import on_all, variables

NAME = "TORCH_DISTRIBUTED_DEBUG"


def test_warns_and_names_the_node() -> None:
    [hit] = check("ENV009", fleet(4, env={2: variables(TORCH_DISTRIBUTED_DEBUG="detail")})).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((2,), (NAME,))


def test_blames_no_node_when_it_is_on_everywhere() -> None:
    [hit] = check("ENV009", fleet(4, env=on_all(4, TORCH_DISTRIBUTED_DEBUG="DETAIL"))).hits
    assert hit.culprits.nodes == ()


@pytest.mark.parametrize("value", ["OFF", "INFO", ""])
def test_does_not_mind_the_cheap_levels(value: str) -> None:
    assert check("ENV009", fleet(2, env=on_all(2, TORCH_DISTRIBUTED_DEBUG=value))).state == "clear"


def test_is_clear_when_it_is_not_set() -> None:
    assert check("ENV009", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV009", fleet(2, env={1: FactMissing("not sent")})).unchecked == {1: "not sent"}
