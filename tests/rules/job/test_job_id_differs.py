from allready.model import RollCall, Severity
from allready.model.fill import in_english
from tests.fleets import check, claim, fleet
from tests.rules.port.fleets import worker_alone

WRONG = claim(1, 3, job_id="exp-8", refused="job_id_differs")


def test_names_the_node_with_another_job_id_when_it_is_missed() -> None:
    claims = (claim(0, 3, job_id="exp-7"), claim(2, 3, job_id="exp-7"), WRONG)
    [hit] = check("JOB006", fleet(3, roll=RollCall(num_nodes=3, claims=claims))).hits
    assert hit.culprits.nodes == (1,)
    assert hit.severity is None
    assert hit.values["refused"] == "1 (gpu1, 10.0.0.2, pid 1001)"


def test_blames_nobody_on_a_tie() -> None:
    claims = (claim(0, 2, job_id="a"), claim(1, 2, job_id="b", refused="job_id_differs"))
    [hit] = check("JOB006", fleet(2, roll=RollCall(num_nodes=2, claims=claims))).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((), ("job_id",))


def test_a_stray_caller_is_only_a_warning_when_nobody_is_missing() -> None:
    claims = (claim(0, 2), claim(1, 2), claim(1, 2, name="old", job_id="x", refused="job_id_differs"))
    [hit] = check("JOB006", fleet(2, roll=RollCall(num_nodes=2, claims=claims))).hits
    assert hit.severity is Severity.WARNING


def test_the_refused_node_says_the_same() -> None:
    roll = RollCall(num_nodes=2, claims=(claim(0, 2, job_id="a"), claim(1, 2, job_id="b", refused="job_id_differs")))
    [hit] = check("JOB006", worker_alone("other_job", num_nodes=2, roll=roll)).hits
    assert in_english(hit.values["split"]) == "--rdzv-id is a on node 0 (gpu0); --rdzv-id is b on node 1 (gpu1)"


def test_is_clear_when_all_have_one_job_id() -> None:
    assert check("JOB006", fleet(3)).state == "clear"


def test_is_not_checked_without_a_roll_call() -> None:
    assert check("JOB006", fleet(3, roll=None)).state == "not_checked"
