"""The verdict that stands, and what replaces it."""

from typing import Any

from msgspec.structs import replace

from allready.judging.latch import VerdictLatch, seconds
from allready.judging.loading import load
from allready.model import Confidence, Culprits, FaultClass, Finding, Severity


def finding(code: str = "LIV001", rank: int = 2, at: str | None = "2026-01-01T00:00:10", **changes: Any) -> Finding:
    known: dict[str, Any] = {
        "code": code,
        "severity": Severity.BLOCKER,
        "fault_class": FaultClass.CPU_STUCK,
        "confidence": Confidence.LIKELY,
        "culprits": Culprits(ranks=(rank,)),
        "message": f"rank {rank}",
        "remedy": "",
        "fault_time": at,
    }
    return Finding(**(known | changes))


def stand(*rounds: list[Finding], begin_s: float | None = None) -> VerdictLatch:
    standing = VerdictLatch(load())
    now = begin_s if begin_s is not None else (seconds("2026-01-01T00:00:12") or 0.0)
    for at, found in enumerate(rounds):
        standing.take(found, wall_s=now + at, visible_s={})
    return standing


def code(standing: VerdictLatch) -> str | None:
    return standing.verdict.code if standing.verdict is not None else None


def test_the_time_of_detection_is_that_of_the_first_accusation() -> None:
    standing = stand([finding()], [finding()], [finding()])
    assert standing.verdict is not None
    assert standing.verdict.detect_s == 2.0
    assert standing.verdict.detected_time.startswith("2026-01-01T00:00:12")


def test_the_first_explanation_stays() -> None:
    assert code(stand([finding()], [finding("DTH001", 0, "2026-01-01T00:00:20")])) == "LIV001"


def test_what_became_of_the_same_rank_later_does_not_replace_it() -> None:
    assert code(stand([finding()], [finding("DTH002", 2, "2026-01-01T00:00:30")])) == "LIV001"


def test_an_earlier_cause_replaces_it() -> None:
    assert code(stand([finding()], [finding("DTH001", 0, "2026-01-01T00:00:05")])) == "DTH001"


def test_a_surer_one_replaces_it() -> None:
    sure = finding("DSY001", 1, confidence=Confidence.CERTAIN)
    assert code(stand([finding()], [sure])) == "DSY001"
    assert code(stand([sure], [finding()])) == "DSY001"


def test_a_wait_gives_way_to_anything_and_ends_with_it() -> None:
    wait = finding("LIV006", 1, severity=Severity.WARNING)
    assert code(stand([wait], [finding()])) == "LIV001"
    assert code(stand([wait], [])) is None
    assert not stand([wait]).is_fault


def test_slowness_gives_way_to_a_hang_and_never_the_other_way_round() -> None:
    slow = finding("SLW001", 0, fault_class=FaultClass.SLOW_COMP, confidence=Confidence.CERTAIN)
    assert code(stand([slow], [finding()])) == "LIV001"
    assert code(stand([finding()], [slow])) == "LIV001"
    assert code(stand([slow], [])) is None


def test_a_fault_stays_when_nothing_is_found_any_more() -> None:
    assert code(stand([finding()], [])) == "LIV001"


def test_other_findings_beside_it_are_told_as_warnings() -> None:
    standing = stand([finding()])
    later = finding("DTH001", 0, "2026-01-01T00:00:20")
    assert [(f.code, f.severity) for f in standing.among([later])] == [
        ("LIV001", Severity.BLOCKER),
        ("DTH001", Severity.WARNING),
    ]


def test_without_a_time_nothing_is_said_of_how_long_it_took() -> None:
    standing = stand([finding(at=None)])
    assert standing.verdict is not None
    assert standing.verdict.detect_s is None


def path(code: str, *nodes: int, confidence: Confidence = Confidence.CERTAIN) -> Finding:
    return finding(code, fault_class=FaultClass.NET_BROKEN, confidence=confidence, culprits=Culprits(nodes=nodes))


def test_a_broken_path_is_found_out_step_by_step() -> None:
    assert code(stand([path("LNK003")], [path("LNK008", 2)])) == "LNK008"
    assert code(stand([path("LNK003")], [path("LNK008", 2)], [path("LNK001", 2)])) == "LNK001"


def test_what_is_still_seen_does_not_become_another_kind_of_break() -> None:
    assert code(stand([path("LNK001", 1)], [path("LNK003"), path("LNK001", 1)])) == "LNK001"


