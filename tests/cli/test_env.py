"""`allready env` as a person uses it: pages, findings with their lines, presets, and what is refused."""

import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from allready.cli.env_machine import towards
from allready.cli.env_preset import with_preset
from allready.cli.main import main
from allready.facts.live import LiveHost
from allready.facts.net import collect_net
from allready.launch.request import RankCommand, RunRequest
from allready.text.ui import ui
from allready.variables import table
from allready.variables.presets import NAMES
from tests.cases import cases

SCRIPT = """#!/bin/bash
export NCCL_TIMEOUT=3600
export NCCL_IB_DISABLE=true
export NCCL_DEBG=INFO
torchrun --nnodes 2 train.py
"""


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "MASTER_ADDR", "LANG", "LC_ALL"):
        monkeypatch.delenv(name, raising=False)


def env(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """Standard output of one run that ends with `code`; of a refused one what it writes instead."""
    assert main(["env", *map(str, arguments)]) == code
    written = capsys.readouterr()
    return written.err if code == 2 else written.out


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    return path


def test_a_page_has_type_readers_and_risk(capsys: pytest.CaptureFixture[str]) -> None:
    page = env(capsys, "explain", "NCCL_IB_TIMEOUT")
    for text in ("1 .. 31", "the NCCL library", "NCCL 2.0", "NCCL_IB_RETRY_CNT"):
        assert text in page
    assert "NCCL 库" in env(capsys, "explain", "NCCL_IB_TIMEOUT", "--lang", "zh")


def test_a_name_that_nothing_reads_says_what_does_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert "init_process_group(timeout=" in env(capsys, "explain", "NCCL_TIMEOUT")


def test_a_flag_of_xla_without_a_row_says_which_releases_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "jaxlib 0.4.30 to 0.5.3" in env(capsys, "explain", "xla_gpu_enable_priority_fusion")


def test_a_slip_in_a_name_of_other_software_says_which_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ACCELERATE_MIXED_PRECISION" in env(capsys, "explain", "ACCELERATE_MIXED_PRECISON", code=2)


def test_a_value_is_read_as_its_reader_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert "8 bytes" in env(capsys, "explain", "NCCL_BUFFSIZE", "--value", "8M")
    assert "leaves out here: lo" in env(capsys, "explain", "NCCL_SOCKET_IFNAME=^lo")


def test_pages_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    [page] = json.loads(env(capsys, "explain", "NCCL_NET_GDR_LEVEL", "--json", "-"))["variables"]
    assert page["name"] == "NCCL_NET_GDR_LEVEL"
    assert page["readers"] == ["libnccl"]
    assert "PXB" in page["values"]


@cases(
    "arguments, text",
    [
        (("explain",), "name a variable"),
        (("explain", "NCCL_SOCKET_IFNAM"), "NCCL_SOCKET_IFNAME"),
        (("explain", "NOTHING_LIKE_IT"), "--list"),
        (("explain", "A", "B", "--value", "1"), "--value takes one NAME"),
        (("explain", "--list", "NCCL_", "NCCL_DEBUG"), "--list takes one PREFIX"),
        (("explain", "--list", "ZZZ"), "begins with 'ZZZ'"),
        (("lint", "/nonexistent"), "No such file"),
        (("lint", "/"), "Is a directory"),
        (("lint", "--compare", "/dev/null"), "two nodes"),
        (("lint", "--json", "/nonexistent/x"), "/nonexistent/x"),
        (("preset", "of-my-own"), "valid: basic"),
        (("preset", "--shell"), "name a preset"),
        (("preset", "basic", "--peers", "no-such-host.invalid"), "cannot resolve no-such-host.invalid"),
    ],
)
def test_what_is_refused_and_why(arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert text in env(capsys, *arguments, code=2)


def test_a_version_must_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["env", "lint", "--torch", "newest"])
    assert ended.value.code == 2
    assert "'newest' is not a version" in capsys.readouterr().err


def test_findings_of_a_script_have_lines(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = env(capsys, "lint", script, code=1)
    for line, code in ((2, "VAR001"), (3, "VAR008"), (4, "VAR002")):
        assert f"{code} {script}:{line}: " in shown.replace("\n", "")
    assert "错误" in env(capsys, "lint", script, "--lang", "zh", code=1)


def test_findings_as_data(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = json.loads(env(capsys, "lint", script, "--json", "-", code=1))
    found = {(f["code"], f["line"], f["variable"]) for f in body["findings"]}
    assert {("VAR001", 2, "NCCL_TIMEOUT"), ("VAR008", 3, "NCCL_IB_DISABLE"), ("VAR002", 4, "NCCL_DEBG")} <= found
    assert all(f["remedies"] and f["remedy_zh"] and f["message_zh"] for f in body["findings"])


def test_a_warning_counts_where_it_is_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".env"
    path.write_text("NCCL_TIMEOUT=1\n")
    env(capsys, "lint", path)
    env(capsys, "lint", path, "--strict", code=1)


def test_a_file_that_cannot_be_read_as_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.py"
    path.write_text("def (:\n")
    assert "job.py:1" in env(capsys, "lint", path, code=3)


def test_the_environment_of_a_running_process(capsys: pytest.CaptureFixture[str]) -> None:
    waits = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(waits, env={"NCCL_TIMEOUT": "9"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # until then it may still be a copy of this one
        shown = env(capsys, "lint", f"/proc/{process.pid}/environ")
        process.communicate(timeout=20)
    assert "NCCL_TIMEOUT=9" in shown
    assert "in the shell that starts the job: unset NCCL_TIMEOUT" in shown


def test_no_secret_of_a_file_is_shown_whatever_the_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    lines = (
        f"export NCCL_DEUBG=hf_{secret}", f"export NCCL_ALGO=sk-proj-{secret}", f"export MASTER_ADDR=http://u:{secret}@h",
        f"export NCCL_COMM_ID=ghp_{secret}", f"export HF_TOKEN = hf_{secret}", f"WANDB_API_KE={secret}",
    )  # fmt: skip
    (tmp_path / "a.sh").write_text("\n".join(lines))
    assert main(["env", "lint", str(tmp_path / "a.sh")]) in {0, 1}
    shown = capsys.readouterr().out
    assert main(["env", "lint", str(tmp_path / "a.sh"), "--json", "-"]) in {0, 1}
    shown += capsys.readouterr().out
    assert "NCCL_ALGO" in shown
    assert secret not in shown


def test_the_cost_of_what_is_left_on_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.sh").write_text("export CUDA_LAUNCH_BLOCKING=1\n")
    shown = env(capsys, "lint", tmp_path / "a.sh")
    assert f"cost: {table.load()['CUDA_LAUNCH_BLOCKING'].cost}" in shown


def test_a_jax_that_is_asked_for_brings_its_own_jaxlib(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.sh").write_text("export XLA_FLAGS=--xla_gpu_graph_level=0\n")
    assert "jaxlib 0.5.0" in env(capsys, "lint", tmp_path / "a.sh", "--jax", "0.5.0")
    assert "VAR033" in env(capsys, "lint", tmp_path / "a.sh", "--jax", "0.10.0", code=1)


def test_what_differs_between_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, value in enumerate(("Ring", "Tree")):
        (tmp_path / f"{number}.env").write_text(f"NCCL_ALGO={value}\n")
    shown = env(capsys, "lint", "--compare", tmp_path / "0.env", tmp_path / "1.env", code=1)
    assert "NCCL_ALGO differs" in shown
    env(capsys, "lint", "--compare", tmp_path / "0.env", tmp_path / "0.env")


def test_what_is_compared_belongs_to_other_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        (tmp_path / f"{number}.env").write_text(f"NCCL_SOCKET_IFNAME=far{number}\n")
    env(capsys, "lint", "--compare", tmp_path / "0.env", tmp_path / "1.env")
    env(capsys, "lint", tmp_path / "0.env", code=1)


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    shown = env(capsys, "preset")
    assert all(name in shown for name in NAMES)


def test_a_preset_for_a_shell_can_be_evaluated_and_has_no_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = env(capsys, "preset", "single-node", "--shell")
    assert "export NCCL_SOCKET_IFNAME=lo" in lines
    set_by = f"set -e; eval {shlex.quote(lines)}; echo $NCCL_SOCKET_IFNAME"
    done = subprocess.run(["/bin/sh", "-c", set_by], capture_output=True, text=True, check=True)
    assert done.stdout == "lo\n"
    path = tmp_path / "preset.sh"
    path.write_text(lines)
    env(capsys, "lint", path, "--strict")


@cases("form", ["--json", "--dockerfile", "--sbatch"])
def test_a_preset_in_other_forms(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    written = env(capsys, "preset", "basic", form, "--torch", "2.15.0")
    if form == "--json":
        assert json.loads(written)["values"]["NCCL_DEBUG"] == "WARN"
    else:
        assert ('ENV NCCL_DEBUG="WARN"' if form == "--dockerfile" else "export NCCL_DEBUG=WARN") in written


def test_a_preset_for_a_job_leaves_what_is_set_alone() -> None:
    request = RunRequest(command=RankCommand(target="train.py"), nproc_per_node=2, environment={"OMP_NUM_THREADS": "3"})
    given = with_preset(request, "single-node", {"NCCL_DEBUG": "INFO", "GLOO_SOCKET_IFNAME": "lo"})
    assert given.environment["NCCL_SOCKET_IFNAME"] == "lo"
    assert given.environment["OMP_NUM_THREADS"] == "3"
    assert not {"NCCL_DEBUG", "GLOO_SOCKET_IFNAME"} & given.environment.keys()
    kept = {note.values["name"] for note in given.notes if note.key == "workers.variable_kept"}
    assert {"NCCL_DEBUG"} <= kept <= {"NCCL_DEBUG", "OMP_NUM_THREADS"}
    for note in given.notes:
        assert ui(note.key, "zh", **note.values) != ui(note.key, "en", **note.values)


def test_a_preset_for_loaders_says_what_the_script_has_to_give_them() -> None:
    given = with_preset(RunRequest(command=RankCommand(target="train.py"), nproc_per_node=2), "prefetch", {})
    [note] = [note for note in given.notes if note.key == "workers.preset_loader"]
    assert "num_workers=" in str(note.values["arguments"])
    assert "prefetch_factor=4" in ui(note.key, "zh", **note.values)


def test_a_job_with_an_unknown_preset_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--preset", "of-my-own", "train.py"]) == 2
    assert "valid: basic" in capsys.readouterr().err


def test_the_interface_towards_a_peer_is_the_one_of_the_kernels_route() -> None:
    net = collect_net(LiveHost(), timeout_s=5)
    own = [(i.name, a.partition("/")[0]) for i in net.interfaces for a in i.addresses if i.is_up and "." in a]
    for name, address in own:
        expected = None if name == "lo" else name
        assert towards(net, ["no-address", address]) == expected
    assert towards(net, []) is None


def test_what_is_no_text_is_not_called_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "damaged.tar.gz").write_bytes(b"\x1f\x8b" + bytes(range(128, 256)) * 20)
    (tmp_path / "program").write_bytes(Path("/bin/true").read_bytes()[:3000])
    (tmp_path / "deep.json").write_bytes(b"[" * 100_000 + b"]" * 100_000)  # a parser that calls itself would crash
    (tmp_path / "deep.yaml").write_text("a: " + "- " * 100_000)
    for name in ("damaged.tar.gz", "program", "deep.json", "deep.yaml"):
        assert main(["env", "lint", str(tmp_path / name)]) == 3, name
        assert "cannot be read as what it seems to be" in capsys.readouterr().out
    (tmp_path / "windows.env").write_bytes("NCCL_TIMEOUT=5\n".encode("utf-16"))
    main(["env", "lint", str(tmp_path / "windows.env")])
    assert "NCCL_TIMEOUT" in capsys.readouterr().out


def test_files_within_archives_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever they are called; what a name in one says about other folders has no meaning, for nothing is written."""
    image = bytes(range(256)) * 20
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as packed:
        packed.writestr("job/Dockerfile", "FROM x\nENV NCCL_IB_DISABLE=true\n")
        packed.writestr("../train.sh", "export NCCL_TIMEOUT=30\n")
        packed.writestr("a.png", image)
    shutil.copy(tmp_path / "job.zip", tmp_path / "run.sh")
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
        for name in ("job.zip", "run.sh"):
            archive.add(tmp_path / name, name)
    for name in ("job.zip", "run.sh", "job.tar.gz"):
        assert main(["env", "lint", str(tmp_path / name)]) == 1, name
        shown = capsys.readouterr().out
        assert f"{name}!" in shown
        assert "job/Dockerfile:2: NCCL_IB_DISABLE=true" in shown
        assert "train.sh:1: NCCL_TIMEOUT=30" in shown
    (tmp_path / "cut.zip").write_bytes((tmp_path / "job.zip").read_bytes()[:60])
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as packed:
        packed.writestr("a.png", image)
    (tmp_path / "zeros.sh.gz").write_bytes(gzip.compress(bytes(200 << 20), 1))
    for name in ("cut.zip", "images.zip", "zeros.sh.gz"):
        assert main(["env", "lint", str(tmp_path / name)]) == 3, name
        assert name in capsys.readouterr().out


@pytest.mark.jobs
def test_a_pipe_that_nobody_writes_is_refused_and_the_shells_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    allready = f"{sys.executable} -m allready"
    for arguments in (f"env lint {pipe}", f"doctor --from {pipe}", f"doctor --diff {pipe}"):
        done = subprocess.run(f"{allready} {arguments}", shell=True, capture_output=True, text=True, timeout=60)
        assert (done.returncode, "a named pipe" in done.stderr) == (2, True), arguments
    command = f"{allready} env lint <(echo export NCCL_TIMEOUT=5)"
    read = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "NCCL_TIMEOUT=5" in read.stdout
