"""A step's collectives by a measured curve: what is sent, how the curve is read, and where it says nothing."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allready.cli.main import main
from allready.judging.prediction import STRATEGIES, PredictionQuestion, messages, predict, time_at
from allready.model import BenchPoint, Collectives
from allready.model.operations import DTYPE_BYTES, OPERATIONS
from allready.report import html, json_report
from allready.report.blocks import compose
from allready.report.terminal import plain_lines
from allready.units import MIB
from tests.report.made_up_run import whole_report

KIB, GIB = 2**10, 2**30
QUESTIONS = st.builds(
    PredictionQuestion,
    strategy=st.sampled_from(sorted(STRATEGIES)),
    num_params=st.integers(1, 10**12),
    dtype=st.sampled_from(["bfloat16", "float32"]),
    grad_accum=st.integers(1, 64),
    bucket_bytes=st.sampled_from([0, 5 * MIB, 25 * MIB, GIB]),
)
RATES = st.tuples(st.floats(1e-6, 1e-2), st.floats(1e8, 1e12))


def curve(operation: str = "all_reduce", *, seconds: Mapping[int, float], dtype: str = "bfloat16") -> list[BenchPoint]:
    return [
        BenchPoint(
            size_bytes=size,
            time_s=t,
            algbw_gb_per_s=size / t / 1e9,
            busbw_gb_per_s=0.0,
            num_errors=0,
            num_iterations=20,
            operation=operation,
            dtype=dtype,
        )
        for size, t in seconds.items()
    ]


def steady(operation: str, latency_s: float, rate: float, largest: int = 4 * GIB) -> list[BenchPoint]:
    """Latency and bandwidth, as a network without surprises has them."""
    sizes = [KIB << n for n in range(64) if KIB << n <= largest]
    return curve(operation, seconds={size: latency_s + size / rate for size in sizes})


@given(QUESTIONS)
def test_a_step_sends_every_byte_as_often_as_its_strategy_does(question: PredictionQuestion) -> None:
    total = question.num_params * DTYPE_BYTES[question.dtype]
    sent = dict.fromkeys(STRATEGIES[question.strategy], 0)
    for (operation, size), number in messages(question).items():
        assert 0 < size <= question.unit_bytes
        assert number > 0
        sent[operation] += size * number
    if question.strategy == "ddp":
        assert sent == {"all_reduce": total}
    else:
        assert sent == {"all_gather": 2 * question.grad_accum * total, "reduce_scatter": question.grad_accum * total}


@given(RATES, QUESTIONS, st.integers(2, 4096))
def test_with_latency_and_bandwidth_alone_the_time_is_that_of_the_formula(
    rates: tuple[float, float], question: PredictionQuestion, world: int
) -> None:
    latency_s, rate = rates
    points = [p for operation in STRATEGIES[question.strategy] for p in steady(operation, latency_s, rate)]
    found = predict(
        points,
        8,
        PredictionQuestion(**{f: getattr(question, f) for f in question.__struct_fields__} | {"world_size": world}),
    )
    if found.gaps:  # only where the largest size does not show the bandwidth yet
        assert found.step_s is found.timeout_s is None
        assert all(g.size_bytes > 4 * GIB for g in found.gaps)
        return
    for each in found.collectives:
        factor = OPERATIONS[each.operation].bus_factor
        ratio = factor(world) / factor(8)
        expected = (latency_s + max(each.size_bytes, KIB) / rate) * ratio
        most = expected if each.basis != "above" else expected / 0.8
        assert expected * (1 - 1e-9) <= each.time_s <= most * (1 + 1e-9)
    assert found.step_s == pytest.approx(math.fsum(c.count * c.time_s for c in found.collectives))
    assert found.timeout_s is not None
    assert found.step_s is not None
    assert 120 + 10 * found.step_s <= found.timeout_s < 131 + 10.001 * found.step_s


@given(st.dictionaries(st.integers(4, GIB), st.floats(1e-6, 10), min_size=1), st.integers(4, 4 * GIB))
def test_a_curve_is_read_as_it_was_measured_whatever_its_shape(seconds: dict[int, float], size: int) -> None:
    points = curve(seconds=seconds)
    for known, time_s in seconds.items():
        assert time_at(points, known) == (time_s, "measured")
    found = time_at(points, size)
    if size <= max(seconds):
        assert found is not None
        assert min(seconds.values()) * (1 - 1e-9) <= found[0] <= max(seconds.values()) * (1 + 1e-9)
    elif found is not None:
        largest = max(seconds)
        assert found[1] == "above"
        assert found[0] == pytest.approx(seconds[largest] * size / largest)


def test_a_curve_that_still_grows_is_not_continued() -> None:
    grows = {MIB: 1e-3, 2 * MIB: 1.2e-3}
    flat = {MIB: 1e-3, 2 * MIB: 1.9e-3}
    close = {2 * MIB - 4096: 1.9e-3, 2 * MIB: 1.9e-3}  # steps of --step: two neighbours say nothing of a plateau
    found = time_at(curve(seconds=flat), 8 * MIB)
    assert found is not None
    assert found[0] == pytest.approx(7.6e-3)
    assert [time_at(curve(seconds=s), 8 * MIB) for s in (grows, close, {})] == [None, None, None]


def test_the_step_of_a_model_of_seven_billion_parameters() -> None:
    """By hand: 14e9 bytes; 1 MiB, 534 times 25 MiB and the rest, at 1 GB/s without latency."""
    points = steady("all_reduce", 1e-9, 1e9)
    found = predict(points, 8, PredictionQuestion(strategy="ddp", num_params=7 * 10**9, dtype="bfloat16", grad_accum=4))
    assert found.step_s == pytest.approx(14.0, rel=1e-3)
    assert [(c.size_bytes, c.count) for c in found.collectives] == [
        (14 * 10**9 - MIB - 534 * 25 * MIB, 1), (MIB, 1), (25 * MIB, 534)
    ]  # fmt: skip
    assert found.timeout_s == 270


def saved(path: Path, points: list[BenchPoint], ranks: int = 4) -> str:
    """In the form of nccl-tests."""
    types = {"float32": "float", "bfloat16": "bfloat16"}
    results = [
        {"size": p.size_bytes, "count": p.size_bytes // 2, "type": types[p.dtype],
         "experiment_name": f"{p.operation}_perf",
         "out_of_place": {"time": p.time_s * 1e6, "alg_bw": p.algbw_gb_per_s, "bus_bw": 0.0, "nwrong": 0}}
        for p in points
    ]  # fmt: skip
    path.write_text(json.dumps({"version": 3, "devices": [{}] * ranks, "results": results}))
    return str(path)


def test_the_command_answers_from_a_file_and_says_what_it_stands_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = curve(seconds={MIB: 1e-3, 16 * MIB: 16e-3}, dtype="float32")
    path, out = saved(tmp_path / "n.json", points), tmp_path / "p.json"
    ask = ["bench", "predict", "--params", "100M", "--dtype", "bf16", "--curve", path, "--lang"]
    assert main([*ask, "en", "--strategy", "ddp", "--world", "64", "--json", str(out)]) == 0
    text = capsys.readouterr().out
    words = [
        "DDP, 100M parameters of bfloat16, 64 ranks, buckets of 25 MiB", "Extrapolated from 4 ranks",
        "Measured with float32", "above the largest that was measured", "A time-out below 2 min 10 s",
    ]  # fmt: skip
    assert [w for w in words if w not in text] == []
    body = json.loads(out.read_text())
    assert body["step_s"] == pytest.approx(200e6 / 2**20 * 1e-3 * (63 / 64) / (3 / 4), rel=1e-6)
    assert main([*ask, "zh", "--strategy", "ddp"]) == 0
    assert "预测：DDP" in capsys.readouterr().out
    assert main([*ask, "en", "--strategy", "fsdp"]) == 3
    assert capsys.readouterr().out.count("was not measured") == 2


def test_mistakes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "n.json", curve(seconds={MIB: 1e-3}), ranks=1)
    rows = [
        (["predict"], "predict needs --params and --strategy (ddp, fsdp)"),
        (["predict", "all_reduce", "--params", "7e9", "--strategy", "ddp"], "predict takes no operations"),
        (["--params", "7e9"], "--params is for bench predict"),
        (["predict", "--params", "seven", "--strategy", "ddp"], "is not a number of parameters"),
        (["predict", "--params", "nan", "--strategy", "ddp"], "is not a number of parameters"),
        (["predict", "--params", "7B", "--strategy", "ddp", "--world", "1"], "--world from 2"),
        (["predict", "--params", "7B", "--strategy", "ddp", "--curve", path], "how many ranks measured it"),
    ]
    missed = []
    for arguments, words in rows:
        try:
            code = main(["bench", *arguments])
        except SystemExit as error:
            code = int(error.code or 0)
        if (code, words in capsys.readouterr().err) != (2, True):
            missed.append(arguments)
    assert missed == []


def test_a_report_shows_the_prediction_in_text_html_and_json() -> None:
    points = [p for op in STRATEGIES["fsdp"] for p in steady(op, 1e-5, 1e9)]
    found = predict(points, 4, PredictionQuestion(strategy="fsdp", num_params=10**9, dtype="bfloat16", grad_accum=2))
    report = replace(whole_report(), collectives=Collectives(runs=(), prediction=found))
    text = "\n".join(plain_lines(compose(report, "zh")))
    assert "预测: FSDP，1B 个 bfloat16 参数，4 个 rank" in text
    page = html.render(report)
    assert all(f">{time}</td>" in page for time in ("59.6 MiB", "128", "62.5 ms"))
    assert "per step</span>" in page
    kept = json_report.decode(json_report.encode(report)).collectives
    assert kept is not None
    assert kept.prediction == found
