"""Whatever stands in a file or comes out of a command: an answer or FactUnavailable, never another exception."""

import contextlib
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allready import redaction
from allready.errors import ExchangeError, FactUnavailable
from allready.facts import (
    env,
    firewall,
    gpu,
    iptables,
    limits,
    net,
    nft,
    packet_filter,
    ports,
    probes,
    processes,
    rdma,
    software,
    system,
    transport,
)
from allready.facts.exchange import from_json, to_json
from allready.model import NODE_FACTS, NodeFacts
from allready.model.fill import in_english
from allready.text.choices import say_choice
from tests.facts.helpers import LO, interface
from tests.facts.saved_host import SavedHost
from tests.fleets import healthy_node

pytestmark = pytest.mark.thorough

FUZZ = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
VOCABULARY = """
table inet filter chain input { } ; type hook priority policy drop accept reject jump goto return tcp udp dport sport
ct state new established vmap iif iifname "lo" "eth0" != == meta l4proto th flags syn / 22 80-90 @set { 22, 80 } log
counter packets bytes 0 limit rate saddr 10.0.0.1 set elements = comment # *filter :INPUT DROP [0:0] -A INPUT -p -m
--dport --dports ! -j -i lo COMMIT --ctstate NEW 0: 4: ACTIVE Gb/sec 0100007F:1F90 0A 03 00000000 unlimited Max open
files 1024 GPU-1 , [N/A] 0-3,5 max 100000 Uid: CapEff: 0::/a/../b MemTotal: kB NCCL_ = ' MIG-
"""
WORDS = st.sampled_from(sorted(set(VOCABULARY.split())))
LINES = st.lists(st.lists(WORDS | st.text(max_size=8), max_size=14).map(" ".join), max_size=14).map("\n".join)
TEXT = st.text(max_size=200) | LINES


class AnyHost(SavedHost):
    """Answers every question with the same thing."""

    def __init__(self, text: str, answer: Any) -> None:
        super().__init__({})
        self._text, self._answer_given = text, answer

    @property
    def environ(self) -> dict[str, str]:
        return {
            "CUDA_VISIBLE_DEVICES": self._text,
            "NCCL_SOCKET_IFNAME": self._text,
            "LD_LIBRARY_PATH": self._text,
            "NCCL_COMM_ID": self._text,
            "GLOO_SOCKET_IFNAME": self._text,
            "container": self._text,
        }

    def read(self, path: str) -> str:
        return self._text

    def listdir(self, path: str) -> tuple[str, ...]:
        return tuple(self._text.split())[:3]

    def run(self, argv: Any, *, timeout_s: float) -> str:
        return self._text

    def probe(self, name: str, *, timeout_s: float) -> Any:
        return self._answer_given

    def resolve(self, name: str, *, timeout_s: float) -> tuple[str, ...]:
        return ()


PARSERS: dict[str, Any] = {
    "routes": lambda t: list(net.parse_routes(t)),
    "ipv6_routes": lambda t: list(net.parse_ipv6_routes(t)),
    "sockets": lambda t: list(ports.parse_sockets(t)),
    "limits": limits.parse_limits,
    "os_name": system.os_name,
    "rate": rdma.parse_rate,
    "literals": software.literals,
    "version": transport.version_tuple,
    "child": probes.parse_child,
    "redact": lambda t: redaction.redact("NCCL_X", t),
    "nft": lambda t: firewall.summary(nft.parse_nft(t), "nft"),
    "nft_rule": lambda t: firewall.summary(
        nft.parse_nft("table ip t {\n chain c {\n type filter hook input priority 0; policy drop;\n" + t + "\n}\n}"),
        "nft",
    ),
    "iptables": lambda t: firewall.summary(iptables.parse_iptables("*filter\n:INPUT ACCEPT [0:0]\n" + t), "iptables"),
    "smi": lambda t: gpu.parse_smi(SavedHost({}), t, t),
    "visible": lambda t: gpu.visible_gpus(t, (), {"MIG-1": 0}),
    "dist_version": lambda t: software.soname_version(t.split(), "libnccl"),
}


