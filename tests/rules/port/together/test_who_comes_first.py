"""What a person sees when several rules could speak: the first finding, and that no innocent is named beside
it."""

from typing import Any

import pytest
from msgspec.structs import replace

from allready.judging.engine import judge
from allready.judging.loading import load
from allready.model import (
    Caller,
    Culprits,
    FaultClass,
    Finding,
    FirewallFacts,
    Fleet,
    MasterPortFacts,
    NameFacts,
    PortHolder,
    RollCall,
    Severity,
)
from tests.cases import cases
from tests.fleets import claim, fleet
from tests.rules.firewalls import drops_of
from tests.rules.port.fleets import node_0_alone, worker_alone

PRESENT = (0, 1, 3)
HELD = PortHolder(pid=4242, command="python3 -m http.server")
IN_USE = MasterPortFacts(port=29500, opened=False, error="Address already in use (EADDRINUSE)", holder=HELD)


def serious(fleet_: Fleet) -> list[Finding]:
    """Findings of ERROR and above, of who is here, names and ports."""
    rules = [rule for rule in load().values() if rule.area in {"job", "name", "port"}]
    findings, unchecked = judge(fleet_, rules)
    assert not [n for n in unchecked if n.why.startswith("the rule itself failed")]
    return [f for f in findings if f.severity.weight >= Severity.ERROR.weight]


def refused(*claims: Any, num_nodes: int = 4) -> Fleet:
    return node_0_alone(num_nodes, present=PRESENT, claims=claims)


def caller(kind: str = "datagram", **more: Any) -> Fleet:
    return node_0_alone(4, present=PRESENT, callers=(Caller(kind=kind, address="10.0.0.3", **more),))


def names(*addresses: str) -> NameFacts:
    return NameFacts(own_name="gpu1", own_addresses=("10.0.0.2",), master_name="gpu0", master_addresses=addresses)


FIREWALL = FirewallFacts(tool="iptables", drops=drops_of("-P INPUT DROP"), dropped_ports=((1, 65535),))
LOOPBACK = {"addresses": ("127.0.1.1",), "address": "127.0.1.1", "master_addr": "gpu0"}
OURS = claim(1, 4, pid=1, refused="job_id_differs")
JOB_X = RollCall(num_nodes=4, claims=(*(claim(n, 4, job_id="x") for n in range(4)), OURS))

