"""`allready doctor` as a person uses it: on this machine, with torch that fails, on saved facts, of two machines."""

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from allready.cli.doctor import _until_s as until_when
from allready.cli.doctor_files import load, save
from allready.cli.main import main
from allready.cli.overdue import OverdueError, ended_within
from allready.cli.parser import parser_of
from allready.cli.promise import begun_s, margin_s, promise
from allready.errors import UsageError
from allready.facts.exchange import from_json
from allready.facts.live import LiveHost
from allready.facts.usage import _takes_in
from allready.model import FactMissing, GpuFacts, HostFacts, ImportFacts, LimitFacts, NodeFacts, Severity, UsageFacts
from allready.preflight.doctor.examine import judge, placed
from allready.proc.process import all_pids, environ_of
from tests.cases import cases
from tests.cli.processes import PROGRAM, plain_environment
from tests.clock import Stopwatch, until
from tests.fleets import healthy_node
from tests.hung_folder import hung_folder

pytestmark = pytest.mark.jobs

BAD = {"error", "blocker"}


def doctor(*arguments: str, environ: Mapping[str, str] | None = None, codes: Sequence[int] = (0,)) -> dict[str, Any]:
    """The report of a real `allready doctor`."""
    done = subprocess.run(
        [*PROGRAM, "doctor", "--json", "-", *arguments],
        capture_output=True,
        text=True,
        env=plain_environment(**(environ or {})),
        timeout=120,
        check=False,
    )
    assert done.returncode in codes, done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def fake_module(folder: Path, name: str, text: str) -> dict[str, str]:
    """The environment in which importing `name` runs `text`."""
    (folder / f"{name}.py").write_text(text)
    return {"PYTHONPATH": str(folder)}


def codes_of(report: Mapping[str, Any]) -> set[str]:
    return {f["code"] for f in report["findings"]}


def processes_with(mark: str) -> list[int]:
    """Those that have a variable of this name."""
    return [pid for pid in all_pids() if mark in environ_of(pid)]


def test_this_machine_has_no_fault_and_says_what_was_looked_at() -> None:
    report = doctor("--timeout", "30")
    assert report["command"] == "doctor"
    assert not {f["severity"] for f in report["findings"]} & BAD
    facts = report["facts"]["0"]
    assert facts["net"]["interfaces"]
    assert facts["launch"]["nproc_per_node"] == max(1, len(facts["gpu"].get("gpus", ())))


