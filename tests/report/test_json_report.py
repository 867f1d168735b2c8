import json
import math
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from allready.errors import UsageError
from allready.model import BenchPoint, Evidence, FactMissing, Phrase, Report, Status
from allready.report.json_report import decode, deliver, encode, write_atomic
from tests.cases import cases
from tests.report.made_up import absent_report, faulty_report, healthy_report, unknown_report
from tests.report.made_up_run import stuck_report, well_report, whole_report

CONTRACT = ["schema", "tool_version", "command", "started", "duration_s", "world", "status", "verdict", "findings",
            "not_checked"]  # fmt: skip


def test_the_keys_are_those_of_the_contract_in_its_order() -> None:
    body = json.loads(encode(absent_report()))
    assert list(body)[:10] == CONTRACT
    assert list(body["world"]) == ["num_nodes", "world_size", "nodes", "is_numbered"]
    assert list(body["world"]["nodes"][0]) == ["node_rank", "name", "ranks"]
    assert list(body["verdict"])[:9] == [
        "code",
        "fault_class",
        "confidence",
        "culprits",
        "sentence",
        "remedy",
        "fault_time",
        "detected_time",
        "detect_s",
    ]
    assert body["verdict"]["culprits"] == {"nodes": [2], "ranks": [4, 5], "links": [], "variables": []}
    assert list(body["findings"][0])[:8] == [
        "code",
        "severity",
        "fault_class",
        "confidence",
        "culprits",
        "message",
        "remedy",
        "evidence",
    ]
    assert list(body["findings"][0]["evidence"][0])[:3] == ["source", "text", "time"]
    assert list(json.loads(encode(unknown_report()))["not_checked"][0])[:5] == ["code", "node", "why", "kind", "values"]


def test_links_are_pairs() -> None:
    assert json.loads(encode(faulty_report()))["verdict"]["culprits"]["links"] == [[0, 2], [1, 2]]


def test_the_verdict_of_a_healthy_job_is_null() -> None:
    body = json.loads(encode(healthy_report()))
    assert (body["status"], body["verdict"]) == ("healthy", None)
    sick = faulty_report()
    assert json.loads(encode(replace(sick, status=Status.HEALTHY)))["verdict"] is None


@cases("report", [healthy_report(), faulty_report(), absent_report(), unknown_report()])
def test_a_saved_report_comes_back_as_it_was(report: Report) -> None:
    again = decode(encode(report))
    assert encode(again) == encode(report)
    assert replace(again, facts={}) == replace(report, facts={})


@pytest.mark.parametrize("report", [whole_report(), stuck_report(64), well_report()])
def test_a_run_comes_back_as_it_was(report: Report) -> None:
    again = decode(encode(report))
    assert again.summary == report.summary
    assert again == report
    assert encode(again) == encode(report)


def test_a_check_has_no_run() -> None:
    assert json.loads(encode(healthy_report()))["ruins"] is None
    assert decode(encode(faulty_report())).summary is None


def test_a_time_that_is_no_number_comes_back_as_unknown() -> None:
    report = whole_report()
    assert report.summary is not None
    strange = replace(report.summary.timeline[0], time_s=math.nan)
    again = decode(encode(replace(report, summary=replace(report.summary, timeline=(strange,)))))
    assert again.summary is not None
    assert again.summary.timeline[0].time_s is None


def test_a_bench_without_a_bandwidth_comes_back() -> None:
    report = whole_report()
    assert report.summary is not None
    bench = report.summary.benches[0]
    bench = replace(bench, rows=(bench.rows[0]._replace(busbw_gb_per_s=math.nan),))
    again = decode(encode(replace(report, summary=replace(report.summary, benches=(bench,)))))
    assert again.summary is not None
    assert math.isnan(again.summary.benches[0].rows[0].busbw_gb_per_s)
    assert again.summary.benches[0].rows[0].size_bytes == 8


def test_a_missing_fact_is_saved_with_its_reason() -> None:
    report = replace(healthy_report(2), facts={0: {"net": FactMissing("permission denied")}})
    assert json.loads(encode(report))["facts"] == {"0": {"net": {"missing": "permission denied"}}}


