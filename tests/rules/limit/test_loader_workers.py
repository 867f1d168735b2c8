from allready.judging.loading import load
from allready.model import FactMissing, Loader, Severity, UsageFacts
from tests.fleets import check, fleet


def loading(*loaders: tuple[int, str]) -> UsageFacts:
    """Programs with so many workers on these CPUs."""
    made = (Loader(pid=100 + n, num_workers=count, cpus=cpus) for n, (count, cpus) in enumerate(loaders))
    return UsageFacts(loaders=tuple(made))


def test_counts_the_workers_of_all_programs_on_the_same_cpus() -> None:
    [hit] = check("LIM012", fleet(2, usage={1: loading((6, "0-7"), (6, "0-7"), (2, "8-15"))})).hits
    assert (hit.culprits.nodes, hit.values["workers"], hit.values["num_cpus"], hit.values["share"]) == ((1,), 12, 8, 4)


def test_it_is_information_only_for_workers_may_wait() -> None:
    assert load()["LIM012"].severity is Severity.INFO


def test_as_many_as_cpus_are_usual() -> None:
    for made in (
        loading(),
        loading((8, "0-7")),
        loading((8, "0-7"), (8, "8-15")),
        loading((99, "")),
        loading((9, "?")),
    ):
        assert check("LIM012", fleet(1, usage={0: made})).state == "clear", made


def test_says_which_node_it_could_not_check() -> None:
    assert check("LIM012", fleet(1, usage={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}
