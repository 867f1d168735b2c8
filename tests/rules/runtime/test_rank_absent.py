from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.model import FailureCause, FaultClass, Fleet, MemberState, RankAtFailure
from allready.model.fill import in_english
from allready.text.catalog import say
from tests.fleets import check, fleet
from tests.rules.runtime.made_up import CODES, failed, gone, rank


def forming(*ranks: RankAtFailure) -> Fleet:
    return failed(*ranks, cause=FailureCause.FORMING)


def test_names_who_never_came_and_who_lives_and_did_not() -> None:
    here = [rank(r, 0, 0) for r in (0, 2)]
    for state in (MemberState.ABSENT, MemberState.AWAY):
        case = forming(here[0], gone(1, state), here[1], gone(3, state))
        [hit] = check("RTM009", case).hits
        assert hit.culprits.ranks == (1, 3)
        assert in_english(hit.values["waiting"]) == "2 ranks"
        assert [c for c in CODES if check(c, case).hits] == ["RTM009"]
        [finding] = judge(case, load_area("runtime"))[0]
        assert finding.fault_class is FaultClass.START_ABSENT
        assert finding.message == "rank 1,3 did not come to form the group; waiting: 2 ranks"
        assert say(finding, "message", "zh").endswith("没有来组建进程组；在等待的：2 个 rank")


def test_who_knows_of_no_other_rank_says_nothing_of_them() -> None:
    [hit] = check("RTM009", forming(gone(0, MemberState.ABSENT))).hits
    assert (hit.culprits.ranks, hit.values["waiting"]) == ((0,), None)


def test_who_died_or_is_silent_is_named_as_such() -> None:
    for state in (MemberState.DIED, MemberState.SILENT, MemberState.LEFT):
        assert not check("RTM009", forming(rank(0, 0, 0), gone(1, state))).hits


def test_is_clear_where_nothing_failed_or_all_came() -> None:
    assert check("RTM009", fleet(2)).state == "clear"
    assert not check("RTM009", forming(rank(0, 0, 0), rank(1, 0, 0))).hits
