"""A JAX process: does the steps of its plan (JSON), and writes an event (JSON) after each."""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

import allready

PLAN = json.loads(sys.argv[1])
RANK = PLAN["rank"]


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def start() -> bool:
    """Whether the processes met."""
    try:
        allready.jax.initialize(
            f"127.0.0.1:{PLAN['port']}",
            PLAN.get("size_of", {}).get(str(RANK), PLAN["size"]),
            PLAN.get("number_of", {}).get(str(RANK), RANK),
            attempts=PLAN.get("attempts", 3),
            timeout=timedelta(seconds=PLAN.get("timeout_s", 30)),
            **PLAN.get("more", {}),
        )
    except allready.jax.StartFailed as error:
        say("failed", missing=error.missing, text=str(error))
        return False
    say("up")
    return True


def step(kind: str, *given: Any) -> None:
    """One of the plan."""
    if kind == "barrier":
        name, seconds, *processes = given
        begin_s = time.monotonic()
        try:
            allready.jax.barrier(name, timeout=timedelta(seconds=seconds), processes=processes or None)
            say("passed", name=name)
        except allready.CollectiveFailed as error:
            verdict = error.verdict
            say(
                "barrier failed",
                name=name,
                code=verdict and verdict.code,
                culprits=verdict and verdict.culprits.ranks,
                text=str(error),
                took_s=time.monotonic() - begin_s,
            )
    elif kind == "sleep":
        time.sleep(given[0])
    elif kind == "stop":  # the test lets it go on
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "live":
        live(*given)


def live(until: int) -> None:
    """Take part in blocks until so many devices are left."""
    import jax

    while True:
        try:
            with allready.jax.live_devices() as devices:
                num = len(devices)
                time.sleep(0.05)
        except allready.jax.ProcessesLost as error:
            say("lost", processes=error.processes)
            continue
        if num == until:
            say("live", processes=sorted(d.process_index for d in devices), of=len(jax.devices()))
            return


def main() -> None:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if start():
        for kind, *given in PLAN["steps"].get(str(RANK), PLAN["steps"].get("*", [])):
            step(kind, *given)
        say("done")
    sys.stdout.flush()
    os._exit(0)  # the coordination service waits for all at a plain end


main()
