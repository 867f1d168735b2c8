from allready.model import NetFacts
from tests.cases import cases
from tests.rules.variables.made import clear, here, interface, net, settings, values

CODE = "VAR019"
DOCKER = net("eth0", "docker0")


@cases("value", ["^docker0", "^docker", "^virbr", "^eth1"])
def test_a_list_of_what_to_leave_out_lets_lo_in(value: str) -> None:
    found = values(CODE, here(NCCL_SOCKET_IFNAME=value), net=DOCKER)
    assert (found["first"], found["better"]) == ("lo", "eth0")
    assert found["command"] == "export NCCL_SOCKET_IFNAME=eth0"


@cases("value", ["^lo,docker", "^docker,lo", "eth0", "^=lo,docker0", "eth"])
def test_filters_that_lead_outside(value: str) -> None:
    assert clear(CODE, here(NCCL_SOCKET_IFNAME=value), net=DOCKER)


def test_lo_by_name_is_right_on_one_node() -> None:
    made = {"here": {"NCCL_SOCKET_IFNAME": "lo"}}
    assert clear(CODE, settings(**made), net=DOCKER)
    assert values(CODE, settings(**made, is_cluster=True), net=DOCKER)["first"] == "lo"


def test_one_node_needs_no_other_interface() -> None:
    assert clear(CODE, settings(here={"NCCL_SOCKET_IFNAME": "^docker0"}, is_cluster=False), net=DOCKER)


def test_a_machine_with_nothing_but_lo() -> None:
    alone = NetFacts(interfaces=(interface("lo", "127.0.0.1/8"),))
    assert clear(CODE, here(NCCL_SOCKET_IFNAME="^docker0"), net=alone)


def test_a_bridge_of_containers_is_no_way_out() -> None:
    made = settings(here={"NCCL_SOCKET_IFNAME": "docker0"}, is_cluster=True)
    assert values(CODE, made, net=DOCKER)["first"] == "docker0"
