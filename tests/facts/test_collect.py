import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from allready.errors import ExchangeError
from allready.facts.collect import collect
from allready.facts.exchange import from_json, to_json
from allready.facts.live import LiveHost
from allready.model import FactMissing, HostFacts, LaunchFacts, NodeFacts, NotApplicable, SoftwareFacts
from tests.cases import cases
from tests.clock import Stopwatch
from tests.facts.saved_host import SavedHost
from tests.fleets import healthy_node

LAUNCH = LaunchFacts(num_nodes=1, node_rank=0, nproc_per_node=1, master_addr="localhost", master_port=29500)
KNOWN = ("host", "names", "net", "transport", "rdma", "gpu", "software", "limits", "env")


def test_reads_this_machine() -> None:
    found = collect(LiveHost(), LAUNCH, script=__file__, deadline_s=20)
    for name in (*KNOWN, "script"):
        fact = getattr(found, name)
        assert not isinstance(fact, FactMissing), (name, fact)
    assert found.launch == LAUNCH
    assert isinstance(found.clock, NotApplicable)
    assert isinstance(found.master_port, NotApplicable)


def test_an_empty_machine_gives_reasons_only() -> None:
    found = collect(SavedHost({}), LAUNCH, script="train.py", deadline_s=5)
    for name in ("host", "names", "net", "transport", "software", "limits", "script", "firewall"):
        fact = getattr(found, name)
        assert isinstance(fact, FactMissing), name
        assert fact.why


def test_says_that_no_script_was_named() -> None:
    assert isinstance(collect(SavedHost({}), LAUNCH, script=None, deadline_s=5).script, NotApplicable)


class HangingHost(SavedHost):
    """A machine on which everything that may block does."""

    def probe(self, name: str, *, timeout_s: float) -> Any:
        time.sleep(3)

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        time.sleep(3)
        return ""


@pytest.mark.jobs
def test_ends_at_its_deadline_whatever_hangs() -> None:
    host = HangingHost({"files": {"/proc/sys/kernel/hostname": "a"}, "dirs": {"/dev": ["nvidiactl"]}})
    started = Stopwatch()
    found = collect(host, LAUNCH, script="train.py", deadline_s=1)
    assert started.s < 2.5
    assert str(found.gpu) == "gpu: not read in time"
    assert isinstance(found.host, HostFacts)


class BrokenHost(SavedHost):
    def listdir(self, path: str) -> tuple[str, ...]:
        raise ZeroDivisionError("a mistake of ours")


def test_a_mistake_of_ours_costs_one_fact_and_names_itself(caplog: pytest.LogCaptureFixture) -> None:
    found = collect(BrokenHost({"files": {"/proc/sys/kernel/hostname": "a"}}), LAUNCH, script=None, deadline_s=5)
    assert str(found.gpu) == "ZeroDivisionError: a mistake of ours"
    assert isinstance(found.host, HostFacts)
    assert "facts gpu failed" in caplog.text


def test_json_and_back() -> None:
    for node in (healthy_node(0, 2), healthy_node(1, 2), NodeFacts(), NodeFacts(host=FactMissing("no"))):
        data = json.loads(json.dumps(to_json(node)))
        assert from_json(data) == node
        for name, value in node.items():
            assert type(getattr(from_json(data), name)) is type(value)


def test_facts_of_another_version_are_welcome() -> None:
    data = to_json(healthy_node(0, 1))
    data["unheard_of"] = {"a": 1}
    data["host"]["new_field"] = [1, 2]
    del data["rdma"]
    found = from_json(data)
    assert found.host == healthy_node(0, 1).host
    assert found.rdma == NodeFacts().rdma


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@cases(
    "data",
    [
        None, [], "x", {"host": None}, {"host": {}}, {"host": {"missing": 3}}, {"host": {"missing": "a", "b": 1}},
        {"limits": {"memlock_bytes": "many"}}, {"net": {"interfaces": [{"name": 3}]}}, {"env": {"variables": {"a": 1}}},
        {"env": {"variables": {str(i): "x" for i in range(30_000)}}}, {"script": {"path": "x" * 20_000}},
        {"x": _deep(500)}, {"host": _deep(5)},
    ],
)  # fmt: skip
def test_refuses_what_is_no_facts(data: Any) -> None:
    with pytest.raises(ExchangeError, match=r"\S"):
        from_json(data)


def test_round_trips_text_that_looks_like_a_reason() -> None:
    node = replace(NodeFacts(), software=SoftwareFacts(versions={"missing": "why"}))
    assert from_json(to_json(node)) == node


@pytest.mark.thorough
def test_costs_little_cpu_imports_included() -> None:
    """Generous against a busy machine: the goal is 0.15 s above a bare interpreter; here five times that."""
    code = """
from allready.facts.collect import collect
from allready.facts.live import LiveHost
from allready.model import LaunchFacts
launch = LaunchFacts(num_nodes=1, node_rank=0, nproc_per_node=1, master_addr="localhost", master_port=29500)
collect(LiveHost(), launch, script=None, deadline_s=20)
import sys
assert not {"torch", "jax", "numpy", "pynvml", "rich", "jinja2"} & set(sys.modules), "a heavy import"
"""

    def cpu_s(text: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", text], check=True, timeout=60, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cpu_s(code) for _ in range(3)) - min(cpu_s("pass") for _ in range(3)) < 0.75
