"""Counts of the runtime library's calls while a job runs: docs/metrics.md.

`start` after `allready.init_process_group`; `counts`, `lateness` and `tune` ask, sinks and alerts tell.
"""

from allready.model import Lag, OperationCounts, RuntimeCounts
from allready.runtime.metrics.alerts import Alert, Command, Webhook
from allready.runtime.metrics.control import Lateness, counts, lateness, start, stop
from allready.runtime.metrics.sinks import OpenTelemetry, Prometheus, PrometheusFile, Sink, TensorBoard, WandB
from allready.runtime.metrics.tuning import TimeoutAdvice, Tuning, tune

__all__ = [
    "Alert",
    "Command",
    "Lag",
    "Lateness",
    "OpenTelemetry",
    "OperationCounts",
    "Prometheus",
    "PrometheusFile",
    "RuntimeCounts",
    "Sink",
    "TensorBoard",
    "TimeoutAdvice",
    "Tuning",
    "WandB",
    "Webhook",
    "counts",
    "lateness",
    "start",
    "stop",
    "tune",
]