def test_a_number_that_is_none_is_null_and_comes_back_as_none() -> None:
    report = healthy_report(2)
    assert report.collectives is not None
    run = report.collectives.runs[0]
    point = BenchPoint(
        size_bytes=8, time_s=math.nan, algbw_gb_per_s=math.inf, busbw_gb_per_s=1.0, num_errors=0, num_iterations=1
    )
    report = replace(
        report, duration_s=math.inf, collectives=replace(report.collectives, runs=(replace(run, points=(point,)),))
    )
    data = encode(report)
    assert b"NaN" not in data
    assert b"Infinity" not in data
    again = decode(data)
    assert again.collectives is not None
    assert math.isnan(again.duration_s)
    assert math.isnan(again.collectives.runs[0].points[0].time_s)


def test_half_a_surrogate_pair_is_written_as_an_escape() -> None:
    sick = faulty_report()
    strange = replace(sick.findings[0], evidence=(Evidence(source="a\udcff", text="b"),))
    body = json.loads(encode(replace(sick, findings=(strange,))))
    assert body["findings"][0]["evidence"][0]["source"] == "a\\udcff"
    assert body["facts"]["0"]["host"]["hostname"] == "gpu0"


def test_keys_of_a_later_version_are_passed_over() -> None:
    body = json.loads(encode(healthy_report(2)))
    body["later"] = {"x": 1}
    assert decode(json.dumps(body).encode()).status is Status.HEALTHY


@cases(
    ("data", "says"),
    [(b"", "not JSON"), (b"\xff\xfe", "not JSON"), (b"[" * 100_000, "not JSON"), (b"[]", "not an object"),
     (b"{}", "schema is None"), (b'{"schema": "allready.report/2"}', "allready.report/2"),
     (b'{"schema": "allready.report/1"}', "missing required field"),
     (b'{"schema": "allready.report/1", "status": 7}', "incomplete report")],
)  # fmt: skip
def test_garbage_is_refused_with_the_reason(data: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        decode(data)


def test_a_field_of_another_type_is_named() -> None:
    body = json.loads(encode(healthy_report(2)))
    body["world"]["num_nodes"] = "two"
    with pytest.raises(UsageError, match=r"world\.num_nodes"):
        decode(json.dumps(body).encode())


def test_a_reader_sees_the_old_or_the_new_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    old, new = b"a" * 3_000_000, b"b" * 5_000_000
    write_atomic(path, old)
    seen: set[bytes] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for turn in range(10):
            write_atomic(path, new if turn % 2 else old)
    finally:
        stop.set()
        reader.join()
    assert seen
    assert seen <= {old, new}
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_the_mode_follows_the_umask_and_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "link", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640


def test_a_place_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--json .*absent/report\.json: No such file or directory"):
        deliver(str(tmp_path / "absent" / "report.json"), b"x")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(UsageError, match="Not a directory"):
        deliver(str(tmp_path / "file" / "report.json"), b"x")
    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path, b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_at_a_path_of_our_own_whatever_stands_there_is_replaced(tmp_path: Path) -> None:
    """Others may write into a shared folder: a pipe would keep the writer, a link lead to a file of the user's."""
    other = tmp_path / "other"
    other.write_text("theirs")
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(other)
    for path in (pipe, link):
        write_atomic(path, b"ours", is_own=True)
        assert (path.is_symlink(), path.is_file(), path.read_text()) == (False, True, "ours")
    assert other.read_text() == "theirs"


def test_a_pipe_is_written_to_not_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    write_atomic(fifo, b"data")
    reader.join()
    assert got == [b"data"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_dash_is_stdout() -> None:
    code = "from allready.report.json_report import deliver; print('before'); deliver('-', b'{}\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=True)
    assert done.stdout == b"before\n{}\n"


def test_anything_else_is_a_file(tmp_path: Path) -> None:
    deliver(str(tmp_path / "r.json"), b"{}")
    assert (tmp_path / "r.json").read_bytes() == b"{}"


def with_phrase(report: Report, phrase: Phrase) -> Report:
    """With one in its first finding."""
    first, *others = report.findings
    return replace(report, findings=(replace(first, phrases={"a": (phrase,)}), *others))


def test_a_report_with_phrases_nested_at_will_is_refused() -> None:
    inner: Phrase | str = "x"
    for _ in range(200):
        inner = Phrase("{a}", {"a": inner})
    assert isinstance(inner, Phrase)
    report = faulty_report()
    deep = with_phrase(report, inner)
    with pytest.raises(UsageError, match="nested too deeply"):
        decode(encode(deep))
    shallow = with_phrase(report, Phrase("{a}", {"a": Phrase("b")}))
    assert decode(encode(shallow)).findings == shallow.findings
