import random
from statistics import median_low

from allready.model import Confidence, Severity
from allready.model.fill import fill
from allready.rules.net._pace import PROBE_BYTES
from allready.units import path_speed
from tests.fleets import check, fleet
from tests.rules.net.made import both, not_looked_at, reached, second_network

SLOW = {"throughput_gb_per_s": 0.05}  # 1 MiB in 21 ms instead of 0.5 ms
FAR = {"rtt_s": 0.02}


def touching(node: int, num_nodes: int, change: dict[str, float]) -> dict[tuple[int, int], dict[str, float]]:
    return {k: v for other in range(num_nodes) if other != node for k, v in both(node, other, change).items()}


def test_names_the_node_whose_every_path_is_slow() -> None:
    for num_nodes in (3, 4, 8):
        [hit] = check("NET017", reached(num_nodes, paths=touching(1, num_nodes, SLOW))).hits
        assert hit.culprits.nodes == (1,)
        assert (hit.values["what"], hit.values["worst"], hit.values["median"]) == ("1 MiB", "400 Mbit/s", "16 Gbit/s")


def test_names_only_the_pair_when_both_nodes_are_fast_elsewhere() -> None:
    [hit] = check("NET017", reached(6, paths=both(2, 4, SLOW))).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((2, 4), (4, 2)))


def test_sees_a_long_round_trip() -> None:
    [hit] = check("NET017", reached(4, paths=touching(3, 4, FAR))).hits
    assert (hit.culprits.nodes, hit.values["what"], hit.values["worst"]) == ((3,), "RTT", "20.00 ms")


def test_sees_a_throughput_that_was_rounded_to_nothing() -> None:
    [hit] = check("NET017", reached(4, paths=touching(3, 4, {"throughput_gb_per_s": 0.0}))).hits
    assert hit.culprits.nodes == (3,)


def test_round_trips_that_were_rounded_to_nothing_are_compared_all_the_same() -> None:
    paths = {(a, b): {"rtt_s": 0.1 if 3 in (a, b) else 0.0} for a in range(4) for b in range(4) if a != b}
    [hit] = check("NET017", reached(4, paths=paths)).hits
    assert (hit.culprits.nodes, hit.values["what"]) == ((3,), "RTT")


def test_blames_nobody_on_a_tie() -> None:
    halves = {k: v for a in (0, 1) for k, v in touching(a, 4, SLOW).items()}
    assert check("NET017", reached(4, paths=halves)).state == "clear"


def test_says_nothing_of_two_nodes() -> None:
    assert check("NET017", reached(2, paths={(0, 1): SLOW})).state == "clear"


def test_takes_one_slow_direction_for_chance() -> None:
    assert check("NET017", reached(6, paths={(2, 4): SLOW})).state == "clear"


def test_does_not_mind_what_a_scheduler_may_have_done() -> None:
    assert check("NET017", reached(4, paths=touching(1, 4, {"throughput_gb_per_s": 0.3}))).state == "clear"


def test_is_clear_when_all_paths_are_alike() -> None:
    assert check("NET017", fleet(6)).state == "clear"


def test_is_not_checked_without_probes() -> None:
    assert check("NET017", not_looked_at()).state == "not_checked"


CRAWLS = {"throughput_gb_per_s": 0.0005}  # 4 Mbit/s


def test_a_node_that_is_slow_beyond_doubt_is_an_error_with_the_bandwidth_of_every_node() -> None:
    [hit] = check("NET017", reached(3, paths=touching(1, 3, CRAWLS))).hits
    assert (hit.severity, hit.culprits.nodes, hit.values["worst"]) == (Severity.ERROR, (1,), "4 Mbit/s")
    shown = {e.node_rank: e.text for e in hit.evidence if e.source.startswith("bandwidth")}
    assert shown == {0: "out 16 Gbit/s, in 16 Gbit/s", 1: "out 4 Mbit/s, in 4 Mbit/s", 2: "out 16 Gbit/s, in 16 Gbit/s"}
    assert hit.values["interface"] == "eth0"


def test_a_node_that_is_slow_in_one_direction_is_named() -> None:
    into = {(0, 1): CRAWLS, (2, 1): CRAWLS}
    [hit] = check("NET017", reached(3, paths=into)).hits
    assert (hit.culprits.nodes, set(hit.culprits.links)) == ((1,), set(into))


def test_two_slow_nodes_of_three_are_a_slow_network_and_no_fault_of_anybody() -> None:
    paths = {k: v for node in (0, 1) for k, v in touching(node, 3, CRAWLS).items()}
    assert check("NET017", reached(3, paths=paths)).state == "clear"


def test_round_trips_behind_a_slow_link_are_not_compared() -> None:
    slow = {(a, b): {"throughput_gb_per_s": 0.001} for a in range(3) for b in range(3) if a != b}
    slow |= {pair: {"throughput_gb_per_s": 0.001, "rtt_s": 0.05} for pair in ((0, 1), (1, 0))}
    assert check("NET017", reached(3, paths=slow)).state == "clear"


def test_half_of_the_nodes_are_named_where_the_others_reach_each_other() -> None:
    """Seen: nodes 1 and 2 of four at 4 Mbit/s; no rank was named."""
    halves = {k: v for node in (1, 2) for k, v in touching(node, 4, CRAWLS).items()}
    [hit] = check("NET017", reached(4, paths=halves)).hits
    assert (hit.severity, hit.confidence, hit.culprits.nodes) == (Severity.ERROR, Confidence.POSSIBLE, (1, 2))
    assert fill("{who} {who:is/are}", hit.values) == "node 1 (gpu1), 2 (gpu2) are"
    shown = {e.node_rank: e.text for e in hit.evidence if e.source.startswith("bandwidth")}
    assert (shown[0], shown[1]) == ("out 16 Gbit/s, in 16 Gbit/s", "out 4 Mbit/s, in 4 Mbit/s")
    usable = {pair: {"throughput_gb_per_s": 0.012} for pair in halves}  # two containers on one machine, 100 Mbit/s
    assert check("NET017", reached(4, paths=usable)).state == "clear"
    most = {k: v for node in (1, 2, 3) for k, v in touching(node, 4, CRAWLS).items()}
    assert check("NET017", reached(4, paths=most)).state == "clear"
    assert check("NET017", reached(6, paths={k: v for n in (1, 2, 3) for k, v in touching(n, 6, CRAWLS).items()})).hits