def test_without_root_torch_and_environment_it_works_and_finds_nothing(tmp_path: Path) -> None:
    """The interpreter without our environment's packages, as a user who is no rank, with an empty environment."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--user", "true"], timeout=20).returncode:
        pytest.skip("unshare --user is not permitted")
    bare = str(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
    for name in ("allready", "msgspec", "pynvml", "psutil"):
        if spec := importlib.util.find_spec(name):
            origin = Path(spec.origin or "")
            (tmp_path / (name if origin.name == "__init__.py" else origin.name)).symlink_to(
                origin.parent if origin.name == "__init__.py" else origin
            )
    needed = (f"PYTHONPATH={tmp_path}", "LC_ALL=C")
    argv = ["unshare", "--user", "env", "-i", *needed, bare]
    shown = (
        "import importlib.util as u, os; print(os.geteuid(), u.find_spec('torch'), u.find_spec('msgspec') is not None)"
    )
    who = subprocess.run([*argv, "-c", shown], capture_output=True, text=True, timeout=30, check=True)
    if who.stdout.split()[1:] != ["None", "True"]:
        pytest.skip("the interpreter itself has torch")
    assert who.stdout.split()[0] != "0"
    done = subprocess.run(
        [*argv, "-m", "allready", "doctor", "--timeout", "30", "--json", "-"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["status"], codes_of(report)) == ("healthy", set())
    facts = report["facts"]["0"]
    assert {module["outcome"] for module in facts["imports"]["modules"]} <= {"absent"}
    assert facts["env"]["variables"] == {}


def test_a_torch_that_raises_or_crashes_is_a_finding(tmp_path: Path) -> None:
    failures = {
        "raises": ("raise ImportError('libcudart.so.13: cannot open shared object file')", "libcudart.so.13"),
        "crashes": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        "exits": ("import os; os._exit(7)", "exit code 7"),
    }
    for name, (text, word) in failures.items():
        folder = tmp_path / name
        folder.mkdir()
        report = doctor("--timeout", "30", environ=fake_module(folder, "torch", text), codes=[1])
        found = [f for f in report["findings"] if f["code"] == "ENV012"]
        assert found, name
        assert word in found[0]["message"], name


def test_a_torch_that_hangs_is_a_finding_and_leaves_no_process(tmp_path: Path) -> None:
    mark = f"DOCTOR_MARK_{os.getpid()}"
    environ = {**fake_module(tmp_path, "torch", "import time\ntime.sleep(600)\n"), mark: "1"}
    started = Stopwatch()
    report = doctor("--timeout", "12", environ=environ)
    assert started.s < 40
    [finding] = [f for f in report["findings"] if f["code"] == "ENV013"]
    assert "torch.py" in finding["message"]
    assert finding["severity"] == "warning"
    assert not [one for one in report["not_checked"] if "import torch" in one["why"]], "the finding has said it"
    assert processes_with(mark) == []


def test_storage_that_does_not_answer_is_named_and_neither_blinds_nor_holds_it(tmp_path: Path) -> None:
    """Threads that wait for such a file system cannot be killed, so no process that has one can end."""
    with hung_folder(tmp_path) as home:
        started = Stopwatch()
        report = doctor("--timeout", "6", environ={"HOME": str(home)})
        assert started.s < 20
        [finding] = [f for f in report["findings"] if f["code"] == "LIM009"]
        facts = report["facts"]["0"]
        code, text = one_line("--prolog", HOME=str(home))
    assert str(home) in finding["message"]
    assert [name for name in ("net", "transport", "env", "limits", "usage") if "missing" in facts[name]] == []
    assert (code, text.count("\n")) == (0, 1), text


def test_what_a_module_prints_on_import_does_not_disturb(tmp_path: Path) -> None:
    environ = fake_module(tmp_path, "torch", "print('{hello'); __version__ = '9.9'\n")
    report = doctor("--timeout", "30", environ=environ)
    [torch] = [m for m in report["facts"]["0"]["imports"]["modules"] if m["module"] == "torch"]
    assert (torch["outcome"], torch["versions"]) == ("imported", {"torch": "9.9"})


def test_a_wrong_setting_is_found_once() -> None:
    report = doctor("--timeout", "30", environ={"NCCL_TIMEOUT": "3600"})
    named = [f["code"] for f in report["findings"] if "NCCL_TIMEOUT" in f["culprits"]["variables"]]
    assert named == ["VAR001"]


def test_saved_facts_are_judged_as_the_machine_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = healthy_node(0, 1)
    assert not isinstance(node.limits, FactMissing)
    small = replace(node, limits=replace(node.limits, shm_total_bytes=64 * 2**20, shm_free_bytes=2**26))
    save(str(tmp_path / "node.json"), small)
    assert load("--from", str(tmp_path / "node.json")) == small
    assert main(["doctor", "--from", str(tmp_path / "node.json")]) == 1
    assert "LIM001" in capsys.readouterr().out
    assert main(["doctor", "--from", str(tmp_path / "node.json"), "--json", str(tmp_path / "report.json")]) == 1
    assert main(["doctor", "--from", str(tmp_path / "report.json"), "-q"]) == 1


def test_a_healthy_machine_that_was_saved_is_healthy(tmp_path: Path) -> None:
    save(str(tmp_path / "node.json"), healthy_node(0, 1))
    assert main(["doctor", "--from", str(tmp_path / "node.json")]) == 0


def test_a_necessary_fact_that_is_missing_forbids_healthy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(str(tmp_path / "node.json"), replace(healthy_node(0, 1), gpu=FactMissing("NVML: Driver/library mismatch")))
    assert main(["doctor", "--from", str(tmp_path / "node.json")]) == 3
    assert "NVML: Driver/library mismatch" in capsys.readouterr().out


def test_two_machines_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = healthy_node(0, 2), healthy_node(1, 2)
    assert isinstance(other.host, HostFacts)
    assert not isinstance(other.software, FactMissing)
    versions = {**other.software.versions, "nccl": "2.18.3"}
    other = replace(other, software=replace(other.software, versions=versions))
    save(str(tmp_path / "a.json"), one)
    save(str(tmp_path / "b.json"), other)
    files = ["--from", str(tmp_path / "a.json"), "--diff", str(tmp_path / "b.json")]
    assert main(["doctor", *files]) == 1
    shown = capsys.readouterr().out
    assert "ENV001" in shown
    assert "gpu0=2.28.9; gpu1=2.18.3" in shown
    save(str(tmp_path / "b.json"), healthy_node(1, 2))
    assert main(["doctor", *files]) == 0
    assert "no difference" in capsys.readouterr().out
    for name in ("a", "b"):
        save(str(tmp_path / f"{name}.json"), NodeFacts.none("not read in time"))
    assert main(["doctor", *files]) == 3
    shown = capsys.readouterr().out
    assert "not compared: no facts of either machine are known" in shown
    assert "no difference" not in shown


def test_two_machines_of_one_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = healthy_node(0, 2)
    assert isinstance(one.host, HostFacts)
    save(str(tmp_path / "a.json"), one)
    save(str(tmp_path / "b.json"), replace(one, host=replace(one.host, kernel="6.18.0")))
    main(["doctor", "--from", str(tmp_path / "a.json"), "--diff", str(tmp_path / "b.json")])
    assert f"gpu0 (0)={one.host.kernel}; gpu0 (1)=6.18.0" in capsys.readouterr().out


@cases(
    "text",
    [
        "{",
        "[]",
        '{"schema": "other/1"}',
        '{"schema": "allready.facts/1", "facts": {"net": 3}}',
        '{"schema": "allready.facts/1"}',
        '{"schema": "allready.facts/1", "facts": ' + "[" * 3_000_000,
        '{"schema": "allready.report/1"}',
    ],
    ids=["no JSON", "a list", "another schema", "a fact of a wrong shape", "no facts", "a bomb", "no report"],
)
def test_no_facts_in_a_file_is_a_usage_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        load("--from", str(path))


def test_contradicting_variables_of_a_scheduler_do_not_stop_it() -> None:
    report = doctor("--timeout", "30", environ={"RANK": "5", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
    assert report["world"]["num_nodes"] == 1


def test_facts_of_a_node_without_any_are_no_crash(tmp_path: Path) -> None:
    save(str(tmp_path / "node.json"), NodeFacts())
    assert main(["doctor", "--from", str(tmp_path / "node.json")]) == 3


def one_line(*arguments: str, files: int | None = None, **environ: str) -> tuple[int, str]:
    """Exit code and output of a real run in one line, with these variables and so many open files allowed."""
    limit = f"ulimit -n {files}; " if files else ""
    done = subprocess.run(
        ["bash", "-c", f'{limit}exec "$@"', "bash", *PROGRAM, "doctor", *arguments],
        capture_output=True,
        text=True,
        env=plain_environment(NCCL_SOCKET_IFNAME="nosuch0", **environ),
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_prolog_prints_one_line_and_fails_for_a_fault_only() -> None:
    code, text = one_line("--prolog", "--timeout", "20")
    assert (code, text.count("\n")) == (0, 1)
    assert text.startswith("allready: ")
    code, text = one_line("--prolog", "--timeout", "20", files=30)
    assert code == 1
    assert text.startswith("allready: LIM004 ")
    assert len(text) < 300


def test_a_full_disk_drains_no_node() -> None:
    for more in ((), ("--save", "/dev/full")):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*PROGRAM, "doctor", "--prolog", *more],
                stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=plain_environment(),
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "allready: healthy" in done.stderr or "2 s are over" in done.stderr, "the CPUs may be busy"
        assert "Traceback" not in done.stderr


def test_a_prolog_that_cannot_look_drains_no_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(str(tmp_path / "node.json"), replace(healthy_node(0, 1), gpu=FactMissing("gpu: not read in time")))
    assert main(["doctor", "--prolog", "--from", str(tmp_path / "node.json")]) == 0
    assert capsys.readouterr().out == "allready: unknown: gpu: not read in time\n"


def test_a_nagios_plugin_has_its_own_words_and_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    healthy = healthy_node(0, 1)
    assert not isinstance(healthy.limits, FactMissing)
    states = {
        "OK": (0, healthy),
        "CRITICAL": (2, replace(healthy, limits=replace(healthy.limits, nofile_soft=16, nofile_hard=16))),
        "WARNING": (1, replace(healthy, usage=UsageFacts(num_tracked=90, max_tracked=100))),
        "UNKNOWN": (3, replace(healthy, gpu=FactMissing("NVML: a | b"))),
    }
    for word, (code, facts) in states.items():
        save(str(tmp_path / "node.json"), facts)
        assert main(["doctor", "--format", "nagios", "--from", str(tmp_path / "node.json")]) == code, word
        line = capsys.readouterr().out
        assert line.startswith(f"ALLREADY {word} - "), word
        assert line.count("|") == 1, word


def formatted(form: str, folder: Path, facts: NodeFacts, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    save(str(folder / "node.json"), facts)
    code = main(["doctor", "--format", form, "--from", str(folder / "node.json")])
    return code, json.loads(capsys.readouterr().out)


def test_a_condition_for_kubernetes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    healthy = healthy_node(0, 1)
    assert isinstance(healthy.limits, LimitFacts)
    states = {
        "False": (0, "NoFault", healthy),
        "True": (1, "LIM004", replace(healthy, limits=replace(healthy.limits, nofile_soft=30, nofile_hard=30))),
        "Unknown": (3, "NotChecked", replace(healthy, gpu=FactMissing("gpu: not read in time"))),
    }
    for status, (expected, reason, facts) in states.items():
        code, body = formatted("node-condition", tmp_path, facts, capsys)
        [condition] = body["status"]["conditions"]
        assert (code, condition["status"], condition["reason"]) == (expected, status, reason)
        assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", condition["reason"]), "Kubernetes' own rule"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", condition["lastHeartbeatTime"])
        assert condition["message"]


def test_a_report_of_tests_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    healthy = healthy_node(0, 1)
    assert isinstance(healthy.limits, LimitFacts)
    facts = replace(
        healthy,
        limits=replace(healthy.limits, nofile_soft=30, nofile_hard=30, ptrace_scope=3),
        usage=UsageFacts(silent_folders=("/home/ann",)),
        rdma=FactMissing("no /sys"),
    )
    code, body = formatted("ctrf", tmp_path, facts, capsys)
    results = body["results"]
    by_tag = {test["tags"][0]: test["status"] for test in results["tests"] if "tags" in test}
    wanted = {"LIM004": "failed", "LIM009": "other", "ENV018": "passed"}
    assert (code, {name: by_tag[name] for name in wanted}) == (1, wanted)
    assert "skipped" in by_tag.values()
    summary = results["summary"]
    assert summary["tests"] == len(results["tests"])
    assert summary["tests"] == sum(summary[name] for name in ("passed", "failed", "skipped", "pending", "other"))
    for name in ("passed", "failed", "skipped", "other"):
        assert summary[name] == sum(test["status"] == name for test in results["tests"])
    assert summary["stop"] >= summary["start"] > 1_600_000_000_000
    assert all(set(test) >= {"name", "status", "duration"} for test in results["tests"])


def test_a_port_in_use_is_named_with_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        report = doctor("--timeout", "30", "--port-range", port)
    [finding] = [f for f in report["findings"] if f["code"] == "PRT011"]
    assert f"pid {os.getpid()}" in finding["message"]


def test_a_rank_that_was_left_over_is_found_where_the_first_process_is_no_launcher() -> None:
    if not _takes_in(LiveHost()):
        pytest.skip(f"the first process, {Path('/proc/1/comm').read_text().strip()}, may be a launcher")
    program = "import os, sys, time\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    done = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "LOCAL_RANK": "0", "RANK": "0", "TORCHELASTIC_RUN_ID": "x"},
    )
    assert done.stdout is not None
    pid = int(done.stdout.readline())
    try:
        done.wait(20)
        report = doctor("--timeout", "30")
        assert str(pid) in next(f["message"] for f in report["findings"] if f["code"] == "GPU009")
    finally:
        os.kill(pid, signal.SIGKILL)
        done.stdout.close()


def test_an_interrupt_leaves_no_import_behind(tmp_path: Path) -> None:
    mark = f"DOCTOR_INTERRUPTED_{os.getpid()}"
    environ = {**fake_module(tmp_path, "torch", "import time\ntime.sleep(600)\n"), mark: "1"}
    process = subprocess.Popen(
        [*PROGRAM, "doctor", "--timeout", "60"],
        env=plain_environment(**environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: len(processes_with(mark)) > 1, 30.0, what=lambda: "the import began")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 3
        until(lambda: not processes_with(mark), 10.0, what=lambda: processes_with(mark))
    finally:
        process.kill()
        process.wait(10)


def test_the_facts_of_a_machine_with_a_gpu_have_no_finding() -> None:
    """Of an H200 in a container, as `--save` wrote them there."""
    facts = Path(__file__).parents[1] / "fixtures" / "doctor" / "h200.json"
    report = doctor("--from", str(facts))
    assert (report["status"], codes_of(report)) == ("healthy", set())


@pytest.mark.parametrize("name", ["h200_x2.json", "h200_x2_use_gpus.json"])
def test_two_gpus_with_nvlink_have_no_finding_and_their_links_between_them(name: str) -> None:
    """Two H200 behind switches, whose addresses the container is not known; `nvidia-smi topo -m` had NV18 as well."""
    facts = Path(__file__).parents[1] / "fixtures" / "doctor" / name
    report = doctor("--from", str(facts))
    assert (report["status"], codes_of(report)) == ("healthy", set())
    saved = from_json(json.loads(facts.read_text())["facts"])
    assert isinstance(saved.gpu, GpuFacts)
    assert [(pair.level, pair.num_nvlinks, pair.p2p) for pair in saved.gpu.pairs] == [("PHB", 18, "ok")]


@pytest.mark.parametrize(
    ("options", "code", "begin"),
    [
        (("--prolog",), 0, "allready: not looked at: 2 s are over"),
        (("--format", "nagios"), 3, "ALLREADY UNKNOWN - not looked at: 2 s are over"),
        (("--format", "node-condition"), 3, ""),
    ],
)
def test_a_prolog_without_time_says_so_in_time(
    options: tuple[str, ...], code: int, begin: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Facts that take an hour, in a machine whose every limit fails."""
    left_s: list[float] = []

    def endless(*_: object, **__: object) -> None:
        left_s.append(signal.getitimer(signal.ITIMER_REAL)[0])
        time.sleep(3600)

    monkeypatch.setattr("allready.preflight.doctor.examine.examine", endless)
    assert main(["doctor", *options, "--lang", "en"]) == code
    assert all(0 < left <= 2.0 for left in left_s)
    printed = capsys.readouterr()
    assert printed.out.startswith(begin)
    assert printed.out.count("\n") == (1 if begin else 0)
    assert "--timeout 30" in printed.out + printed.err
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_interpreter_that_started_too_late_looks_at_nothing_and_drains_no_node(tmp_path: Path) -> None:
    """As on CPUs that are very busy: 2 s are over before the first line of ours."""
    (tmp_path / "sitecustomize.py").write_text("import time\nwhile time.process_time() < 2.2: pass\n")
    code, line = one_line("--prolog", "--lang", "en", PYTHONPATH=str(tmp_path))
    assert (code, line.startswith("allready: not looked at: 2 s are over")) == (0, True), line


