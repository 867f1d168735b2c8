"""What the safe calls do with tensors: values, views, and the old content after a failure."""

from pathlib import Path

import pytest

from tests.runtime.job import Job

pytestmark = [pytest.mark.torch, pytest.mark.newest, pytest.mark.jobs]


def test_values_views_the_content_after_a_failure_subgroups_and_a_late_rank_in_each_operation(tmp_path: Path) -> None:
    with Job(tmp_path, 3, script="tensors_rank.py") as job:
        job.wait([0, 1, 2])
        for rank in range(3):
            _is_right(job, rank)
            _is_right_of_all_kinds(job, rank)
            _is_right_beyond_reduction(job, rank)
            _timeouts_are_right(job, rank)
            _calls_in_flight_are_right(job, rank)


def _is_right(job: Job, rank: int) -> None:
    sums = job.last(rank, "dtypes")["sums"]
    assert len(sums) == 6
    assert all(values == [6] for values in sums.values())
    views = job.last(rank, "views")
    assert (views["column"], views["beside"]) == ([2.0] * 4, [float(rank)] * 4)
    assert (views["said"], views["rows"]) == ([1.0], [[0.0], [1.0], [2.0]])
    late = [{k: v for k, v in e.items() if k != "event"} for e in job.events(rank) if e["event"] == "late"]
    assert late == [{"code": "RTM005", "culprits": [2], "is_restored": True, "content": [float(rank)]}] * 2
    again = [(e["members"], e["total"]) for e in job.events(rank) if e["event"] == "again"]
    assert again == [([0, 1, 2], 3.0)] * 2


def _is_right_of_all_kinds(job: Job, rank: int) -> None:
    found = job.last(rank, "kinds")
    for name, (said, *gathered, got, point) in found["moved"].items():
        high = [min(n, 1) if name == "bool" else n for n in range(4)]
        assert said == [0, 1, 1, 1], name
        assert gathered == [[0, 1, high[n], high[n]] for n in range(3)], name
        assert got == [high[n] for n in (1, 1, 2, 2, 3, 3)], name
        assert point == [0], name
    no_sums = ["float8_e4m3fn", "float8_e5m2", "int16", "uint16", "uint32", "uint64"]
    assert found["refused"] == [[name, True] for name in no_sums for _ in range(2)]
    assert (found["weight"], found["column"], found["errors"]) == ([27.0], [3.0] * 4, 22)
    assert found["lazy"] == ["-3.0", "(3-3j)", "(1-1j)", "(3-3j)"]
    assert found["is_wide"] == [True] * 3
    assert found["bytes_of_truths"] == [1, 1, 0, 1]
    assert found["placed"] == [2.0 * rank + n + 100 * m for m in range(3) for n in (0, 1)]


def _is_right_beyond_reduction(job: Job, rank: int) -> None:
    of_rank = {0: [(3, 0), (2, 0)], 1: [(3, 1)], 2: [(3, 2), (2, 1)]}[rank]
    found = job.last(rank, "others")
    ranks = [range(3) if size == 3 else (0, 2) for size, _ in of_rank]
    if rank == 1:
        texts = job.last(rank, "strange")["texts"]
        assert len(texts) == 3
        assert all("not of this rank" in text for text in texts)
    assert found["scattered"] == [
        [[size * (6 * place + 3 * row + c) + sum(members) for c in range(3)] for row in range(2)]
        for (size, place), members in zip(of_rank, ranks, strict=True)
    ]
    assert found["highest"] == [[2, 2, 2]] * len(of_rank)
    assert found["exchanged"] == [
        [[10 * place + m] * 2 for m in members] for (_, place), members in zip(of_rank, ranks, strict=True)
    ]
    assert found["uneven"] == [
        [m for m in members for _ in range(place + 1)] for (_, place), members in zip(of_rank, ranks, strict=True)
    ]
    assert found["chunks"] == [True] * 3 * len(of_rank)
    overdue = {e["name"]: e for e in job.events(rank) if e["event"] == "overdue"}
    assert {name: (e["code"], e["culprits"], e["team"]) for name, e in overdue.items()} == {
        "scatter": ("RTM005", [2], []),
        "exchange": ("RTM005", [2], []),
        "in_team": ("RTM005", [2], [0, 2]),
        "chunked": ("RTM005", [2], []),
        "learned": ("RTM005", [2], []),
    }
    assert all(e["kept"] == [5.0, 5.0] and e["source"] == [1.0] for e in overdue.values())
    assert overdue["chunked"]["is_restored"]
    assert [e["total"] for e in job.events(rank) if e["event"] == "after"] == [3.0] * 5


def _calls_in_flight_are_right(job: Job, rank: int) -> None:
    begun = job.last(rank, "begun")
    assert begun["backwards"] == [None] * 3
    assert (begun["column"], begun["got"]) == ([3.0] * 4, [0.0, 1.0, 2.0])
    assert begun["early"] == [3.0]
    assert begun["tensors"] == [33, 42 if rank != 1 else 21]
    assert (begun["is_done"], begun["refused"]) == ([True, None, None, None], 1)
    assert begun["beside"] == [3.0, 300.0] * 2
    assert begun["twins"] == ([[4.0], [4.0]] if rank != 1 else [])
    assert begun["unsorted"] == [[0.0], [1.0], [2.0]]
    abandoned = job.last(rank, "abandoned")
    missing = ["RTM005", [2], True]  # and not rank 1, which had begun them all and did not wait
    assert abandoned["outcomes"] == ([missing] * 2 if rank != 2 else [])
    assert abandoned["content"][1:] == [[10.0 * rank + 1], [10.0 * rank + 2]]
    assert abandoned["total"] == 3.0


def _timeouts_are_right(job: Job, rank: int) -> None:
    limits = job.last(rank, "limits")
    plain = {"0,1": [77.0, None]} if rank != 2 else {}
    team = {"0,2": [33.0, 33.0]} if rank != 1 else {}
    assert limits["of"] == {"0,1,2": [33.0, 33.0], **team, **plain}
    assert "group default (ranks 0, 1, 2): plain collectives: 33.0 s; safe calls: 33.0 s\n" in limits["text"] + "\n"
    learned = job.last(rank, "learned")
    assert 1.0 <= learned["limits"]["all_reduce"] < 600.0
    assert "safe calls: 600.0 s; " in learned["text"]