def test_a_less_sure_word_and_a_late_one_change_nothing() -> None:
    assert code(stand([path("LNK001", 1)], [path("LNK003", confidence=Confidence.LIKELY)])) == "LNK001"
    assert code(stand([path("LNK001", 1)], *[[path("LNK001", 1)]] * 20, [path("LNK003")])) == "LNK001"


def test_only_another_word_on_paths_says_it_better() -> None:
    later = "2026-01-01T00:00:20"
    assert code(stand([path("LNK003")], [finding("DTH001", 0, later, confidence=Confidence.CERTAIN)])) == "LNK003"


def test_one_that_names_somebody_replaces_one_of_the_same_class_that_names_nobody() -> None:
    args = FaultClass.DESYNC_ARGS
    nobody = finding("GLO005", fault_class=args, confidence=Confidence.CERTAIN, culprits=Culprits())
    named = finding("DSY002", 3, "2026-01-01T00:00:11", fault_class=args)
    assert code(stand([nobody], [named, nobody])) == "DSY002"
    assert code(stand([named], [nobody])) == "DSY002"
    guess = finding("DSY002", 3, fault_class=args, confidence=Confidence.POSSIBLE)
    assert code(stand([nobody], [guess])) == "GLO005"


def test_a_broken_path_that_is_told_in_two_ways_by_turns_is_told_once_in_each() -> None:
    down = finding("LNK002", culprits=Culprits(nodes=(0,)), at="2026-01-01T00:00:10", confidence=Confidence.CERTAIN)
    pair = finding(
        "LNK003", culprits=Culprits(links=((0, 1),)), at="2026-01-01T00:00:09", confidence=Confidence.CERTAIN
    )
    rounds = [[down], [pair], [replace(down, fault_time="2026-01-01T00:00:07")], [pair], [down]]
    assert [code(stand(*rounds[: n + 1])) for n in range(5)] == ["LNK002", "LNK003", "LNK003", "LNK003", "LNK003"]


def test_which_of_the_ranks_it_is_replaces_that_it_is_one_of_them() -> None:
    circle = finding("HNG004", culprits=Culprits(ranks=(0, 1)), fault_class=FaultClass.DESYNC_FLOW)
    one = finding("HNG010", culprits=Culprits(ranks=(1,)), fault_class=FaultClass.DESYNC_FLOW)
    assert code(stand([circle], [one])) == "HNG010"
    assert code(stand([one], [circle])) == "HNG010"


def test_where_no_line_has_a_time_the_deeper_cause_replaces_what_follows_from_it() -> None:
    """Ranks cannot resolve a name, and do not reach the store: which line comes first is chance."""
    name = finding("STO007", 0, None, fault_class=FaultClass.START_NAME, confidence=Confidence.CERTAIN)
    store = finding("STO005", 0, None, fault_class=FaultClass.START_PATH, confidence=Confidence.CERTAIN)
    assert code(stand([store], [name, store])) == "STO007"
    assert code(stand([name], [name, store], [store])) == "STO007"


def test_another_stopped_rank_takes_the_place_of_one_that_goes_on() -> None:
    sure = {"confidence": Confidence.CERTAIN}
    first, second = finding(rank=1, **sure), finding(rank=2, at="2026-01-01T00:00:14", **sure)
    assert stand([first], [second]).finding == second
    assert stand([first], [first, second]).finding == first  # both stand: the first one is the cause
    assert stand([first], [finding(rank=2, at="2026-01-01T00:00:14")]).finding == first
    assert stand([first], [finding("DTH002", 2, "2026-01-01T00:00:30", **sure)]).finding == first


def test_the_same_rank_that_stops_once_more_is_another_fault() -> None:
    one = finding(rank=1, confidence=Confidence.CERTAIN)
    latch = stand([one], [one])
    first = latch.verdict
    latch.take([], wall_s=50.0)  # it makes progress, and no rank has said yet that all is well
    assert latch.verdict == first
    latch.take([one], wall_s=60.0)
    again = latch.verdict
    assert first is not None
    assert again is not None
    assert (again.code, again.culprits) == (first.code, first.culprits)
    assert again.detected_time != first.detected_time
    latch.take([finding(rank=2, confidence=Confidence.CERTAIN, culprits=Culprits(ranks=(1, 2))), one], wall_s=61.0)
    latch.take([one], wall_s=62.0)  # it stood all the time
    assert latch.verdict == again


def test_why_a_verdict_stays_is_said_once() -> None:
    standing = stand([finding()], [finding("SLW006")])
    assert standing.change is not None
    for found in ([finding()], []):
        standing.take(found, wall_s=0.0)
        assert standing.change is None
