"""All facts of this machine, read in a process of its own, as `facts.apart` starts it: the child's side."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping

import msgspec

from allready.facts.collect import TRANSPORT_S, collect
from allready.facts.env import nccl_conf_files
from allready.facts.exchange import to_json
from allready.facts.import_start import StartedImport
from allready.facts.live import LiveHost
from allready.facts.order import CollectedFacts, FactsOrder
from allready.facts.tasks import Task


def read_all(order: FactsOrder, begun: Mapping[str, StartedImport] | None = None) -> CollectedFacts:
    """Facts and files, in this process.

    Args:
        begun: imports that run already, by their probe.
    """
    host = LiveHost(begun=begun)
    conf = Task(lambda: tuple(nccl_conf_files(host)), "conf-files")
    facts = collect(
        host,
        order.launch,
        script=None,
        deadline_s=max(0.3, order.until_s - TRANSPORT_S - time.monotonic()),
        also=order.also,
    )
    files: tuple[tuple[str, str], ...] = ()
    with contextlib.suppress(Exception):
        files = conf.result(timeout_s=0.0)
    return CollectedFacts(facts=facts, conf_files=files)


def serve(begun: Mapping[str, StartedImport], end: Callable[[int], object] = os._exit) -> int:
    """Read the order from standard input, answer with one line, and end without waiting for any thread."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=FactsOrder)
    found = read_all(order, begun)
    body = {"facts": to_json(found.facts), "conf_files": found.conf_files}
    sys.stdout.write(json.dumps(body) + "\n")
    sys.stdout.flush()
    end(0)
    return 0
