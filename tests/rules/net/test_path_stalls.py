from allready.model import BenchPoint, CollectiveRun, Collectives, FaultClass, Severity
from tests.fleets import check, fleet
from tests.rules.net.made import both, not_looked_at, reached, stuck

CRAWL = {"passed_bytes": (64, 1400, 9000), "throughput_gb_per_s": 0.0002, "duration_s": 3.3, "detail": "slow: ..."}


def swept(num_nodes: int, gb_per_s: float) -> Collectives:
    """A sweep of all ranks that was so fast at every size."""
    points = tuple(
        BenchPoint(
            size_bytes=size, time_s=size / gb_per_s / 1e9, algbw_gb_per_s=gb_per_s, busbw_gb_per_s=gb_per_s,
            num_errors=0, num_iterations=1,
        )
        for size in (2**16, 2**18, 2**20)
    )  # fmt: skip
    run = CollectiveRun(label="all", backend="gloo", ranks=tuple(range(num_nodes)), stages=(), points=points)
    return Collectives(runs=(run,))


def test_reports_a_large_payload_that_never_arrives() -> None:
    [hit] = check("NET008", reached(2, paths={(0, 1): stuck(2**20, 64, 1400, 9000)})).hits
    assert (hit.severity, hit.culprits.links) == (Severity.ERROR, ((0, 1),))
    assert (hit.values["passed"], hit.values["stuck"]) == ("8.79 KiB", "1 MiB")


def test_blocks_when_not_even_the_smallest_payload_arrives() -> None:
    [hit] = check("NET008", reached(2, paths={(0, 1): stuck(64)})).hits
    assert (hit.severity, hit.fault_class) == (Severity.BLOCKER, FaultClass.START_PATH)


def test_only_warns_of_bytes_that_move_slowly() -> None:
    [hit] = check("NET008", reached(2, paths={(0, 1): CRAWL})).hits
    assert hit.severity is Severity.WARNING


def test_a_sweep_that_crawls_as_well_makes_it_an_error() -> None:
    """Seen with 4 Mbit/s between two nodes, which no third one shows to be slow: the check was healthy."""
    for gb_per_s, severity in ((0.0005, Severity.ERROR), (0.05, Severity.WARNING)):
        [hit] = check("NET008", reached(2, paths={(0, 1): CRAWL}, collectives=swept(2, gb_per_s))).hits
        assert hit.severity is severity, gb_per_s


def test_a_pair_among_several_nodes_is_an_error_beside_a_sweep_as_slow() -> None:
    """NET017 only warns of a pair, so that the check of a job with 4 Mbit/s was healthy."""
    for num_nodes in (2, 3, 4, 6):
        slow = reached(num_nodes, paths=both(0, 1, CRAWL), collectives=swept(num_nodes, 0.0005))
        [hit] = check("NET008", slow).hits
        assert (hit.severity, hit.culprits.links) == (Severity.ERROR, ((0, 1), (1, 0))), num_nodes
        usable = reached(num_nodes, paths=both(0, 1, CRAWL), collectives=swept(num_nodes, 0.05))
        assert all(h.severity is Severity.WARNING for h in check("NET008", usable).hits), num_nodes
        assert num_nodes == 2 or (check("NET008", usable).state, check("NET017", usable).state) == ("clear", "hit")


def test_a_node_that_another_rule_makes_an_error_is_reported_once() -> None:
    paths = {k: v for other in (0, 2, 3) for k, v in both(1, other, CRAWL).items()}
    crawling = reached(4, paths=paths, collectives=swept(4, 0.0005))
    assert check("NET008", crawling).state == "clear"
    assert [h.severity for h in check("NET017", crawling).hits] == [Severity.ERROR]


def test_names_the_node_that_all_stalled_paths_share() -> None:
    paths = {(a, 2): stuck(2**20, 64, 1400, 9000) for a in (0, 1, 3)}
    [hit] = check("NET008", reached(4, paths=paths)).hits
    assert hit.culprits.nodes == (2,)


def test_leaves_a_matter_of_size_to_the_other_rule() -> None:
    assert check("NET008", reached(2, paths={(0, 1): stuck(9000, 64, 1400)})).state == "clear"


def test_is_clear_when_payloads_return() -> None:
    assert check("NET008", fleet(4)).state == "clear"


def test_is_not_checked_without_probes() -> None:
    assert check("NET008", not_looked_at()).state == "not_checked"
