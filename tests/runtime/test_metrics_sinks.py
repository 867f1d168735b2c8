"""Sinks with their real packages; each is skipped where its package is not installed."""

import urllib.request
from pathlib import Path
from typing import Any

import pytest

from allready.errors import UsageError
from allready.model import CallFailed, Counted, GroupFormed, Lag, LogBegin, LogLine, Recorder, RuntimeCounts
from allready.runtime.metrics import sinks
from allready.runtime.metrics.counts import OperationTally
from tests.clock import until
from tests.runtime.test_metrics import failure

BEGIN = LogBegin(attempt="a1", rank=3, world_size=4, time_s=1000.0)


def counts() -> RuntimeCounts:
    operation = OperationTally()
    for took_s in (0.001, 0.002, 0.002, 0.004, 90.0):
        operation.calls += 1
        operation.latencies.add(took_s)
    operation.timeouts = 1
    lag = Lag(
        group="all_reduce",
        source=Recorder.EVENT_LOG,
        num_operations=50,
        median_late_s={0: 0.0, 2: 0.1},
        last_share={2: 0.93},
    )
    return RuntimeCounts(
        time_s=1010.0,
        rank=3,
        world_size=4,
        operations={"all_reduce": operation.counted()},
        failures=1,
        recoveries=1,
        recovering_s=0.25,
        lags=(lag,),
    )


LINES: tuple[LogLine, ...] = (
    Counted(time_s=1010.0, counts=counts()),
    CallFailed(time_s=1011.0, failure=failure(error="HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzabcdefgh")),
    GroupFormed(time_s=1012.0, members=(0, 1, 3), steps=(7, 7, 7), took_s=0.25),
)


def write(sink: Any) -> None:
    sink.open(BEGIN)
    for line in LINES:
        sink.write(line)


def test_prometheus_text_is_read_by_the_real_parser_and_equals_what_the_server_gives(tmp_path: Path) -> None:
    file = sinks.PrometheusFile(tmp_path / "a" / "rank3.prom")
    write(file)
    text = (tmp_path / "a" / "rank3.prom").read_text()
    assert 'allready_last_share{rank="2",operation="all_reduce"} 0.93' in text
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["rank3.prom"]
    pytest.importorskip("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families as parse

    server = sinks.Prometheus(0)
    write(server)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=20.0) as answer:
            served = answer.read().decode()
    finally:
        server.close()

    def samples(exposed: str) -> set[tuple[str, tuple[tuple[str, str], ...], float]]:
        found = {(s.name, tuple(sorted(s.labels.items())), s.value) for f in parse(exposed) for s in f.samples}
        return {s for s in found if not s[0].endswith("_created")}

    assert samples(text) == samples(served)
    assert len(samples(text)) > 15


def test_tensorboard_draws_the_counts(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    pytest.importorskip("torch")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = sinks.TensorBoard(tmp_path)
    write(sink)
    sink.close()
    found = EventAccumulator(str(tmp_path / "rank3"))
    found.Reload()
    [point] = found.Scalars("allready/all_reduce/longest_s")
    assert (point.step, point.value) == (10, 90.0)
    [text] = found.Tensors("allready/failed/text_summary")
    assert b"RTM001: rank 2" in text.tensor_proto.string_val[0]
    assert b"hf_" not in text.tensor_proto.string_val[0]


def test_opentelemetry_gets_a_record_of_each_failure() -> None:
    pytest.importorskip("opentelemetry.sdk._logs")
    from opentelemetry.sdk._logs import LoggerProvider, export

    kept = getattr(export, "InMemoryLogRecordExporter", None) or export.InMemoryLogExporter
    exporter = kept()
    provider = LoggerProvider()
    provider.add_log_record_processor(export.SimpleLogRecordProcessor(exporter))
    write(sinks.OpenTelemetry(provider))
    failed, recovered = (data.log_record for data in exporter.get_finished_logs())
    assert (failed.severity_text, recovered.severity_text) == ("ERROR", "INFO")
    assert failed.body.startswith("RTM001: rank 2")
    assert (failed.attributes["allready.code"], tuple(failed.attributes["allready.culprits"])) == ("RTM001", (2,))
    assert failed.timestamp == 1011 * 10**9
    assert "hf_" not in str(failed)


def test_wandb_keeps_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    sink = sinks.WandB(dir=str(tmp_path))
    write(sink)
    sink.close()
    [run] = tmp_path.glob("**/offline-run-*/*.wandb")
    # wandb's own process writes the file, and may do so after `finish` returned
    until(lambda: b"RTM001: rank 2" in run.read_bytes(), 30.0)
    data = run.read_bytes()
    assert b"allready/all_reduce/p99_s" in data
    assert b"hf_abc" not in data


def test_a_package_that_is_missing_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for sink, module, package in (
        (sinks.Prometheus(0), "prometheus_client", "prometheus-client"),
        (sinks.TensorBoard("x"), "tensorboard", "tensorboard"),
        (sinks.WandB(), "wandb", "wandb"),
        (sinks.OpenTelemetry(), "opentelemetry._logs", "opentelemetry-sdk"),
    ):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(UsageError, match=f"pip install {package}$"):
            sink.open(BEGIN)
