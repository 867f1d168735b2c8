"""RAS's JSON: good, broken as NCCL 2.28 writes it, cut off, several in one file, with a client's talk between."""

import json
from pathlib import Path

import pytest

from allready.evidence.ras import is_ras, read_ras
from allready.evidence.ras.tolerant import parse_object
from allready.evidence.reading import RasAnswer
from allready.model.fill import in_english
from tests.cases import cases

RECORDED = Path(__file__).parents[2] / "fixtures" / "small_readers" / "ras"


def recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.json").read_bytes()


def only(data: bytes) -> RasAnswer:
    answers = read_ras(data, "ras.json").ras
    assert len(answers) == 1
    return answers[0]


def report(**changes: object) -> dict[str, object]:
    ranks = [
        {
            "rank": r,
            "host": f"10.0.0.{r}",
            "pid": 100 + r,
            "status": {"init_state": 0, "async_error": 0},
            "collective_counts": {"AllReduce": 7, "AllGather": 3},
        }
        for r in range(2)
    ]
    communicator = {"hash": "0x0abc", "size": 2, "ranks_count": 2, "ranks": ranks, "missing_ranks": []} | changes
    return {
        "nccl_version": "2.29.7",
        "timestamp": "2026-11-20 11:50:59",
        "communicators_count": 1,
        "communicators": [communicator],
        "ras": {"timeouts_count": 0},
    }


@cases("path", sorted(RECORDED.glob("*.json")), ids=lambda p: p.stem)
def test_every_recorded_answer_is_known_by_its_first_bytes(path: Path) -> None:
    assert is_ras(path.read_bytes()[:4096])


def test_the_recorded_stopped_rank_is_unresponsive_and_the_others_wait_one_operation_ahead() -> None:
    answer = only(recorded("sigstop"))
    (group,) = answer.groups
    assert group.group == "0x14a3fe109bd176c"
    assert group.size == 4
    assert group.absent == {1: "unresponsive"}
    assert {r: p.enqueued for r, p in group.positions.items()} == {0: 65, 2: 65, 3: 65}
    assert group.positions[0].counts["all_reduce"] == 34
    assert answer.hosts[group.group, 1] == ("10.77.0.1", 1193)
    assert answer.time_s == 1795175459.0
    assert in_english(answer.problem) == "broken JSON, repaired"


@pytest.mark.parametrize(("name", "silent"), [("sigkill", {2, 3}), ("link_down", {2, 3}), ("exception", {2, 3})])
def test_recorded_broken_json_names_the_missing_ranks(name: str, silent: set[int]) -> None:
    (group,) = only(recorded(name)).groups
    assert set(group.absent) == silent
    assert set(group.positions) == {0, 1, 2, 3} - silent


def test_the_recorded_stall_shows_the_rank_behind() -> None:
    (group,) = only(recorded("dataloader_stall")).groups
    assert min(group.positions, key=lambda r: group.positions[r].enqueued) == 2
    assert not group.absent


def test_an_error_state_is_told_in_the_words_of_nccl() -> None:
    (group,) = only(recorded("sigkill")).groups
    assert group.positions[0].error == "remote process exited or there was a network error"
    assert group.positions[1].error is None
    (group,) = only(recorded("eval_branch")).groups
    assert group.positions[0].error == "invalid usage"


def test_five_recorded_groups_of_a_mesh_keep_their_own_ranks() -> None:
    answer = only(recorded("v2_lock"))
    assert [g.size for g in answer.groups] == [2, 2, 4, 2, 2]
    behind = {
        answer.hosts[g.group, r][1]
        for g in answer.groups
        for r, p in g.positions.items()
        if p.enqueued < max(q.enqueued for q in g.positions.values())
    }
    assert behind == {975, 973}


def test_in_progress_is_no_error() -> None:
    data = report()
    data["communicators"][0]["ranks"][0]["status"] = {"init_state": 7, "async_error": 7}  # type: ignore[index]
    assert only(json.dumps(data).encode()).groups[0].positions[0].error is None


def test_a_missing_comma_and_missing_brackets_are_repaired() -> None:
    text = json.dumps(report(missing_ranks=[{"rank": 1, "status": {"considered_dead": True}}]), indent=1)
    without_comma = text.replace('"pid": 100,', '"pid": 100')
    without_bracket = without_comma.replace('"missing_ranks": [', '"missing_ranks": ').replace("]\n  }\n ],", "}\n ],")
    for broken in (without_comma, without_bracket):
        (group,) = only(broken.encode()).groups
        assert group.positions[0].counts == {"all_reduce": 7, "all_gather": 3}


def test_an_answer_that_is_cut_off_keeps_what_came_and_invents_nothing() -> None:
    whole = recorded("dataloader_stall")
    answer = only(whole[: whole.index(b'"rank": 2')])
    (group,) = answer.groups
    assert set(group.positions) == {0, 1}
    assert group.absent == {}
    assert in_english(answer.problem) == "broken JSON: the end is missing"


def test_ranks_that_are_counted_but_not_listed_are_missing() -> None:
    (group,) = only(json.dumps(report(size=4)).encode()).groups
    assert group.absent == {2: "missing", 3: "missing"}


