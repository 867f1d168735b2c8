from msgspec.structs import replace

from allready.model import FactMissing, MasterPortFacts, PortHolder
from tests.fleets import check, fleet

TAKEN = MasterPortFacts(
    port=29500,
    opened=False,
    error="Address already in use (EADDRINUSE)",
    service="http",
    banner="HTTP/1.0 200 OK",
    holder=PortHolder(pid=4242, command="python3 -m http.server 29500", user="alice", started="2026-01-02T03:04:05"),
)


def test_names_the_process_that_holds_the_port() -> None:
    [hit] = check("PRT004", fleet(2, master_port={0: TAKEN})).hits
    assert hit.culprits.nodes == (0,)
    assert hit.values["holder"] == (
        "pid 4242, python3 -m http.server 29500, user=alice, started=2026-01-02T03:04:05 (http)"
    )
    assert hit.values["end"] == "kill 4242"
    assert hit.evidence[1].text == "HTTP/1.0 200 OK"


def test_says_how_root_can_see_the_holder_when_we_may_not() -> None:
    hidden = replace(TAKEN, holder=PortHolder(pid=None, user="root"), service="silent")
    [hit] = check("PRT004", fleet(2, master_port={0: hidden})).hits
    assert hit.values["end"] == "sudo ss -ltnp 'sport = :29500'"


def test_leaves_another_jobs_store_to_its_own_rule() -> None:
    assert check("PRT004", fleet(2, master_port={0: replace(TAKEN, service="torch-store")})).state == "clear"


def test_leaves_a_missing_permission_to_its_own_rule() -> None:
    denied = MasterPortFacts(port=80, opened=False, error="Permission denied (EACCES)")
    assert check("PRT004", fleet(2, master_port={0: denied})).state == "clear"


def test_is_clear_when_node_0_opened_the_port() -> None:
    assert check("PRT004", fleet(2)).state == "clear"


def test_says_when_it_could_not_check() -> None:
    outcome = check("PRT004", fleet(2, master_port={0: FactMissing("interrupted")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "interrupted"})
