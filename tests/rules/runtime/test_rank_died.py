from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.model import FailureCause, MemberState, RankProcess
from allready.model.fill import in_english
from tests.fleets import check, fleet
from tests.rules.runtime.made_up import CODES, failed, gone, rank


def test_names_that_rank_and_not_those_that_wait() -> None:
    case = failed(rank(0), rank(1), gone(2, MemberState.DIED), rank(3))
    [hit] = check("RTM001", case).hits
    assert hit.culprits.ranks == (2,)
    assert in_english(hit.values["waiting"]) == "3 ranks"
    assert hit.values["call"] == "all_reduce #7"
    assert [c for c in CODES if check(c, case).hits] == ["RTM001"]
    assert judge(case, load_area("runtime"))[0][0].code == "RTM001"


def test_a_victims_error_accuses_neither_it_nor_the_late_one_beside_it() -> None:
    victim = rank(0, cause=FailureCause.BACKEND, error="RuntimeError: Connection closed by peer")
    case = failed(victim, gone(1, MemberState.DIED), rank(2, 6, 6), cause=FailureCause.BACKEND)
    assert [c for c in CODES if check(c, case).hits] == ["RTM001"]


def test_explains_a_silent_rank() -> None:
    case = failed(rank(0), gone(1, MemberState.SILENT), gone(2, MemberState.DIED))
    assert judge(case, load_area("runtime"))[0][0].code == "RTM001"


def test_is_clear_where_no_call_failed() -> None:
    outcome = check("RTM001", fleet(2))
    assert (outcome.state, outcome.not_checked) == ("clear", ())


def test_names_host_and_process_of_one_rank_and_the_hosts_of_many() -> None:
    def message(*dead: int) -> str:
        alive = rank(99, process=RankProcess(host="gpu99", pid=1))
        ranks = [gone(r, MemberState.DIED, process=RankProcess(host=f"gpu{r // 8}", pid=1190 + r)) for r in dead]
        return judge(failed(*ranks, alive), load_area("runtime"))[0][0].message

    assert message(3) == "rank 3 (gpu0, pid 1193) ended without leaving the job; rank 99 waited for it in all_reduce #7"
    assert message(3, 4).endswith("pid 1194) ended without leaving the job; rank 99 waited for them in all_reduce #7")
    assert message(*range(40)).startswith("rank 0-39 (gpu0, gpu1, gpu2, gpu3, gpu4) ended without")
