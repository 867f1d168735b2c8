from msgspec.structs import replace

from allready.model import EnvFacts, FactMissing, Fleet, LimitFacts, RdmaFacts, Severity, World
from tests.fleets import check, fleet, healthy_node


def limits(soft: int | None, hard: int | None = 1048576) -> LimitFacts:
    healthy = healthy_node(0, 2).limits
    assert isinstance(healthy, LimitFacts)
    return replace(healthy, nofile_soft=soft, nofile_hard=hard)


def with_world_size(made: Fleet, world_size: int) -> Fleet:
    return replace(made, world=World(num_nodes=made.world.num_nodes, world_size=world_size, nodes=made.world.nodes))


def test_64_files_are_too_few_for_nccl() -> None:
    [hit] = check("LIM004", fleet(2, limits={1: limits(64)})).hits
    assert (hit.culprits.nodes, hit.severity) == ((1,), Severity.ERROR)
    assert hit.values["fit"] == 1024


def test_256_files_are_fewer_than_is_customary() -> None:
    [hit] = check("LIM004", fleet(2, limits={0: limits(256)})).hits
    assert hit.severity is Severity.WARNING


def test_the_customary_1024_are_enough_for_32_ranks() -> None:
    made = fleet(4, limits={0: limits(1024)}, rdma={0: RdmaFacts(ports=())})
    assert check("LIM004", with_world_size(made, 32)).state == "clear"


def test_and_too_few_for_1024_ranks_whose_gloo_groups_are_full_meshes() -> None:
    [hit] = check("LIM004", with_world_size(fleet(4, limits={0: limits(1024)}), 1024)).hits
    assert hit.severity is Severity.ERROR
    assert int(str(hit.values["fit"])) >= int(str(hit.values["wanted"]))


def test_counts_nccls_sockets_where_there_is_no_rdma() -> None:
    env = EnvFacts(variables={"NCCL_NSOCKS_PERTHREAD": "8", "NCCL_SOCKET_NTHREADS": "8"})
    many = fleet(2, limits={0: limits(2048)}, rdma={0: RdmaFacts(ports=())}, env={0: env})
    assert check("LIM004", with_world_size(many, 16)).state == "hit"
    assert check("LIM004", with_world_size(fleet(2, limits={0: limits(2048)}, env={0: env}), 16)).state == "clear"


def test_garbage_in_the_variables_does_not_matter() -> None:
    env = EnvFacts(variables={"NCCL_NSOCKS_PERTHREAD": "9" * 50, "NCCL_SOCKET_NTHREADS": "many"})
    made = fleet(2, limits={0: limits(2048)}, rdma={0: RdmaFacts(ports=())}, env={0: env})
    assert check("LIM004", made).state == "clear"


def test_does_not_tell_to_exceed_the_hard_limit_while_that_is_enough() -> None:
    [hit] = check("LIM004", fleet(2, limits={0: limits(256, hard=700)})).hits
    assert hit.values["fit"] == 700


def test_tells_root_what_to_allow_when_the_hard_limit_is_reached() -> None:
    [hit] = check("LIM004", fleet(2, limits={0: limits(128, hard=128)})).hits
    assert hit.values["fit"] == 1024


def test_is_clear_when_unlimited_or_high() -> None:
    assert check("LIM004", fleet(4)).state == "clear"
    assert check("LIM004", fleet(2, limits={0: limits(None, None)})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("LIM004", fleet(2, limits={1: FactMissing("permission denied")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "permission denied"})