def test_loopback_is_a_mistake_only_where_the_job_has_other_nodes(tmp_path: Path) -> None:
    saved = str(tmp_path / "node.json")
    doctor("--save", saved, "--timeout", "20", environ={"NCCL_SOCKET_IFNAME": "lo"})
    assert "VAR019" not in codes_of(doctor("--from", saved))
    assert "VAR019" not in codes_of(doctor("--from", saved, "--nnodes", "1"))
    assert "VAR019" in codes_of(doctor("--from", saved, "--nnodes", "2", codes=(1,)))


@pytest.mark.parametrize(
    ("language", "said"),
    [("en", "on 1 node, the only one of 2 nodes that was looked at"), ("zh", "只检查了 2 个节点中的 1 个节点")],
)
def test_one_node_of_a_job_is_not_called_all_of_it(
    language: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(str(tmp_path / "node.json"), healthy_node(0, 1))
    assert main(["doctor", "--from", str(tmp_path / "node.json"), "--nnodes", "2", "--lang", language]) == 0
    assert said in capsys.readouterr().out.partition("\n")[0]


@pytest.mark.slow
def test_a_script_that_ends_with_exec_has_all_of_the_time(tmp_path: Path) -> None:
    """The process is older than the limit, and slept until then: it was not started for this command."""
    for option, begin in (("--prolog", "allready: "), ("--format=nagios", "ALLREADY ")):
        done = subprocess.run(
            ["bash", "-c", 'sleep 3; exec "$@"', "bash", *PROGRAM, "doctor", option, "--lang", "en"],
            capture_output=True, text=True, timeout=60, check=False, env=plain_environment(),
        )  # fmt: skip
        assert done.stdout.startswith(begin)
        assert "not looked at" not in done.stdout or os.getloadavg()[0] > 4, done.stdout


@pytest.mark.parametrize(
    ("language", "begin"), [("en", "allready: not looked at: 2 s"), ("zh", "allready: 未检查：2 s")]
)
def test_imports_that_take_long_end_in_time(language: str, begin: str, tmp_path: Path) -> None:
    """Before the command's own module is there: the alarm is set at the first line."""
    (tmp_path / "argparse.py").write_text("import time\nwhile True: time.sleep(0.1)\n")
    code, line = one_line("--prolog", "--lang", language, PYTHONPATH=str(tmp_path))
    assert (code, line.startswith(begin)) == (0, True), line


@cases(
    ("words", "limit_s"),
    [
        (["--format", "nagios"], 2.0),
        (["--format=ctrf"], 2.0),
        (["--prolog"], 2.0),
        (["--save=ctrf"], 3.0),
        (["--save", "nagios"], 3.0),
        ([], 3.0),
    ],
)
def test_only_a_format_makes_it_end_sooner(monkeypatch: pytest.MonkeyPatch, words: list[str], limit_s: float) -> None:
    set_s: list[float] = []
    monkeypatch.setattr("allready.cli.promise.signal.signal", lambda *_: None)
    monkeypatch.setattr("allready.cli.promise.signal.setitimer", lambda _, left_s: set_s.append(left_s))
    monkeypatch.setattr("allready.cli.promise.begun_s", lambda *_, **__: 0.0)
    monkeypatch.setattr("allready.cli.promise.margin_s", lambda: 0.0)
    promise(words)
    assert set_s == [limit_s]


@pytest.mark.parametrize("language", [["--lang", "zh"], ["--lang=zh"]])
def test_the_alarm_is_set_as_well_where_the_language_stands_before_the_command(
    language: list[str], tmp_path: Path
) -> None:
    (tmp_path / "argparse.py").write_text("import time\nwhile True: time.sleep(0.1)\n")
    done = subprocess.run(
        [*PROGRAM, *language, "doctor", "--prolog"],
        capture_output=True, text=True, timeout=60, check=False, env=plain_environment(PYTHONPATH=str(tmp_path)),
    )  # fmt: skip
    assert (done.returncode, done.stdout[:19]) == (0, "allready: 未检查：2 s 已"), done


def test_the_time_of_a_process_counts_what_it_ran_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allready.cli.promise.own_age_s", lambda: 2.5)
    for times, expected in (((0.05, 2.3), 2.5), ((0.05, 0.01), 0.0)):
        monkeypatch.setattr("allready.cli.promise.own_cpu_times", lambda times=times, **_: times)
        assert begun_s(2.0, is_program=True) == expected
        assert begun_s(3.0, is_program=True) == 2.5


def test_devices_of_torch_and_jax_on_a_machine_with_a_gpu() -> None:
    """Of the same kind of machine, as `--use-gpus --save` wrote them there: torch 2.11 and JAX 0.11 answered."""
    facts = Path(__file__).parents[1] / "fixtures" / "doctor" / "h200_use_gpus.json"
    saved = from_json(json.loads(facts.read_text())["facts"])
    assert isinstance(saved.imports, ImportFacts)
    asked = [(m.module, m.devices.platform, m.devices.names) for m in saved.imports.modules if m.devices is not None]
    assert asked == [("torch", "cuda", ("NVIDIA H200",)), ("jax", "gpu", ("NVIDIA H200",))]
    report = doctor("--from", str(facts))
    assert (report["status"], codes_of(report)) == ("healthy", set())


def test_a_process_that_ended_and_holds_the_gpu_is_named() -> None:
    """The same machine while the first thread of a process with a CUDA context had ended and another one ran on."""
    saved = json.loads((Path(__file__).parents[1] / "fixtures" / "doctor" / "h200_zombie.json").read_text())
    facts = from_json(saved["facts"])
    assert isinstance(facts.host, HostFacts)
    bare = replace(facts, host=replace(facts.host, container=None))  # in a container pids may be those of the host
    found = {f.code: f for f in judge([placed(bare)], None).findings}
    assert set(found) == {"GPU020", "ENV019"}
    assert found["GPU020"].values["processes"] == "pid 824 [python3]"
    assert found["ENV019"].severity is Severity.INFO
    assert judge([placed(facts)], None).findings == ()


@pytest.mark.parametrize(("limit_s", "options"), [(3.0, []), (2.0, ["--prolog"])])
def test_facts_have_what_is_left_since_the_process_was_started(
    limit_s: float, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the limit, whatever the start took, but for judging, which takes longer where the CPUs are busy."""
    args = parser_of("doctor", "allready.cli.doctor", "").parse(options)

    def end_s(age: float, times: float) -> float:
        monkeypatch.setattr("allready.cli.promise.own_age_s", lambda: age)
        for module in ("doctor", "promise"):
            monkeypatch.setattr(f"allready.cli.{module}.slowness", lambda: times)
        until_s, latest_s = until_when(args)
        assert until_s <= latest_s
        return until_s - time.monotonic() + age

    quick, late, busy = end_s(0.2, 1.0), end_s(1.2, 1.0), end_s(1.2, 4.0)
    assert quick == pytest.approx(late, abs=0.05), "counted from the start of the process, not from now"
    assert limit_s - 0.6 < quick < limit_s - 0.2
    assert busy < late - 0.04
    assert end_s(limit_s - 0.1, 1.0) > limit_s - 0.1, "some time in any case"
    assert end_s(900.0, 1.0) > 900.0 + 1.0, "a process that is older was started for something else"


def test_the_end_comes_the_earlier_the_busier_the_cpus_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def margin(times: float) -> float:
        monkeypatch.setattr("allready.cli.promise.slowness", lambda: times)
        return margin_s()

    assert margin(1.0) == margin(4.0) == 0.3
    assert margin(40.0) == pytest.approx(0.8)


def test_a_start_that_took_nearly_all_of_the_time_ends_it_before_anything_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("allready.cli.promise.slowness", lambda: 1.0)
    monkeypatch.setattr("allready.cli.promise.own_age_s", lambda: 1.5)
    begun = []
    with pytest.raises(OverdueError), ended_within(2.0):
        begun.append("a child")
    assert not begun
    with ended_within(3.0):
        begun.append("a child")
    assert begun


def test_imports_begin_first_and_have_all_the_time_that_is_left(tmp_path: Path) -> None:
    """A torch that computes for ever: it is given nearly all of the time, and nothing is left of it."""
    mark = f"DOCTOR_MARK_{os.getpid()}"
    environ = {**fake_module(tmp_path, "torch", "while True: pass\n"), mark: "1"}
    for more in ([], [], ["--timeout", "20"]):  # the last for a machine whose CPUs are busy now
        began_s = time.monotonic()
        done = subprocess.run(
            [*PROGRAM, "doctor", "--json", "-", "--lang", "en", *more],
            capture_output=True, text=True, env=plain_environment(**environ), timeout=60, check=False,
        )  # fmt: skip
        took_s = time.monotonic() - began_s
        assert processes_with(mark) == []
        if done.stdout:
            break
        assert "3 s are over" in done.stderr, "said, where the CPUs had no time for it"
    report = json.loads(done.stdout)
    facts = report["facts"]["0"]
    [torch] = [m for m in facts["imports"]["modules"] if m["module"] == "torch"]
    assert torch["outcome"] == "silent"
    assert torch["limit_s"] > took_s * 0.5
    [why] = [one["why"] for one in report["not_checked"] if "import torch" in one["why"]]
    assert "allready doctor --timeout 60 waits longer" in why


def test_a_report_that_is_begun_is_shown_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The alarm that ends a command in time never cuts its output in two."""

    def slowly(*_: object, **__: object) -> None:
        time.sleep(2.5)
        sys.stdout.write("the report\n")

    monkeypatch.setattr("allready.report.terminal.show", slowly)
    monkeypatch.setattr("allready.cli.doctor.DEADLINE_S", 2.0)
    code = main(["doctor", "--lang", "en", "--quiet"])
    printed = capsys.readouterr()
    if printed.out:
        assert printed.out == "the report\n"
        assert code in {0, 3}, "healthy, or a necessary fact was not read in so little time"
    else:
        assert "2 s are over" in printed.err
        assert code == 3
