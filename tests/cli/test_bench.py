"""`allready bench` from the command line: mistakes, and a run whose table goes to every kind of file."""

import argparse
import csv
import json
from pathlib import Path

import pytest

from allready.cli import bench
from allready.cli.main import main
from allready.launch.layout import lay_out
from tests.cases import cases
from tests.launch.test_layout import machine


@cases(
    ("arguments", "words"),
    [
        (["all_reduces"], "no operation 'all_reduces'"),
        (["pairs", "all_reduce"], "pairs takes no operations"),
        (["--min", "1M", "--max", "1K"], "--min-bytes 1048576 is above --max-bytes 1024"),
        (["pairs", "--isolate"], "--isolate is for operations, not for pairs"),
        (
            ["predict", "--isolate", "--params", "7e9", "--strategy", "ddp"],
            "--isolate is for operations, not for predict",
        ),
        (["--factor", "1"], "a factor is 2 or more"),
        (["--step", "0"], "sizes must grow by at least 1"),
        (["--warmup", "-1"], "--warmup"),
        (["--iterations", "0"], "not a whole number from 1"),
        (["--min", "1", "--max", "3"], "--min-bytes 1: at least 4, one float32"),
        (["--min", "4", "--dtype", "float64"], "--min-bytes 4: at least 8, one float64"),
        (["pairs", "--max", "3", "--dtype", "int8"], "--max-bytes 3: at least 4, one float32"),
        (["--compare", "/nowhere/x.json"], "/nowhere/x.json: No such file"),
        (["--csv", "/nowhere/x.csv"], "/nowhere is not a folder"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["bench", *arguments])
    except SystemExit as error:
        code = int(error.code or 0)
    assert code == 2
    assert words in capsys.readouterr().err


@cases("word", ["all_reduce", "allreduce", "all-reduce", "AllReduce", "all_reduce_perf"])
def test_operations_have_the_names_of_other_tools_too(word: str) -> None:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    args = parser.parse_args([word, "--warmup", "0"])
    layout = lay_out({"nproc_per_node": 2}, {}, count_gpus=lambda: 0, machine=machine())
    request = bench.request_of(args, layout)
    assert request.bench is not None
    assert (request.bench.operations, request.num_warmup) == (("all_reduce",), 0)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.jobs
def test_a_run_is_written_to_every_kind_of_file_and_compared_with_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--nproc-per-node", "2", "--max", "4K", "--iters", "3", "--lang", "en"]
    wanted = {name: str(tmp_path / name) for name in ("a.csv", "n.json", "base.json", "r.html")}
    files = ["--csv", wanted["a.csv"], "--nccl-json", wanted["n.json"], "--save-baseline", wanted["base.json"]]
    assert main(["bench", "all_reduce", "all_gather", *common, *files]) == 0
    shown = capsys.readouterr().out
    assert "all_gather · float32" in shown
    assert shown.splitlines()[-1].split(": ")[1].split(", ") == [wanted[n] for n in ("a.csv", "n.json", "base.json")]
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    results = json.loads((tmp_path / "n.json").read_text())["results"]
    assert [r["operation"] for r in rows] == ["all_reduce"] * 3 + ["all_gather"] * 3
    assert [int(r["size_bytes"]) for r in rows] == [r["size"] for r in results] == [1024, 2048, 4096] * 2
    slow = json.loads((tmp_path / "base.json").read_text())
    for point in slow["collectives"]["runs"][0]["points"]:
        point["busbw_gb_per_s"] *= 1e4
    (tmp_path / "faster.json").write_text(json.dumps(slow))
    compared = ["--compare", str(tmp_path / "faster.json"), "--overlay", wanted["n.json"], "--html", wanted["r.html"]]
    assert main(["bench", *common, *compared]) == 1
    assert "BEN002 all_reduce: busbw is 0 % of the baseline faster" in capsys.readouterr().out
    page = (tmp_path / "r.html").read_text()
    assert all(name in page for name in ("all_reduce · gloo", "all_reduce · faster", "all_reduce · n<"))


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.jobs
def test_a_prediction_stands_on_the_curve_that_was_just_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["predict", "--params", "50K", "--dtype", "bf16", "--strategy", "fsdp", "--bucket-bytes", "8K"]
    job = ["--nproc-per-node", "2", "--max", "32K", "--iters", "3", "--lang", "en"]
    assert main(["bench", *model, *job, "--json", str(tmp_path / "r.json")]) == 0
    assert "Prediction: FSDP, 50K parameters of bfloat16, 2 ranks" in capsys.readouterr().out
    body = json.loads((tmp_path / "r.json").read_text())["collectives"]
    times = {(p["operation"], p["size_bytes"]): p["time_s"] for p in body["runs"][0]["points"]}
    assert set(times) == {(o, 1024 << n) for o in ("all_gather", "reduce_scatter") for n in range(6)}
    whole = [c for c in body["prediction"]["collectives"] if c["size_bytes"] == 8192]
    assert {(c["operation"], c["count"]) for c in whole} == {("all_gather", 24), ("reduce_scatter", 12)}
    assert all(c["time_s"] == pytest.approx(times[c["operation"], 8192]) for c in whole)
    assert body["prediction"]["step_s"] > 0
    assert main(["bench", *model, "--nproc-per-node", "1"]) == 2
    assert "one rank has no collectives to measure" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.jobs
@pytest.mark.timeout(120)
def test_a_search_keeps_its_budget_and_says_what_did_not_fit(tmp_path: Path) -> None:
    arguments = ["bisect", "--max-bytes", "64K", "--nproc-per-node", "8", "--budget", "0.05", "--backend", "gloo"]
    assert main(["bench", *arguments, "--json", str(tmp_path / "report.json")]) == 3
    report = json.loads((tmp_path / "report.json").read_text())
    [run] = report["collectives"]["runs"]
    [stage] = [stage for stage in run["stages"] if stage["name"] == "bisect"]
    assert {group["round"] for group in run["groups"]} == {0}
    assert stage["duration_s"] < 9  # one round, by eight ranks on however few CPUs
    assert [n["kind"] for n in report["not_checked"] if n["code"] == "bisect"] == ["rounds_left"]


def test_options_as_nccl_tests_spells_them() -> None:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    theirs = parser.parse_args(["all_reduce", "-b", "1K", "-e", "1M", "-i", "64K", "-n", "5", "-w", "0", "-d", "half"])
    words = "all_reduce --min-bytes 1K --max-bytes 1M --step 64K --iters 5 --warmup 0 --dtype float16"
    assert theirs == parser.parse_args(words.split())
    assert parser.parse_args(["all_reduce", "-f", "4"]).factor == 4
