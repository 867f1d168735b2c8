"""Evidence recorded on a machine with two H100 (torch 2.11, NCCL 2.28.9, driver 580.159.04), each file by itself.

RAS was asked over its port: a healthy loop, one in which rank 1 left out an all_reduce, one in which it was stopped.
nccl-tests 2.19.6; Inspector plugins of NCCL 2.28.9 and 2.30, in `slow_*` with rank 1 sleeping 30 ms in every step.
The kernel's lines are of a program that wrote where it must not.  The dumps were made under `allready run`.
"""

import json
import lzma
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from allready.cli.main import main
from tests.cases import cases

FIXTURES = Path(__file__).parents[1] / "fixtures"
H100 = FIXTURES / "h100"


def diagnosed(folder: Path, *files: str) -> dict[str, Any]:
    """report.json of the files, which lie below the fixtures."""
    for name in files:
        path = FIXTURES / name
        if path.suffix == ".xz":
            (folder / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
        else:
            shutil.copy(path, folder / path.name)
    target = folder.parent / f"{folder.name}.json"
    assert main(["diagnose", "-q", "--json", str(target), str(folder)]) in {0, 1, 3}
    report = json.loads(target.read_bytes())
    assert isinstance(report, dict)
    return report


def told(report: dict[str, Any]) -> tuple[str, str, Sequence[int]]:
    """Code, class and ranks of the verdict."""
    verdict = report["verdict"]
    return verdict["code"], verdict["fault_class"], verdict["culprits"]["ranks"]


@pytest.mark.parametrize("name", ["ok_a.json", "ok_a.text"])
def test_ras_of_a_healthy_job_accuses_nobody(name: str, tmp_path: Path) -> None:
    report = diagnosed(tmp_path, f"h100/ras/{name}")
    assert (report["status"], report["verdict"]) == ("unknown", None)


@pytest.mark.parametrize("names", [["skip_a.json"], ["skip_a.text"], ["skip_a.json", "skip_b.json"]])
def test_ras_names_the_rank_that_launched_less_and_the_operation(names: list[str], tmp_path: Path) -> None:
    report = diagnosed(tmp_path, *(f"h100/ras/{name}" for name in names))
    assert told(report) == ("HNG001", "CPU-STUCK", [1])
    sentence = report["verdict"]["sentence"]
    assert "never entered all_reduce" in sentence
    assert "(0x36c1251632ab2ae)" in sentence
    assert report["verdict"]["confidence"] == ("likely" if len(names) > 1 else "possible")


@pytest.mark.parametrize("name", ["stop_a.json", "stop_late.json", "stop_a.text", "stop_a.brief.text"])
def test_ras_names_the_process_that_does_not_answer(name: str, tmp_path: Path) -> None:
    report = diagnosed(tmp_path, f"h100/ras/{name}")
    code, _, ranks = told(report)
    assert (code, ranks) == ("HNG002" if name.endswith("json") else "HNG011", [1])
    assert "rank 1 (192.0.2.2)" in report["verdict"]["sentence"]
    assert len(report["world"]["nodes"]) == 1  # 192.0.2.2 is no second node


def test_ras_asked_twice_leaves_less_doubt(tmp_path: Path) -> None:
    report = diagnosed(tmp_path, "h100/ras/stop_a.json", "h100/ras/stop_b.json")
    assert told(report) == ("HNG002", "CPU-STUCK", [1])
    assert report["verdict"]["confidence"] == "likely"


@pytest.mark.parametrize("version", ["v30"])
def test_inspector_files_name_the_rank_that_all_wait_for(version: str, tmp_path: Path) -> None:
    report = diagnosed(tmp_path, *(f"h100/inspector/slow_{version}_{i}.log.xz" for i in (0, 1)))
    assert told(report) == ("SLW001", "SLOW-COMP", [1])


@pytest.mark.parametrize(
    "names",
    [
        ["ok_v30"],  # of one rank only
        ["slow_v28_0", "slow_v28_1"],  # 2.28's ring keeps too few all_reduces that both ranks have
        ["verbose_v28"],
    ],
)
def test_inspector_files_that_cannot_tell_accuse_nobody(names: list[str], tmp_path: Path) -> None:
    report = diagnosed(tmp_path, *(f"h100/inspector/{name}.log.xz" for name in names))
    assert report["verdict"] is None
    assert all(s["kind"] == "inspector" and s["num_unknown"] == 0 for s in report["ruins"]["sources"])


@cases("name", ["all_reduce", "sendrecv", "alltoall", "all_reduce_half_nocheck", "all_reduce_info"])
def test_a_whole_run_of_nccl_tests_ended_well(name: str, tmp_path: Path) -> None:
    report = diagnosed(tmp_path, f"h100/nccl_tests/{name}.out")
    assert report["status"] == "healthy"
    [source] = report["ruins"]["sources"]
    assert source["num_unknown"] == 0
    [bench] = report["ruins"]["benches"]
    assert bench["num_ranks"] == 2
    assert bench["avg_busbw_gb_per_s"] > 10
    assert [row["rank"] for row in report["ruins"]["ranks"]] == [0, 1]


def test_a_run_of_nccl_tests_that_was_cut_says_nothing(tmp_path: Path) -> None:
    whole = (H100 / "nccl_tests/all_reduce.out").read_text()
    (tmp_path / "cut.out").write_text(whole[: whole.index("# Out of bounds")])
    assert diagnosed(tmp_path)["status"] == "unknown"


def test_wrong_values_are_a_fault(tmp_path: Path) -> None:
    whole = (H100 / "nccl_tests/all_reduce.out").read_text()
    (tmp_path / "wrong.out").write_text(whole.replace(": 0 OK", ": 12 FAILED"))
    report = diagnosed(tmp_path)
    assert told(report) == ("NLG143", "HW-HANG", [])
    assert "12 values" in report["verdict"]["sentence"]


def test_too_many_gpus_are_told(tmp_path: Path) -> None:
    report = diagnosed(tmp_path, "h100/nccl_tests/too_many_gpus.out")
    assert told(report)[:2] == ("NLG144", "ENV-MISMATCH")


def test_an_xid_is_told_with_its_process(tmp_path: Path) -> None:
    report = diagnosed(tmp_path, "h100/kernel/xid31.dmesg")
    assert report["verdict"]["code"] == "KRN005"
    assert "failed (process 2282, bad), Xid 31" in report["verdict"]["sentence"]


def test_a_wrong_root_of_two_ranks_is_told_and_nobody_accused(tmp_path: Path) -> None:
    report = diagnosed(tmp_path, *(f"flight/nccl_root/fr_{r}.pickle.xz" for r in (0, 1)))
    assert told(report) == ("DSY002", "DESYNC-ARGS", [])
    assert "operation 182 of group default_pg" in report["verdict"]["sentence"]
    assert "root differs" in report["verdict"]["sentence"]


def test_splits_that_do_not_fit_name_their_rank(tmp_path: Path) -> None:
    report = diagnosed(tmp_path, *(f"flight/nccl_splits/fr_{r}.pickle.xz" for r in (0, 1)))
    assert told(report) == ("DSY004", "DESYNC-ARGS", [1])
    assert "rank 1 sends 1984 elements to rank 0, which expects 2048" in report["verdict"]["sentence"]


def test_good_tables_beside_another_job_do_not_make_that_one_healthy(tmp_path: Path) -> None:
    report = diagnosed(tmp_path, "h100/nccl_tests/all_reduce.out", "h100/ras/skip_a.json", "h100/ras/skip_b.json")
    assert told(report) == ("HNG001", "CPU-STUCK", [1])
