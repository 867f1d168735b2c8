from msgspec.structs import replace

from allready.model import Confidence, EnvFacts, FactMissing, LimitFacts, RdmaFacts, Severity
from tests.fleets import GIB, check, fleet, healthy_node

KIB, MIB = 2**10, 2**20


def limits(memlock: int | None) -> LimitFacts:
    healthy = healthy_node(0, 2).limits
    assert isinstance(healthy, LimitFacts)
    return replace(healthy, memlock_bytes=memlock)


def test_names_the_node_whose_limit_is_64_kib() -> None:
    [hit] = check("LIM003", fleet(2, limits={1: limits(64 * KIB)}, collectives=None)).hits
    assert (hit.culprits.nodes, hit.severity) == ((1,), Severity.ERROR)
    assert (hit.values["limit"], hit.values["ports"]) == ("64 KiB", "mlx5_0:1")


def test_warns_below_16_gib() -> None:
    [hit] = check("LIM003", fleet(2, limits={1: limits(GIB)})).hits
    assert (hit.severity, hit.confidence) == (Severity.WARNING, Confidence.POSSIBLE)


def test_only_warns_when_nccl_worked_all_the_same() -> None:
    [hit] = check("LIM003", fleet(2, limits={1: limits(64 * KIB)})).hits
    assert hit.severity is Severity.WARNING


def test_does_not_matter_without_an_active_rdma_port() -> None:
    assert check("LIM003", fleet(2, limits={1: limits(8 * MIB)}, rdma={1: RdmaFacts(ports=())})).state == "clear"


def test_does_not_matter_when_infiniband_is_switched_off_or_on_one_node() -> None:
    off = EnvFacts(variables={"NCCL_IB_DISABLE": "1"})
    assert check("LIM003", fleet(2, limits={1: limits(8 * MIB)}, env={1: off})).state == "clear"
    assert check("LIM003", fleet(1, limits={0: limits(8 * MIB)})).state == "clear"


def test_is_clear_when_unlimited() -> None:
    assert check("LIM003", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("LIM003", fleet(2, rdma={1: FactMissing("/sys is not mounted")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "/sys is not mounted"})
