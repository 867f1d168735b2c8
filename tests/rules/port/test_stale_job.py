from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import FactMissing, MasterPortFacts, PortHolder, RollCall
from tests.fleets import check, claim, fleet
from tests.rules.port.fleets import worker_alone

STALE = MasterPortFacts(
    port=29500,
    opened=False,
    error="Address already in use (EADDRINUSE)",
    service="torch-store",
    holder=PortHolder(pid=31, command="python train.py", user="bob", started="2026-01-02T03:04:05+00:00"),
)


def test_node_0_names_the_old_process_and_since_when() -> None:
    [hit] = check("PRT005", fleet(2, master_port={0: STALE})).hits
    assert hit.culprits.nodes == (0,)
    assert (hit.values["end"], hit.fault_time) == ("kill 31", "2026-01-02T03:04:05+00:00")
    assert "python train.py" in str(hit.values["holder"])


def test_a_store_may_as_well_be_left_by_an_earlier_run_of_this_job() -> None:
    [hit] = check("PRT005", fleet(2, master_port={0: STALE})).hits
    rule = load()["PRT005"]
    assert "another job, or to an earlier run of this one: pid 31" in rule.message.format_map(hit.values)


def test_a_worker_names_what_answered() -> None:
    [hit] = check("PRT005", worker_alone("stale_store", service="torch-store")).hits
    assert (hit.culprits.nodes, hit.values["holder"]) == ((0,), "10.0.0.1:29500 (torch-store)")


def test_another_allready_that_does_not_miss_us_is_another_job() -> None:
    theirs = RollCall(
        num_nodes=2,
        claims=(claim(0, 2, job_id="x"), claim(1, 2, job_id="x"), claim(1, 2, pid=3, refused="job_id_differs")),
    )
    [hit] = check("PRT005", worker_alone("other_job", num_nodes=2, roll=theirs)).hits
    assert hit.culprits.nodes == (0,)


def test_an_allready_whose_job_runs_names_its_process() -> None:
    theirs = PortHolder(pid=77, command="allready run train.py", user="eve", started="2026-01-02T03:04:05+00:00")
    alone = worker_alone("other_job", holder=theirs, roll=RollCall(num_nodes=2, claims=(), partial=True))
    [hit] = check("PRT005", alone).hits
    assert (hit.culprits.nodes, hit.values["end"]) == ((0,), "kill 77")
    assert "pid 77, allready run train.py, user=eve, started=2026-01-02" in str(hit.values["holder"])


def test_another_allready_that_waits_for_us_is_rather_our_job_with_another_id() -> None:
    ours = RollCall(num_nodes=2, claims=(claim(0, 2, job_id="x"), claim(1, 2, refused="job_id_differs")))
    alone = worker_alone("other_job", num_nodes=2, roll=ours)
    assert check("PRT005", alone).state == "clear"
    assert check("JOB006", alone).state == "hit"


def test_another_service_is_another_rules_matter() -> None:
    assert check("PRT005", fleet(2, master_port={0: replace(STALE, service="http")})).state == "clear"
    assert check("PRT005", worker_alone("wrong_service", service="http")).state == "clear"


def test_is_clear_when_the_port_is_ours() -> None:
    assert check("PRT005", fleet(2)).state == "clear"


def test_is_not_checked_when_the_job_is_not_known() -> None:
    outcome = check("PRT005", worker_alone("stale_store", facts={"launch": FactMissing("no flags")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "no flags"})
