"""A finding about a wrong address names the line of /etc/hosts that gives it, and none that does not."""

from msgspec.structs import replace

from allready.model import Fleet, HostsLine, NameFacts
from tests.fleets import check, fleet, healthy_node
from tests.rules.port.fleets import contact, node_0_alone, worker_alone


def named(node: int, address: str, line_address: str) -> NameFacts:
    """A node where MASTER_ADDR has this address, and line 7 of /etc/hosts gives it one."""
    healthy = healthy_node(node, 4).names
    assert isinstance(healthy, NameFacts)
    lines = (HostsLine(line=7, address=line_address),)
    return replace(healthy, master_addresses=(address,) if address else (), master_lines=lines, order=("files", "dns"))


def fleets_with(line_of: str) -> dict[str, Fleet]:
    """By code: a fleet with that fault; the line has the address at fault if `line_of` is empty."""

    def line(address: str) -> str:
        return line_of or address

    met = contact("silent", addresses=("10.0.0.99",))
    return {
        "NAM002": worker_alone(
            "loopback", addresses=("127.0.1.1",), facts={"names": named(1, "127.0.1.1", line("127.0.1.1"))}
        ),
        "NAM003": fleet(4, names={2: named(2, "10.0.0.99", line("10.0.0.99"))}, master_contact={2: met}),
        "NAM004": worker_alone(
            "family_mismatch", addresses=("fd00::1",), facts={"names": named(1, "fd00::1", line("fd00::1"))}
        ),
        "NAM006": worker_alone("refused", address="10.0.0.2", facts={"names": named(1, "10.0.0.2", line("10.0.0.2"))}),
        "NAM007": node_0_alone(2, facts={"names": named(0, "10.0.0.77", line("10.0.0.77"))}),
    }


def test_the_line_that_gives_the_address_is_in_the_evidence() -> None:
    for line_of in ("", "10.9.9.9"):
        for code, made in fleets_with(line_of).items():
            [hit] = check(code, made).hits
            assert ("/etc/hosts line 7" in str(hit.evidence)) is (not line_of), (code, line_of, hit.evidence)


def test_a_name_that_does_not_resolve_says_whom_the_resolver_asked() -> None:
    names = replace(named(1, "", "10.0.0.1"), master_error="Name or service not known", servers=("10.0.0.53",))
    [hit] = check("NAM001", fleet(2, names={1: names}, master_contact={1: contact("unresolved")})).hits
    assert "asked: files, dns, 10.0.0.53" in str(hit.evidence)
