from typing import Any

from allready.model import Confidence, FaultClass
from allready.model.fill import in_english
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.collective.made_up import stage, state, stopped_at


@cases(
    ("doing", "changes", "fault_class", "confidence"),
    [
        ("running", {"cpu_s": 0.98}, FaultClass.CPU_BUSY, Confidence.LIKELY),
        ("running", {"cpu_s": None}, FaultClass.CPU_BUSY, Confidence.LIKELY),
        ("sleeping", {"cpu_s": 0.9}, FaultClass.CPU_BUSY, Confidence.LIKELY),
        ("sleeping", {"cpu_s": 0.0}, FaultClass.CPU_STUCK, Confidence.LIKELY),
        ("disk", {"cpu_s": 0.0}, FaultClass.CPU_STUCK, Confidence.CERTAIN),
        ("not_started", {}, FaultClass.START_ABSENT, Confidence.LIKELY),
        ("unknown", {"cpu_s": None}, FaultClass.CPU_STUCK, Confidence.POSSIBLE),
    ],
)
def test_the_class_follows_from_what_the_late_rank_does(
    doing: str, changes: dict[str, Any], fault_class: FaultClass, confidence: Confidence
) -> None:
    hung = stage("sweep", "hung", state(2, doing, **changes), entered=(0, 1, 3), size_bytes=4096, iteration=7)
    [hit] = check("COL007", fleet(2, collectives=stopped_at(hung))).hits
    assert (hit.fault_class, hit.confidence) == (fault_class, confidence)
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((2,), (1,))
    assert (hit.values["stage"], hit.values["entered"]) == ("sweep (4 KiB, #7)", "0,1,3")


def test_shows_where_the_late_rank_is() -> None:
    late = state(1, wchan="futex_wait", stack=("/app/data.py:12 load", "/app/train.py:40 main"))
    hung = stage("nccl_small", "hung", late, entered=(0, 2, 3))
    [hit] = check("COL007", fleet(2, collectives=stopped_at(hung))).hits
    assert in_english(hit.values["doing"]) == "sleeping, CPU 0.00 s/s, wchan futex_wait, /app/data.py:12 load"
    assert any("/app/train.py:40 main" in e.text for e in hit.evidence)


def test_blames_the_rank_that_another_waited_for_at_the_barrier() -> None:
    said = state(
        0, "exited", exit_code=1, error="RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 9 ms"
    )
    failed = stage("gloo_barrier", "failed", said, state(2), entered=(0, 1, 3))
    [hit] = check("COL007", fleet(2, collectives=stopped_at(failed))).hits
    assert hit.culprits.ranks == (2,)


def test_blames_the_silent_rank_and_not_those_whose_connection_broke() -> None:
    victims = [state(r, "exited", exit_code=1, error="Connection closed by peer") for r in (0, 1, 3)]
    failed = stage("gloo_barrier", "failed", *victims, entered=(0, 1, 3))
    [hit] = check("COL007", fleet(2, collectives=stopped_at(failed))).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((2,), (1,))
    assert hit.confidence is Confidence.POSSIBLE  # nothing is known of the process itself


def test_late_ranks_that_do_different_things_are_told_apart() -> None:
    hung = stage("store", "hung", state(1, "running", cpu_s=1.0), state(2), entered=(0, 3))
    hits = check("COL007", fleet(2, collectives=stopped_at(hung))).hits
    assert {(h.fault_class, h.culprits.ranks) for h in hits} == {
        (FaultClass.CPU_BUSY, (1,)),
        (FaultClass.CPU_STUCK, (2,)),
    }


def test_blames_nobody_when_nobody_came() -> None:
    hung = stage("store", "hung", *(state(r) for r in range(4)), entered=())
    [hit] = check("COL007", fleet(2, collectives=stopped_at(hung))).hits
    assert not hit.culprits
    assert hit.confidence is Confidence.POSSIBLE


def test_ranks_that_wait_inside_are_not_late() -> None:
    hung = stage("nccl_small", "hung", *(state(r) for r in range(4)))
    assert check("COL007", fleet(2, collectives=stopped_at(hung))).state == "clear"


def test_is_clear_when_every_stage_ended_well() -> None:
    assert check("COL007", fleet(2)).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    assert check("COL007", fleet(2, collectives=None)).state == "not_checked"
