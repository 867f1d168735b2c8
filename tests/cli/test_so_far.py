"""What `check` and `run` say while nodes are awaited, and the first and last line of `run`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from allready.cli.so_far import PATIENCE_S, SoFar
from allready.model import Confidence, Culprits, EndCause, FaultClass, Finding, Report, Severity, Status
from allready.model.fill import UNKNOWN
from allready.report.json_report import decode
from allready.report.words import sentence
from allready.text.catalog import place_text, say
from allready.text.ui import table
from tests.agent.jobs import free_port
from tests.clock import until
from tests.report.made_up import absent_report, faulty_report


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, key: str, **values: object) -> None:
        raise AssertionError(key)

    def log(self, key: str, **values: object) -> None:
        self.lines.append(" ".join([key, *map(str, values.values())]))


def waiting(report: Report, **changes: object) -> Report:
    return replace(report, status=Status.WAITING, **changes)


def test_a_finding_that_waiting_does_not_mend_is_said_at_once_with_its_remedy_and_once() -> None:
    said = Said()
    so_far = SoFar(said, "en")
    for _ in range(3):
        so_far.take(waiting(faulty_report()))
    assert len(said.lines) == 2
    assert "TCP ports above 1024 of node 2" in said.lines[0]
    assert "iptables -I INPUT" in said.lines[1]


def test_a_node_that_may_still_come_is_given_time() -> None:
    said = Said()
    so_far = SoFar(said, "en")
    so_far.take(waiting(absent_report(), duration_s=PATIENCE_S / 2))
    assert said.lines == []
    so_far.take(waiting(absent_report(), duration_s=PATIENCE_S + 1))
    assert any("pgrep -af allready" in line for line in said.lines)


def test_what_may_keep_a_node_away_is_said_with_its_absence() -> None:
    """Of a master's address that is a loopback address everything is known long before the wait is over."""
    said = Said()
    [other, *_] = faulty_report().findings
    name = replace(other, fault_class=FaultClass.START_NAME, severity=Severity.WARNING)
    limit = replace(other, code="LIM901", fault_class=FaultClass.ENV_LIMIT)
    report = absent_report()
    report = waiting(report, findings=(*report.findings, name, limit), duration_s=PATIENCE_S + 1)
    SoFar(said, "en").take(report)
    codes = [line.split()[1] for line in said.lines if line.startswith("check.so_far ")]
    assert codes == [report.verdict.code if report.verdict is not None else "", name.code]


def test_what_is_no_waiting_is_not_said() -> None:
    said = Said()
    SoFar(said, "en").take(faulty_report())
    SoFar(said, "en").take(waiting(faulty_report(), verdict=None))
    assert said.lines == []


@pytest.mark.jobs
@pytest.mark.parametrize("command", ["check", "run"])
def test_nodes_that_were_told_different_numbers_of_nodes_learn_it_while_they_wait(command: str, tmp_path: Path) -> None:
    port = free_port()
    script = tmp_path / "job.py"
    script.write_text("print('ran')\n")
    started = []
    try:
        for node, num_nodes in ((0, 3), (1, 4)):
            argv = [sys.executable, "-m", "allready", command, "--nnodes", str(num_nodes), "--node-rank", str(node)]
            argv += ["--master-addr", "127.0.0.1", "--master-port", str(port), "--wait", "120", "--lang", "en"]
            argv += ["--report-dir", str(tmp_path / f"{command}{node}"), *(["--"] if command == "check" else [])]
            output = (tmp_path / f"{node}.log").open("wb")
            started.append(
                subprocess.Popen(
                    [*argv, str(script)], stdout=output, stderr=output, cwd=tmp_path, start_new_session=True
                )
            )
            output.close()
        until(
            lambda: all("--nnodes" in told(tmp_path, n) and "fix: " in told(tmp_path, n) for n in (0, 1)),
            60.0,
            what=lambda: [told(tmp_path, n) for n in (0, 1)],
        )
        assert "no fault so far" not in told(tmp_path, 0)
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def told(folder: Path, node: int) -> str:
    return (folder / f"{node}.log").read_text(errors="replace")


