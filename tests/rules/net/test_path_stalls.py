from allready.model import BenchPoint, CollectiveRun, Collectives, FaultClass, Severity
from tests.fleets import check, fleet
from tests.rules.net.made import not_looked_at, reached, stuck

CRAWL = {"passed_bytes": (64, 1400, 9000), "throughput_gb_per_s": 0.0002, "duration_s": 3.3, "detail": "slow: ..."}


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
        swept = tuple(
            BenchPoint(
                size_bytes=size, time_s=size / gb_per_s / 1e9, algbw_gb_per_s=gb_per_s, busbw_gb_per_s=gb_per_s,
                num_errors=0, num_iterations=1,
            )
            for size in (2**16, 2**18, 2**20)
        )  # fmt: skip
        run = CollectiveRun(label="all", backend="gloo", ranks=(0, 1), stages=(), points=swept)
        [hit] = check("NET008", reached(2, paths={(0, 1): CRAWL}, collectives=Collectives(runs=(run,)))).hits
        assert hit.severity is severity, gb_per_s


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
