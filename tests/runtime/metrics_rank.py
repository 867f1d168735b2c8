"""One rank of a job with metrics: a rank that is late in every call, then a fault, sinks and alerts that hang."""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE = int(plan["rank"]), int(plan["size"])
FOLDER = Path(plan["where"])


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


class HangingSink:
    def open(self, begin: object) -> None:
        pass

    def write(self, line: object) -> None:
        time.sleep(300)

    def close(self) -> None:
        pass


def strike(kind: str) -> None:
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzabcdefgh is wrong")


def main() -> None:
    import torch

    import allready
    from allready import metrics

    torch.set_num_threads(1)
    allready.init_process_group(
        init_method=f"tcp://127.0.0.1:{plan['port']}", rank=ME, world_size=SIZE, start_timeout=timedelta(seconds=100)
    )
    copy = "import sys; open(sys.argv[1], 'ab').write(sys.stdin.buffer.read())"
    metrics.start(
        FOLDER / "events",
        sinks=[metrics.PrometheusFile(FOLDER / f"rank{ME}.prom"), HangingSink()],
        alerts=[
            metrics.Command([sys.executable, "-c", copy, str(FOLDER / "alerts.jsonl")]),
            metrics.Webhook(plan["url"], timeout_s=60.0),
            lambda alert: 1 / 0,
        ],
        every=0.2,
    )
    timeout = timedelta(seconds=20)
    for step in range(int(plan["steps"])):
        if plan.get("late") == ME:
            time.sleep(0.02)
        values = torch.full((100,), float(step))
        allready.safe_all_reduce(values, timeout=timeout)
    found = metrics.lateness()
    verdict = found.verdict
    say(
        "lateness",
        code=None if verdict is None else verdict.code,
        culprits=None if verdict is None else verdict.culprits.ranks,
        share=found.lags[0].last_share[plan.get("late", 0)],
    )
    tuning = metrics.tune(allready.AdaptiveTimeout(least=0.5, margin=4, after=10), apply=True)
    (advice,) = (a for a in tuning.advice if a.operation == "all_reduce")
    adapted = allready.effective_timeouts()[0].learned["all_reduce"].total_seconds()
    with allready.phase("evaluation"):
        inside = allready.effective_timeouts()[0]
    say(
        "tuning",
        text=[str(a) for a in tuning.advice],
        limits_s=[advice.limit_s, advice.advised_s, adapted],
        last=advice.last,
        inside=[inside.calls.total_seconds(), len(inside.learned)],
    )
    for victim, kind in plan["faults"]:
        try:
            if victim == ME:
                strike(kind)
            allready.safe_barrier(timeout=timeout)
        except (allready.CollectiveFailed, ValueError) as error:
            recovery = allready.recover(error, timeout=timeout)
            verdict = recovery.failure.verdict
            say("recovered", code=verdict.code, culprits=verdict.culprits.ranks)
    allready.safe_barrier(timeout=timeout)
    counted = metrics.counts()
    say(
        "counts", failures=counted.failures, recoveries=counted.recoveries, calls=counted.operations["all_reduce"].calls
    )
    begin_s = time.monotonic()
    allready.destroy_process_group()
    say("done", took_s=time.monotonic() - begin_s)


main()