@pytest.mark.jobs
@pytest.mark.parametrize(("code", "language", "end"), [(0, "en", "the job ended well after"), (3, "zh", "作业在")])
def test_run_begins_and_ends_with_a_line(code: int, language: str, end: str, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(f"import sys\nprint('from the rank')\nsys.exit({code})\n")
    done = subprocess.run(
        [sys.executable, "-m", "allready", "run", "--report-dir", "out", "--lang", language, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("allready run: ")]
    begins = {
        "en": f"1 node, 1 rank on this one; report: {tmp_path}/out; live view: allready watch",
        "zh": f"1 个节点，本节点 1 个 rank；报告：{tmp_path}/out；实时查看：allready watch",
    }
    assert lines[0] == f"allready run: {begins[language]}"
    assert "ended with" not in lines[-1]  # in Chinese the reason is reported in Chinese as well
    assert lines[-1].startswith(f"allready run: {end}")
    assert lines[-1].endswith("out/report.html")
    assert (tmp_path / "out" / "report.html").is_file()
    assert done.returncode == code


@pytest.mark.slow
@pytest.mark.jobs
def test_the_last_line_says_what_the_report_says_of_a_rank_that_was_terminated(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import os, signal, time\ntime.sleep(2)\n"
        "if os.environ['RANK'] == '1':\n    os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(30)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "allready", "run", "--report-dir", "out", "--nproc-per-node", "2",
         "--master-port", str(free_port()), str(script)],
        capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False,
    )  # fmt: skip
    verdict = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["verdict"]
    assert (verdict["code"], verdict["culprits"]["ranks"]) == ("LIV012", [1])
    last = [line for line in done.stderr.splitlines() if line.startswith("allready run: ")][-1]
    assert f"(LIV012 DEAD): {verdict['sentence']}; " in last
    assert done.returncode == 143


def test_every_end_of_a_job_has_words() -> None:
    for language in ("en", "zh"):
        assert {f"cause_{cause}" for cause in EndCause} <= table(language, "run").keys()


def test_a_place_in_chinese_has_blanks_beside_latin_letters_only() -> None:
    assert place_text("节点 1 (gpu1)", "zh") == "在节点 1 (gpu1)"
    assert place_text("10.0.0.1", "zh") == "在 10.0.0.1"
    assert place_text("所有节点", "zh") == "在所有节点"
    assert place_text("node 1", "en") == "on node 1"


def test_an_unknown_writer_needs_no_blank_before_chinese() -> None:
    finding = Finding(
        code="STO003", severity=Severity.ERROR, fault_class=FaultClass.START_PATH, confidence=Confidence.LIKELY,
        culprits=Culprits(), message="m", remedy="r",
        values={"who": UNKNOWN, "port": "29500", "error": "in use"},
    )  # fmt: skip
    for code in ("STO002", "STO003", "STO004"):
        text = say(replace(finding, code=code), "message", "zh")
        assert not re.search(r"某个进程 [\u4e00-\u9fff]", text), text


@pytest.mark.jobs
def test_what_interrupted_a_job_is_said_in_the_readers_language(tmp_path: Path) -> None:
    """Both ranks are ended by a signal that no agent got: the last line, and both languages of the page."""
    script = tmp_path / "job.py"
    script.write_text("import os, signal, time\ntime.sleep(1)\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(30)\n")
    done = subprocess.run(
        [sys.executable, "-m", "allready", "run", "--report-dir", "out", "--nproc-per-node", "2", "--lang", "zh",
         "--master-port", str(free_port()), str(script)],
        capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False,
    )  # fmt: skip
    report = decode((tmp_path / "out" / "report.json").read_bytes())
    assert report.status is Status.INTERRUPTED
    words = [sentence(report, language).rpartition(colon)[2] for language, colon in (("en", ": "), ("zh", "："))]
    assert words[0].isascii()
    assert "来自外部的 SIGTERM" in words[1]
    last = [line for line in done.stderr.splitlines() if line.startswith("allready run: ")][-1]
    assert words[1] in last
    assert words[1] in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