def test_a_size_out_of_this_world_names_nobody() -> None:
    (group,) = only(json.dumps(report(size=999_999_999)).encode()).groups
    assert group.absent == {}


def test_considered_dead_is_dead() -> None:
    missing = [{"rank": 1, "host": "10.0.0.1", "pid": 77, "status": {"unresponsive": True, "considered_dead": True}}]
    data = report(missing_ranks=missing)
    data["communicators"][0]["ranks"].pop()  # type: ignore[index]
    answer = only(json.dumps(data).encode())
    assert answer.groups[0].absent == {1: "considered dead"}
    assert answer.dead == [("10.0.0.1", 77)]


def test_unknown_hosts_and_pids_stay_unknown() -> None:
    data = report()
    data["communicators"][0]["ranks"][0] |= {"host": "unknown", "pid": -1}  # type: ignore[index]
    assert (("0xabc"), 0) not in only(json.dumps(data).encode()).hosts


def test_samples_over_time_with_a_shells_noise_are_all_read() -> None:
    first, second = report(), report()
    second["timestamp"] = "2026-11-20 11:51:04"
    text = f"$ sample\nSERVER PROTOCOL 2\nOK\nOK\n{json.dumps(first, indent=2)}\nOK\n"
    text += json.dumps(second, sort_keys=True) + "\n"
    reading = read_ras(text.encode(), "samples.txt")
    assert is_ras(text.encode())
    assert len(reading.ras) == 2
    times = [a.time_s for a in reading.ras]
    assert times[1] is not None
    assert times[0] is not None
    assert times[1] - times[0] == 5.0
    assert reading.source.num_unknown == 1
    assert reading.source.unknown_examples == ("$ sample",)
    assert (reading.source.first_time_s, reading.source.last_time_s) == (times[0], times[1])


def test_a_cut_answer_does_not_swallow_the_next_one() -> None:
    whole = recorded("sigstop")
    reading = read_ras(whole[:900] + b"\n" + whole, "two")
    assert [len(a.groups[0].positions) for a in reading.ras] == [1, 3]


@pytest.mark.thorough
def test_many_samples_keep_the_first_and_the_last_within_bounds() -> None:
    ranks = [{"rank": r, "collective_counts": {"AllReduce": 1}} for r in range(1000)]
    text = "\n".join(json.dumps(report(ranks=ranks, size=1000)) for _ in range(130))
    reading = read_ras(text.encode(), "long")
    assert 60 < len(reading.ras) < 130
    assert reading.source.problem is not None
    assert "left out" in reading.source.problem


def test_events_of_a_monitor_give_the_dead() -> None:
    text = """OK
[2026-11-20 12:00:00] PEER_NEW: Process 11 on node 10.0.0.1 managing GPU 0
[2026-11-20 12:01:07] PEER_UNRESPONSIVE: Process 12 on node 10.0.0.2 managing GPU 0 peer not responding for 5s
[2026-11-20 12:02:07] PEER_DEAD: Process 12 on node 10.0.0.2 managing GPU 0
[2026-11-20 12:02:09] PEER_DEAD: 10.0.0.3<40011>
"""
    assert is_ras(text.encode())
    reading = read_ras(text.encode(), "monitor.txt")
    assert [e.signature for e in reading.events] == [
        "ras.peer_new",
        "ras.peer_unresponsive",
        "ras.peer_dead",
        "ras.peer_dead",
    ]
    assert reading.events[2].values == {"process": "12", "node": "10.0.0.2"}
    assert reading.events[2].origin.line == 4
    assert reading.ras[-1].dead == [("10.0.0.2", 12), ("10.0.0.3", -1)]
    assert reading.source.num_unknown == 0


def test_events_in_json_follow_each_other_without_commas() -> None:
    event = {
        "timestamp": "2026-11-20 12:02:07",
        "group": "LIFECYCLE",
        "event": "PEER_DEAD",
        "peer": {"host": "10.0.0.2", "pid": 12, "cuda_devs": [0], "nvml_devs": [0]},
        "details": "",
    }
    other = event | {"event": "PEER_TIMEOUT_DEAD", "peer": {"addr": "10.0.0.9<4000>"}, "details": "failed to respond"}
    text = json.dumps(event, indent=2) + "\n" + json.dumps(other, indent=2) + "\n"
    assert is_ras(text.encode())
    reading = read_ras(text.encode(), "monitor.json")
    assert reading.ras[-1].dead == [("10.0.0.2", 12), ("10.0.0.9", -1)]
    assert reading.events[0].time_s == reading.ras[-1].time_s


def test_other_json_is_not_an_answer() -> None:
    assert not is_ras(b'{"nccl_version": "2.27.3", "entries": []}')
    assert not is_ras(b"NCCL version 2.21.5+cuda12.4\n")
    assert not is_ras(b"")


def test_nesting_without_end_is_refused() -> None:
    value, _, problem = parse_object('{"a":' * 200_000)
    assert in_english(problem) == "broken JSON: the end is missing"
    assert "a" in value
