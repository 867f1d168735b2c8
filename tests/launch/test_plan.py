"""Command lines and variables of ranks."""

import glob
import os
from pathlib import Path

import pytest

from allready.facts.live import LiveHost
from allready.facts.system import usable_cpus
from allready.launch.plan import argv_of, nccl_log, nccl_log_glob, omp_threads, virtual_local_rank, visible_devices
from allready.launch.request import RankCommand

ENV = {"PATH": os.defpath}


def test_a_script_runs_as_torchrun_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/py")
    assert argv_of(RankCommand(target="a.py", arguments=("-x",)), 0, environ=ENV) == ("/py", "-u", "a.py", "-x")
    assert argv_of(RankCommand(target="a.b", is_module=True), 0, environ=ENV) == ("/py", "-u", "-m", "a.b")
    assert argv_of(RankCommand(target="a.py"), 0, environ=ENV | {"PYTHON_EXEC": "/other"})[0] == "/other"


def test_the_wrapper_stands_before_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/py")
    head = ("/py", "-u", "/w.py")
    assert argv_of(RankCommand(target="a.py"), 0, wrapper=("/w.py",), environ=ENV) == (*head, "a.py")
    assert argv_of(RankCommand(target="a", is_module=True), 0, wrapper=("/w.py",), environ=ENV) == (
        *head,
        "--module",
        "a",
    )
    assert argv_of(RankCommand(target="a", run_path=True), 0, wrapper=("/w.py",), environ=ENV) == (
        *head,
        "--run-path",
        "a",
    )
    assert "/w.py" not in argv_of(RankCommand(target="ls", is_program=True), 0, wrapper=("/w.py",), environ=ENV)


def test_a_program_is_looked_for_on_the_ranks_path(tmp_path: Path) -> None:
    program = tmp_path / "prog"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(FileNotFoundError):
        argv_of(RankCommand(target="prog", is_program=True), 0, environ={"PATH": str(tmp_path)})
    program.chmod(0o755)
    argv = argv_of(
        RankCommand(target="prog", arguments=("a b", "$HOME"), is_program=True), 0, environ={"PATH": str(tmp_path)}
    )
    assert argv[-3:] == (str(program), "a b", "$HOME")


def test_threads_are_the_cores_divided_and_said_once() -> None:
    cores = usable_cpus(LiveHost()) or 1
    variables, notes = omp_threads({}, 2)
    assert variables == {"OMP_NUM_THREADS": str(max(1, cores // 2))}
    assert [n.key for n in notes] == ["workers.omp_threads"]
    assert omp_threads({}, 10_000)[0] == {"OMP_NUM_THREADS": "1"}


def test_threads_that_the_user_chose_stay() -> None:
    assert omp_threads({"OMP_NUM_THREADS": "7"}, 8) == ({}, [])
    assert omp_threads({}, 1) == ({}, [])


def test_devices_restrict_the_node_and_every_rank_sees_them_all() -> None:
    assert visible_devices({}, ("0", "1")) == ({"CUDA_VISIBLE_DEVICES": "0,1"}, [])
    assert visible_devices({}, ()) == ({}, [])
    variables, notes = visible_devices({"CUDA_VISIBLE_DEVICES": "4"}, ("2", "2"))
    assert variables == {"CUDA_VISIBLE_DEVICES": "2"}
    assert notes[0].values == {"value": "2", "before": "4"}


def test_virtual_local_ranks_map_through_what_is_visible() -> None:
    assert virtual_local_rank({}, 3) == {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "3"}
    assert virtual_local_rank({"CUDA_VISIBLE_DEVICES": "4, 6"}, 1)["CUDA_VISIBLE_DEVICES"] == "6"
    with pytest.raises(ValueError, match="no GPU for local rank 2"):
        virtual_local_rank({"CUDA_VISIBLE_DEVICES": "4,6"}, 2)


def test_nccls_log_is_asked_for_and_never_against_the_user(tmp_path: Path) -> None:
    assert nccl_log({}, tmp_path, None, None) == ({}, [])
    variables, notes = nccl_log({}, tmp_path, "INFO", "INIT,NET")
    assert variables == {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%h.%p.log",
    }
    assert notes == []
    variables, notes = nccl_log({"NCCL_DEBUG": "TRACE"}, tmp_path, "INFO", None)
    assert "NCCL_DEBUG" not in variables
    assert [(n.key, n.values["name"]) for n in notes] == [("workers.variable_kept", "NCCL_DEBUG")]


def test_the_log_of_nccl_is_found_where_the_user_wants_it(tmp_path: Path) -> None:
    own = tmp_path / "rank[0]"
    own.mkdir()
    (own / "nccl.gpu1.7.log").touch()
    for name in ("gpu1.7.txt", "gpu2.7.txt", "gpu1.8.txt", "gpu1.100%h.7.txt"):
        (tmp_path / name).touch()
    rows = [
        ({}, own / "nccl.gpu1.7.log"),
        ({"NCCL_DEBUG_FILE": f"{tmp_path}/%h.%p.txt"}, tmp_path / "gpu1.7.txt"),
        ({"NCCL_DEBUG_FILE": f"{tmp_path}/%h.100%%h.%p.txt"}, tmp_path / "gpu1.100%h.7.txt"),
        ({"NCCL_DEBUG_FILE": f"{tmp_path}/100%%p"}, own / "nccl.gpu1.7.log"),
        ({"NCCL_DEBUG_FILE": "/tmp/of_all_ranks"}, own / "nccl.gpu1.7.log"),  # whose lines of which rank?
    ]
    for environ, path in rows:
        assert glob.glob(nccl_log_glob(environ, own, 7, host="gpu1.example.com")) == [str(path)]  # noqa: PTH207