def test_a_node_that_crawls_is_named_beside_one_that_is_only_slow() -> None:
    """Seen: of four nodes one at 4 Mbit/s and one at 20; the slower was named after half a minute of collectives."""
    other = touching(2, 4, {"throughput_gb_per_s": 0.0025})
    [hit] = check("NET017", reached(4, paths=other | touching(1, 4, CRAWLS))).hits
    assert (hit.severity, hit.confidence, hit.culprits.nodes) == (Severity.ERROR, Confidence.LIKELY, (1,))


def test_a_slow_direction_is_told_though_the_acknowledgements_of_the_other_wait_in_it() -> None:
    """Seen: 10 Mbit/s out of node 0 of four; what came in was slower, too, and the error was only a warning."""
    paths = {(a, b): {"throughput_gb_per_s": 0.08} for a in (1, 2, 3) for b in (1, 2, 3) if a != b}
    paths |= {(0, n): {"throughput_gb_per_s": rate} for n, rate in ((1, 0.0002), (2, 0.00017), (3, 0.00086))}
    paths |= {(n, 0): {"throughput_gb_per_s": rate} for n, rate in ((1, 0.016), (2, 0.0037), (3, 0.0028))}
    [hit] = check("NET017", reached(4, paths=paths)).hits
    assert (hit.severity, hit.culprits.nodes) == (Severity.ERROR, (0,))
    assert hit.culprits.links == ((0, 1), (0, 2), (0, 3))


def test_a_direction_whose_answers_never_came_back_is_missed_by_nobody() -> None:
    """Seen: 1 Mbit/s at node 2 of three; 2 -> 1 could not be measured, and no rank was named before the collectives."""
    paths = touching(2, 3, CRAWLS) | {(2, 1): {"throughput_gb_per_s": None}}
    [hit] = check("NET017", reached(3, paths=paths)).hits
    assert (hit.severity, hit.culprits.nodes) == (Severity.ERROR, (2,))
    assert {e.node_rank for e in hit.evidence if e.source.startswith("bandwidth")} == {0, 1, 2}
    one = paths | {(1, 2): {"throughput_gb_per_s": None}}  # one peer alone tells nothing of a node
    assert check("NET017", reached(3, paths=one)).state == "clear"


def test_each_network_of_the_nodes_is_compared_by_itself() -> None:
    """Two interfaces per node: one link of one node is slow, the other carries as much as all others."""
    [hit] = check("NET017", second_network(3, paths=touching(1, 3, CRAWLS))).hits
    assert (hit.severity, hit.culprits.nodes) == (Severity.ERROR, (1,))
    assert (hit.values["interface"], str(hit.values["address"]).startswith("10.9.0.")) == ("eth1", True)
    everywhere = {(a, b): CRAWLS for a in range(3) for b in range(3) if a != b}
    assert check("NET017", second_network(3, paths=everywhere)).state == "clear"


def test_noise_of_a_shared_network_is_no_slow_path() -> None:
    """100 Mbit/s with an ordinary spread: the nodes' best paths are always faster than the median of all."""
    for seed in range(150):
        rng = random.Random(seed)
        rates = {
            (a, b): {"throughput_gb_per_s": 0.1 / rng.lognormvariate(0, 0.5)}
            for a in range(6)
            for b in range(6)
            if a != b
        }
        assert check("NET017", reached(6, paths=rates)).state == "clear", seed


def test_what_is_elsewhere_is_the_median_of_the_directions_that_are_not_named() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        rates = {(a, b): 0.5 / rng.lognormvariate(0, 0.3) for a in range(5) for b in range(5) if a != b}
        rates |= dict.fromkeys(((1, 3), (3, 1)), 0.001)
        [hit] = check("NET017", reached(5, paths={k: {"throughput_gb_per_s": r} for k, r in rates.items()})).hits
        others = [PROBE_BYTES / (r * 1e9) for k, r in rates.items() if k not in ((1, 3), (3, 1))]
        assert hit.culprits.links == ((1, 3), (3, 1)), seed
        assert hit.values["median"] == path_speed(PROBE_BYTES / median_low(others) / 1e9), seed


def test_a_slow_node_beside_lossy_paths_is_not_compared_with_these() -> None:
    """Seen: "19.6 Mbit/s, elsewhere 6.07 Mbit/s at the median"."""
    node, lossy = {"throughput_gb_per_s": 0.00245}, {"throughput_gb_per_s": 0.00038}
    one_way = touching(2, 3, node) | {(0, 1): lossy}
    [hit] = check("NET017", reached(3, paths=one_way)).hits
    assert (hit.culprits.nodes, hit.values["worst"], hit.values["median"]) == ((2,), "19.6 Mbit/s", "16 Gbit/s")
    half = touching(3, 4, node) | {(0, 1): lossy, (1, 2): lossy, (2, 0): lossy}
    for paths, median in ((half, "16 Gbit/s"), (half | {(0, 2): lossy}, None)):
        [hit] = check("NET017", reached(4, paths=paths)).hits
        assert (hit.culprits.nodes, hit.values["median"], hit.values["best"]) == ((3,), median, "16 Gbit/s")
