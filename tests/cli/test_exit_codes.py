"""The contract's exit codes from real processes: 0 healthy, 1 fault, 3 not checked, 70 our bug (2: test_usage).

That healthy is 0 on every node stands in test_output.
"""

import json

import pytest

from tests.cli.patches import patched
from tests.cli.processes import ROLL, Job

CRASHING_RULE = """
from msgspec.structs import replace
from allready.judging import loading, registry
loading.load()
rules = registry.RULES
[rule] = [r for r in rules.values() if r.body.__name__ == "nofile"]
def nofile(*args, **kwargs):
    raise ZeroDivisionError("made up")
rules[rule.code] = replace(rule, body=nofile)
"""

CRASHING_COLLECTOR = """
import allready.facts.collect as collect
import allready.facts.limits as limits
def broken(*args, **kwargs):
    raise ZeroDivisionError("made up")
for module in (limits, collect):
    for name in list(vars(module)):
        if name == "collect_limits":
            setattr(module, name, broken)
"""

CRASHING_CHECK = """
import allready.preflight.check.coordinator as lead
import allready.preflight.check.participant as member
def broken(*args, **kwargs):
    raise ZeroDivisionError("made up")
lead.reach.conduct = broken
"""

CRASHING_IN_THE_SWEEP = """
import allready.preflight.collectives.tracker as tracker
genuine = tracker.StageTracker.tick
def tick(self, now):
    if self.current == len(self._spec.stages) - 1:
        raise ZeroDivisionError("made up")
    return genuine(self, now)
tracker.StageTracker.tick = tick
"""

CRASHING_WORKER = """
import allready.preflight.check.follow as follow
async def broken(*args, **kwargs):
    raise ZeroDivisionError("made up")
follow.reach.take_part = broken
"""


def test_one_machine_without_flags_is_0(job: Job) -> None:
    job.num_nodes = 1
    argv = [*job.argv(0)[:4], "--master-port", str(job.port), "--quick", "--report-dir", str(job.folder / "0")]
    node = job.start(0, argv=argv)
    assert node.wait(60) == 0, node.all_words()
    assert node.report["world"]["world_size"] >= 1


def test_a_fault_is_1_on_every_node(job: Job) -> None:
    nodes = [job.start(0, *ROLL), job.start(1, *ROLL, "--nnodes", "3")]
    for node in nodes:
        assert node.wait(10) == 1, node.all_words()
        assert node.report["status"] == "fault"


def test_a_rule_that_crashes_is_3_and_never_healthy(job: Job) -> None:
    job.num_nodes = 1
    node = job.start(0, *ROLL, env=patched(job.folder, CRASHING_RULE))
    assert node.wait(10) == 3, node.all_words()
    report = node.report
    assert (report["status"], report["verdict"]) == ("unknown", None)
    [crashed] = [n for n in report["not_checked"] if "the rule itself failed" in n["why"]]
    assert "ZeroDivisionError: made up" in crashed["why"]
    assert "HEALTHY" not in node.output


def test_a_collector_that_crashes_is_never_called_healthy_facts(job: Job) -> None:
    job.num_nodes = 1
    node = job.start(0, *ROLL, env=patched(job.folder, CRASHING_COLLECTOR))
    code = node.wait(10)
    limits = node.report["facts"]["0"]["limits"]
    assert "made up" in limits["missing"], limits
    assert code in {0, 3}
    assert [n for n in node.report["not_checked"] if "made up" in n["why"]]


@pytest.mark.parametrize(
    "code", [CRASHING_CHECK, CRASHING_WORKER, CRASHING_IN_THE_SWEEP], ids=["conducting", "taking part", "sweep"]
)
def test_a_bug_of_ours_is_70_with_a_request_to_report_it(job: Job, code: str) -> None:
    nodes = [job.start(0, "--quick", env=patched(job.folder, code)), job.start(1, "--quick")]
    assert nodes[0].wait(30) == 70, nodes[0].all_words()
    assert "ZeroDivisionError: made up" in nodes[0].errors
    assert nodes[0].errors.endswith("allready check: internal error of allready; please report the lines above\n")
    assert nodes[0].report["status"] == "unknown", "a report that stood before must not pass for the result"
    assert json.loads((nodes[0].folder / "report.json").read_bytes())["not_checked"][0]["why"].startswith("a bug of")
    assert nodes[1].wait(5) == 1, nodes[1].all_words()
    assert nodes[1].report["verdict"]["culprits"]["nodes"] == [0]
    assert "node 0 failed: ZeroDivisionError: made up" in nodes[1].output
    job.assert_nothing_left()


def test_a_bug_on_a_worker_is_70_there_and_a_lost_node_for_the_others(job: Job) -> None:
    nodes = [job.start(0), job.start(1, env=patched(job.folder, CRASHING_WORKER))]
    assert nodes[1].wait(30) == 70, nodes[1].all_words()
    assert nodes[0].wait(8) == 1, nodes[0].all_words()
    assert nodes[0].report["verdict"]["culprits"]["nodes"] == [1]


def test_a_stage_that_cannot_be_run_here_is_3(job: Job) -> None:
    job.num_nodes = 1
    node = job.start(0, "--backend", "gloo", "--stages", "nccl_init")
    assert node.wait(60) == 3, node.all_words()
    assert node.report["status"] == "unknown"
    assert "backend gloo has no such stage" in node.output
