from msgspec.structs import replace

from allready.model import Confidence, FactMissing, Severity, World, WorldNode
from tests.fleets import check, commands, fleet, healthy_reach
from tests.rules.net.made import NO_ROUTE, choosing, choosing_both, host_of, interface, net_of, plus

BRIDGE = interface("docker0", "172.17.0.9/16")


def test_names_node_and_variable_when_only_loopback_is_selected() -> None:
    transport = {1: choosing("nccl", 1, "lo", "127.0.0.1", pattern="^docker0,eth0")}
    [hit] = check("NET012", fleet(4, transport=transport)).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((1,), ("NCCL_SOCKET_IFNAME",))
    assert (hit.severity, hit.confidence) == (None, Confidence.CERTAIN)
    assert commands("NET012", hit)[0] == "export NCCL_SOCKET_IFNAME=eth0"


def test_is_only_likely_of_a_bridge_that_was_not_probed() -> None:
    transport = {1: choosing("gloo", 1, "docker0", "172.17.0.9", pattern="docker0")}
    case = fleet(3, transport=transport, net={1: plus(1, BRIDGE)}, reach=None)
    [hit] = check("NET012", case).hits
    assert (hit.severity, hit.confidence) == (Severity.ERROR, Confidence.LIKELY)


def test_is_certain_of_a_bridge_that_nobody_got_through_to() -> None:
    probes = {(a, 1): {**NO_ROUTE, "address": "172.17.0.9", "interface": "docker0"} for a in (0, 2)}
    transport = {1: choosing_both(1, "docker0", "172.17.0.9", "docker0")}
    case = fleet(3, transport=transport, net={1: plus(1, BRIDGE)}, reach=healthy_reach(3, probes))
    hits = check("NET012", case).hits
    assert [h.culprits.variables for h in hits] == [("NCCL_SOCKET_IFNAME",), ("GLOO_SOCKET_IFNAME",)]
    assert {h.confidence for h in hits} == {Confidence.CERTAIN}


def test_acquits_a_bridge_that_carries_the_probes() -> None:
    probes = {(a, 1): {"address": "172.17.0.9", "interface": "docker0"} for a in (0, 2)}
    transport = {1: choosing_both(1, "docker0", "172.17.0.9", "docker0")}
    case = fleet(3, transport=transport, net={1: plus(1, BRIDGE)}, reach=healthy_reach(3, probes))
    assert check("NET012", case).state == "clear"


def test_acquits_a_veth_unless_probes_fail() -> None:
    # In the laboratory and in containers the real link may be called so.
    net = {n: plus(n, interface("veth1", f"10.3.0.{n}/24")) for n in (0, 1)}
    transport = {n: choosing_both(n, "veth1", f"10.3.0.{n}") for n in (0, 1)}
    assert check("NET012", fleet(2, transport=transport, net=net, reach=None)).state == "clear"


def test_allows_loopback_on_one_machine() -> None:
    transport = {n: choosing_both(n, "lo", "127.0.0.1", "lo") for n in (0, 1)}
    same = {"net": {n: net_of(0) for n in (0, 1)}, "host": {n: host_of(0) for n in (0, 1)}}
    assert check("NET012", fleet(2, transport=transport, **same)).state == "clear"


def test_leaves_gloo_s_loopback_by_its_own_name_to_the_name_rules() -> None:
    assert check("NET012", fleet(2, transport={1: choosing("gloo", 1, "lo", "127.0.1.1")})).state == "clear"


def test_is_clear_when_real_interfaces_are_chosen() -> None:
    assert check("NET012", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET012", fleet(3, net={2: FactMissing("unreadable")})).unchecked == {2: "unreadable"}


def test_one_machine_alone_is_judged_as_a_node_of_several_with_less_certainty() -> None:
    """As `doctor --nnodes 2` does: no other process's facts are known, and nothing was probed."""
    world = World(num_nodes=2, world_size=2, nodes=(WorldNode(node_rank=0, name="gpu0", ranks=(0,)),))
    bridge = choosing("nccl", 0, "docker0", "172.17.0.9", pattern="docker0")
    loopback = choosing("nccl", 0, "lo", "127.0.0.1")
    for transport in (bridge, loopback):
        nobody = {"roll": None, "reach": None, "collectives": None}
        case = fleet(1, transport={0: transport}, net={0: plus(0, BRIDGE)}, world=world, **nobody)
        [hit] = check("NET012", case).hits
        assert (hit.severity, hit.confidence) == (Severity.ERROR, Confidence.LIKELY)
        alone = replace(world, num_nodes=1)
        assert check("NET012", fleet(1, transport={0: transport}, world=alone, **nobody)).state == "clear"
