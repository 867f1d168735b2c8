"""The files that an agent writes of its node tell how ranks ended, also where node 0 wrote no report."""

import json
from pathlib import Path

import pytest

from allready.cli.main import main
from allready.evidence.node_status import read_node_status
from allready.live.node.save_evidence import files_of
from allready.model import NodeEvidence, NodeStatus, ProcessState, RankEvidence, RankStatus
from allready.report.json_report import decode


def rank(number: int, state: ProcessState = ProcessState.SLEEPING, **how: object) -> RankStatus:
    return RankStatus(rank=number, pid=4000 + number, process_state=state, **how)  # type: ignore[arg-type]


def save(folder: Path, *ranks: RankStatus, node: int = 0) -> Path:
    status = NodeStatus(node_rank=node, name=f"gpu{node}", time_s=1_790_000_010.0, ranks=ranks)
    evidence = NodeEvidence(
        node_rank=node,
        number=1,
        time_s=1_790_000_010.0,
        status=status,
        ranks=tuple(RankEvidence(rank=r.rank, status=r) for r in ranks),
    )
    for name, content in files_of(evidence):
        path = folder / f"attempt0/node{node}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def diagnosed(folder: Path) -> tuple[str, str, tuple[int, ...]]:
    target = folder.parent / "report.json"
    main(["diagnose", "-q", "--json", str(target), str(folder)])
    verdict = decode(target.read_bytes()).verdict
    return ("", "", ()) if verdict is None else (verdict.code, verdict.fault_class, verdict.culprits.ranks)


def test_a_rank_that_was_killed_is_named_without_any_log(tmp_path: Path) -> None:
    ended = rank(1, ProcessState.KILLED, signal="SIGKILL", ended_s=1_790_000_005.0)
    swept = rank(2, ProcessState.KILLED, signal="SIGTERM", ended_s=1_790_000_007.0)
    assert diagnosed(save(tmp_path / "run", rank(0), ended, swept)) == ("DTH002", "DEAD", (1,))


def test_ranks_of_another_node_that_were_ended_later_are_not_the_cause(tmp_path: Path) -> None:
    folder = save(tmp_path / "run", rank(0, ProcessState.EXITED, exit_code=3, ended_s=1_790_000_005.0), rank(1))
    save(folder, rank(2, ProcessState.KILLED, signal="SIGTERM", ended_s=1_790_000_007.5), rank(3), node=1)
    assert diagnosed(folder)[1:] == ("DEAD", (0,))


def test_ranks_that_live_or_ended_in_order_die_of_nothing(tmp_path: Path) -> None:
    folder = save(tmp_path / "run", rank(0, ProcessState.EXITED, exit_code=0, ended_s=1_790_000_005.0), rank(1))
    (status,) = folder.rglob("status.json")
    reading = read_node_status(status.read_bytes(), "status.json")
    assert not reading.deaths
    assert [(p.rank, p.pid, p.host) for p in reading.processes] == [(0, 4000, "gpu0"), (1, 4001, "gpu0")]


def test_out_of_memory_is_told_as_that(tmp_path: Path) -> None:
    killed = rank(0, ProcessState.KILLED, signal="SIGKILL", oom_killed=True, ended_s=1_790_000_005.0)
    assert diagnosed(save(tmp_path / "run", killed, rank(1))) == ("DTH003", "DEAD", (0,))


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.98])
def test_a_damaged_status_is_a_problem_of_that_file(tmp_path: Path, cut: float) -> None:
    folder = save(tmp_path / "run", rank(0, ProcessState.KILLED, signal="SIGKILL", ended_s=1_790_000_005.0))
    (status,) = folder.rglob("status.json")
    whole = status.read_bytes()
    damaged = read_node_status(whole[: int(len(whole) * cut)], "status.json")
    assert damaged.source.problem is not None
    assert not damaged.deaths


def test_records_of_a_run_are_not_taken_for_logs(tmp_path: Path) -> None:
    folder = save(tmp_path / "run", rank(0), rank(1))
    (folder / "attempts.jsonl").write_text('{"attempt":0,"start":"2026-11-24T04:24:52+00:00","outcome":"failed"}\n')
    target = tmp_path / "report.json"
    main(["diagnose", "-q", "--json", str(target), str(folder)])
    assert '"lines not understood"' not in target.read_text()
    assert " not understood" not in target.read_text()


def test_a_crash_while_the_job_is_being_ended_is_no_cause(tmp_path: Path) -> None:
    term = rank(0, ProcessState.KILLED, signal="SIGTERM", ended_s=1_790_000_005.0)
    crash = rank(2, ProcessState.KILLED, signal="SIGSEGV", ended_s=1_790_000_005.4)
    folder = save(tmp_path / "run", term, rank(1, ProcessState.KILLED, signal="SIGTERM", ended_s=1_790_000_005.1))
    save(folder, crash, rank(3, ProcessState.KILLED, signal="SIGSEGV", ended_s=1_790_000_005.5), node=1)
    assert diagnosed(folder) == ("", "", ())
    # The crash came first: it is the cause, and the others were ended because of it.
    other = save(tmp_path / "other" / "run", rank(0, ProcessState.KILLED, signal="SIGSEGV", ended_s=1_790_000_004.0))
    save(other, rank(2, ProcessState.KILLED, signal="SIGTERM", ended_s=1_790_000_005.0), node=1)
    assert diagnosed(other) == ("DTH002", "DEAD", (0,))


def test_system_calls_as_an_earlier_release_wrote_them_hide_no_end(tmp_path: Path) -> None:
    save(tmp_path, rank(3, ProcessState.KILLED, signal="SIGKILL", ended_s=1_790_000_005.0))
    path = next(tmp_path.rglob("status.json"))
    saved = json.loads(path.read_bytes())
    saved["ranks"][0]["syscall"] = "read(5)"
    found = read_node_status(json.dumps(saved).encode(), "status.json")
    assert [death.signal for death in found.deaths] == ["SIGKILL"]
    assert found.source.problem is None
