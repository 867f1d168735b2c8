"""SLW015."""

from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import Culprits
from allready.model.fill import fill
from tests.fleets import check
from tests.rules.slow.moving import ask, late, moving

EVERYBODY = {r: {"phase": "loading"} for r in range(4)}


def test_a_job_whose_ranks_all_load_is_told_so_and_nobody_is_accused() -> None:
    [hit] = ask("SLW015", ranks=EVERYBODY).hits
    assert hit.culprits == Culprits()
    said = fill(load()["SLW015"].message, hit.values)
    assert said.startswith("ranks are in data loading in 100% of samples at the median: the input slows the job")
    assert said.endswith("no rank is at fault")


def test_who_loads_alone_is_the_one_that_is_slow() -> None:
    assert ask("SLW015", (late(2),), ranks={2: EVERYBODY[2]}).state == "clear"


def test_of_ranks_that_all_load_the_one_that_loads_a_little_longer_is_not_accused() -> None:
    """Seen: the same slow loader on all ranks; those that had their data waited for the last one, in a collective."""
    fleet = moving((late(2, 0.3),))
    assert fleet.live is not None

    def phase(at: int, rank: int) -> str:
        return "loading" if rank == 2 or at % 3 else "communicating"

    words = {
        node: tuple(
            replace(w, ranks=tuple(replace(r, phase=phase(i, r.rank)) for r in w.ranks)) for i, w in enumerate(kept)
        )
        for node, kept in fleet.live.history.items()
    }
    live = replace(fleet.live, history=words, statuses={n: kept[-1] for n, kept in words.items()})
    fleet = replace(fleet, live=live)
    assert check("SLW004", fleet).state == check("SLW006", fleet).state == "clear"
    [hit] = check("SLW015", fleet).hits
    assert hit.culprits == Culprits()
    assert "the others wait for rank 2" in fill(load()["SLW015"].message, hit.values)


def test_a_job_that_has_its_data_in_time_is_told_nothing() -> None:
    assert ask("SLW015").state == "clear"
    assert ask("SLW015", ranks={r: {"phase": "loading"} for r in range(1)}).state == "clear"