@pytest.mark.parametrize("name", PARSERS)
@given(text=TEXT)
@FUZZ
def test_no_text_breaks_a_parser(name: str, text: str) -> None:
    with contextlib.suppress(FactUnavailable):
        PARSERS[name](text)


COLLECTORS: dict[str, Any] = {
    "host": system.collect_host,
    "net": net.collect_net,
    "rdma": rdma.collect_rdma,
    "gpu": lambda h: gpu.collect_gpu(h, timeout_s=1),
    "software": software.collect_software,
    "limits": limits.collect_limits,
    "env": env.collect_env,
    "firewall": lambda h: firewall.collect_firewall(h, timeout_s=1),
    "holder": lambda h: ports.port_holder(h, 8080),
    "started": lambda h: processes.started_at(h, 1),
    "user": lambda h: processes.user_of(h, 1),
}


@pytest.mark.parametrize("name", COLLECTORS)
@given(text=TEXT, answer=JSON)
@FUZZ
def test_no_machine_breaks_a_collector(name: str, text: str, answer: Any) -> None:
    with contextlib.suppress(FactUnavailable):
        COLLECTORS[name](AnyHost(text, answer))


@given(answer=JSON, part=st.sampled_from(["gpus", "rows", "python"]))
@FUZZ
def test_no_answer_of_a_child_breaks_a_parser(answer: Any, part: str) -> None:
    whole = {"gpus": answer, "driver_version": answer, "cuda_version": "1"}
    with contextlib.suppress(FactUnavailable):
        gpu.parse_nvml(SavedHost({}), whole, None)
    with contextlib.suppress(FactUnavailable):
        net.parse_interfaces([answer, {**_row(), part: answer, "addresses": answer, "flags": 1}], set())
    with contextlib.suppress(FactUnavailable):
        software.collect_software(AnyHost("", {"version": "3", "prefix": "/", "path": answer, "modules": answer}))


def _row() -> dict[str, Any]:
    return {"name": "a", "flags": 0, "mtu": 1, "hwtype": 1, "mac": None, "addresses": []}


@given(pattern=st.text(alphabet="^=,ethlobidckr01:[]% ", max_size=12), own=st.lists(st.text(max_size=8), max_size=2))
@FUZZ
def test_every_pattern_gets_a_choice_that_keeps_its_promises(pattern: str, own: list[str]) -> None:
    machine = (LO, interface("eth0", "10.0.0.1/24"), interface("ib0", "fd00::1/64"), interface("docker0", up=False))
    environ = {"NCCL_SOCKET_IFNAME": pattern, "GLOO_SOCKET_IFNAME": pattern, "NCCL_COMM_ID": pattern}
    for choice in (
        transport.choose_nccl(machine, environ),
        transport.choose_gloo(machine, environ, own_addresses=own),
        transport.choose_nccl(machine, {"NCCL_SOCKET_IFNAME": pattern}),
    ):
        assert len(choice.interfaces) == len(choice.addresses)
        assert choice.interfaces or choice.failure
        assert set(choice.interfaces) <= {"lo", "eth0", "ib0"}
        assert in_english(say_choice(choice))


@given(spans=st.lists(st.tuples(st.integers(0, 66_000), st.integers(0, 66_000)), max_size=20))
@FUZZ
def test_ranges_cover_exactly_the_ports(spans: list[tuple[int, int]]) -> None:
    bits = 0
    for low, high in spans:
        bits |= packet_filter.port_bits(low, high)
    found = list(packet_filter.port_ranges(bits))
    assert sum(packet_filter.port_bits(low, high) for low, high in found) == bits & ~1
    assert all(a[1] + 1 < b[0] for a, b in pairwise(found))


@given(name=st.sampled_from(sorted(NODE_FACTS)), value=JSON, key=st.text(max_size=12))
@FUZZ
def test_hostile_facts_are_refused_or_read(name: str, value: Any, key: str) -> None:
    data = to_json(healthy_node(0, 2))
    for changed in ({**data, name: value}, {**data, name: {**data[name], key: value}}, value):
        with contextlib.suppress(ExchangeError):
            assert isinstance(from_json(changed), NodeFacts)