CASES: dict[str, tuple[Fleet, str, str, Culprits]] = {
    "absent": (node_0_alone(4, present=PRESENT), "JOB001", "START-ABSENT", Culprits(nodes=(2,), ranks=(4, 5))),
    "node 0 machine off": (
        worker_alone("no_route", detail="No route to host (EHOSTUNREACH)", error="EHOSTUNREACH"),
        "JOB011", "START-ABSENT", Culprits(nodes=(0,)),
    ),
    "node 0 not started": (worker_alone("refused", nearby=()), "JOB011", "START-ABSENT", Culprits(nodes=(0,))),
    "refused": (worker_alone("refused"), "PRT001", "START-PATH", Culprits(nodes=(0,))),
    "wrong port": (
        worker_alone("refused", nearby=((29501, "allready"),)),
        "PRT001", "START-PATH", Culprits(links=((1, 0),), variables=("MASTER_PORT",)),
    ),
    "unroutable": (
        worker_alone("no_route", detail="Invalid argument (EINVAL)", error="EINVAL", address="10.9.9.9"),
        "PRT003", "START-NAME", Culprits(nodes=(1,), variables=("MASTER_ADDR",)),
    ),
    "filtered, seen by node 0": (
        caller(node_rank=2, hears_us=True), "PRT002", "START-PATH", Culprits(links=((2, 0),)),
    ),
    "filtered, seen by the node": (
        worker_alone("silent", heard_by_datagram=True), "PRT002", "START-PATH", Culprits(links=((1, 0),)),
    ),
    "filtered by node 0 itself": (
        node_0_alone(2, facts={"firewall": FIREWALL}),
        "PRT002", "START-PATH", Culprits(nodes=(0,), links=((1, 0),)),
    ),
    "one way, by datagram": (caller(node_rank=2, hears_us=False), "PRT007", "START-PATH", Culprits(links=((0, 2),))),
    "one way, by half-open connection": (caller("half_open"), "PRT007", "START-PATH", Culprits(links=((0, 2),))),
    "taken": (
        node_0_alone(4, facts={"master_port": replace(IN_USE, service="http")}),
        "PRT004", "START-PATH", Culprits(nodes=(0,)),
    ),
    "stale job, seen by node 0": (
        node_0_alone(4, facts={"master_port": replace(IN_USE, service="torch-store")}),
        "PRT005", "START-ABSENT", Culprits(nodes=(0,)),
    ),
    "stale job, seen by the node": (
        worker_alone("stale_store", service="torch-store"), "PRT005", "START-ABSENT", Culprits(nodes=(0,)),
    ),
    "other allready": (
        worker_alone("other_job", roll=JOB_X),
        "PRT005", "START-ABSENT", Culprits(nodes=(0,)),
    ),
    "wrong service": (
        worker_alone("wrong_service", service="ssh"), "PRT006", "START-PATH", Culprits(nodes=(0,)),
    ),
    "loopback": (
        worker_alone("loopback", facts={"names": names("127.0.1.1")}, **LOOPBACK),  # type: ignore[arg-type]
        "NAM002", "START-NAME", Culprits(nodes=(1,)),
    ),
    "unresolved": (
        worker_alone("unresolved", facts={"names": names()}, addresses=(), address=None),
        "NAM001", "START-NAME", Culprits(nodes=(1,)),
    ),
    "IPv6 only": (
        worker_alone("family_mismatch", addresses=("fd00::1",), address="fd00::1"),
        "NAM004", "START-NAME", Culprits(nodes=(1,)),
    ),
    "its own address": (
        worker_alone("refused", nearby=(), address="10.0.0.2"), "NAM006", "START-NAME", Culprits(nodes=(1,)),
    ),
    "duplicate rank on another machine": (
        refused(
            claim(0, 4), claim(1, 4), claim(3, 4),
            claim(1, 4, name="gpu2", address="10.0.0.3", pid=5, refused="duplicate_rank"),
        ),
        "JOB003", "ENV-MISMATCH", Culprits(nodes=(1,)),
    ),
    "numbered from one": (
        refused(*(claim(r, 4) for r in PRESENT), claim(4, 4, refused="num_nodes_differs")),
        "JOB007", "ENV-MISMATCH", Culprits(nodes=(4,)),
    ),
    "nnodes differs": (
        refused(*(claim(r, 4) for r in PRESENT), claim(2, 3, refused="num_nodes_differs")),
        "JOB004", "ENV-MISMATCH", Culprits(nodes=(2,), variables=("nnodes",)),
    ),
    "nnodes differs, on the refused node": (
        worker_alone(
            "rejected", detail="num_nodes_differs", num_nodes=3,
            roll=RollCall(num_nodes=2, claims=(claim(0, 2), claim(1, 3, refused="num_nodes_differs"))),
        ),
        "JOB004", "ENV-MISMATCH", Culprits(variables=("nnodes",)),
    ),
    "job id differs": (
        refused(*(claim(r, 4) for r in PRESENT), claim(2, 4, job_id="x", refused="job_id_differs")),
        "JOB006", "ENV-MISMATCH", Culprits(nodes=(2,)),
    ),
    "other version": (
        refused(*(claim(r, 4) for r in PRESENT), claim(2, 4, refused="version")),
        "JOB008", "ENV-MISMATCH", Culprits(nodes=(2,)),
    ),
    "node lost": (node_0_alone(2, present=(0, 1), lost=(1,)), "JOB009", "DEAD", Culprits(nodes=(1,))),
    "node 0 lost": (worker_alone("lost"), "JOB010", "DEAD", Culprits(nodes=(0,))),
}  # fmt: skip


@cases("case", CASES)
def test_the_cause_comes_first(case: str) -> None:
    evidence, code, fault_class, culprits = CASES[case]
    first = serious(evidence)[0]
    assert (first.code, first.fault_class, first.culprits) == (code, FaultClass(fault_class), culprits)


@cases("case", CASES)
def test_no_other_finding_names_somebody_else(case: str) -> None:
    first, *others = serious(CASES[case][0])
    concerned = {*first.culprits.nodes, *(n for link in first.culprits.links for n in link)}
    for other in others:
        named = {*other.culprits.nodes, *(n for link in other.culprits.links for n in link)}
        assert named <= concerned, other.code


@cases("case", CASES)
def test_every_sentence_is_complete_in_both_languages(case: str) -> None:
    from allready.text.catalog import say

    for finding in serious(CASES[case][0]):
        for slot in ("message", "remedy"):
            for language in ("en", "zh"):
                text = say(finding, slot, language)
                assert text
                assert "{" not in text.replace("{ ", "")  # nft's own braces stand apart


@pytest.mark.parametrize("num_nodes", [1, 2, 4])
def test_healthy_nodes_hear_nothing_serious(num_nodes: int) -> None:
    assert serious(fleet(num_nodes)) == []


def test_a_missing_node_does_not_hide_behind_an_innocent_stranger() -> None:
    stranger = Caller(kind="stranger", address="10.0.0.77", detail="said b'GET / HTTP/1.1'")
    [only] = serious(node_0_alone(4, present=PRESENT, callers=(stranger,)))
    assert (only.code, only.culprits.nodes) == ("JOB001", (2,))
