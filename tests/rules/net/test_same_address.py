from msgspec.structs import replace

from allready.model import FactMissing
from tests.fleets import check, commands, fleet
from tests.rules.net.made import choosing, choosing_both, host_of, interface, net_of, plus

DOCKER = interface("docker0", "172.17.0.1/16", mac="02:42:00:00:00:01")


def bridged(*nodes: int, pattern: str | None = None):  # type: ignore[no-untyped-def]
    return {
        "net": {n: plus(n, DOCKER) for n in nodes},
        "transport": {n: choosing_both(n, "docker0", "172.17.0.1", pattern) for n in nodes},
    }


def test_names_all_nodes_that_chose_the_address() -> None:
    [hit] = check("NET009", fleet(4, **bridged(1, 3))).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((1, 3), ())
    assert hit.values["address"] == "172.17.0.1"
    assert commands("NET009", hit)[:2] == ["export GLOO_SOCKET_IFNAME=eth0", "export NCCL_SOCKET_IFNAME=eth0"]


def test_names_the_variable_that_chose_it() -> None:
    [hit] = check("NET009", fleet(2, **bridged(0, 1, pattern="docker"))).hits
    assert hit.culprits.variables == ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def test_lets_processes_of_one_machine_share_an_address() -> None:
    one = net_of(0)
    case = fleet(
        3,
        net=dict.fromkeys((1, 2), one),
        host={n: host_of(0) for n in (1, 2)},
        transport={n: choosing_both(n, "eth0", "10.0.0.1") for n in (1, 2)},
    )
    assert check("NET009", case).state == "clear"


def test_tells_namespaces_of_one_machine_apart() -> None:
    # As in the laboratory: one kernel, equal names, but cards of their own.
    host = {n: replace(host_of(n), boot_id="one", hostname="one") for n in (0, 1)}
    assert check("NET009", fleet(2, host=host, **bridged(0, 1))).state == "hit"


def test_leaves_loopback_to_other_rules() -> None:
    transport = {n: choosing_both(n, "lo", "127.0.0.1") for n in range(3)}
    assert check("NET009", fleet(3, transport=transport)).state == "clear"


def test_does_not_mind_what_a_library_chose_that_the_job_does_not_use() -> None:
    from allready.model import LaunchFacts
    from tests.fleets import healthy_node

    launch = {}
    for n in (0, 1):
        job = healthy_node(n, 2).launch
        assert isinstance(job, LaunchFacts)
        launch[n] = replace(job, backend="gloo")
    transport = {n: choosing("nccl", n, "docker0", "172.17.0.1") for n in (0, 1)}
    assert check("NET009", fleet(2, transport=transport, launch=launch)).state == "clear"


def test_is_clear_when_every_node_has_its_own() -> None:
    assert check("NET009", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("NET009", fleet(2, transport={1: FactMissing("no interfaces")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "no interfaces"})
