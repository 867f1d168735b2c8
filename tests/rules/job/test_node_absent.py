import pytest
from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import GAVE_UP, Caller, Confidence, FirewallFacts, LaunchFacts, MasterPortFacts, RollCall
from allready.model.fill import fill_steps, in_english, said, texts
from tests.cases import cases
from tests.fleets import check, claim, fleet, healthy_roll
from tests.rules.firewalls import drops_of
from tests.rules.port.fleets import node_0_alone


def without(*absent: int) -> RollCall:
    roll = healthy_roll(4)
    return replace(roll, claims=tuple(c for c in roll.claims if c.node_rank not in absent))


def test_names_the_node_that_never_came() -> None:
    [hit] = check("JOB001", fleet(4, roll=without(2))).hits
    assert hit.culprits.nodes == (2,)
    assert hit.confidence is Confidence.LIKELY


def test_knows_the_ranks_of_a_node_that_nobody_has_seen() -> None:
    [hit] = check("JOB001", node_0_alone(4, present=(0, 1, 3))).hits
    assert (hit.culprits.nodes, hit.culprits.ranks) == ((2,), (4, 5))


def test_claims_no_ranks_when_the_present_nodes_differ_in_nproc() -> None:
    claims = (claim(0, 4), claim(1, 4, nproc_per_node=8))
    [hit] = check("JOB001", node_0_alone(4, claims=claims)).hits
    assert (hit.culprits.nodes, hit.culprits.ranks) == ((2, 3), ())


def test_does_not_call_a_node_absent_whose_datagrams_arrive() -> None:
    roll = replace(without(2), callers=(Caller(kind="datagram", address="10.0.0.3", node_rank=2),))
    assert check("JOB001", fleet(4, roll=roll)).state == "clear"


def test_tells_of_an_absent_node_that_it_greeted_and_gave_up() -> None:
    words = said("its connection ended before it had node 0's answer: {loss}", loss="reset")
    caller = Caller(kind=GAVE_UP, address="10.0.0.3", node_rank=2, name="gpu2", **texts(detail=words))
    other = replace(caller, address="10.0.0.4", node_rank=3)  # it has come since
    [hit] = check("JOB001", fleet(4, roll=replace(without(2), callers=(caller, other)))).hits
    assert hit.culprits.nodes == (2,)
    [evidence] = [e for e in hit.evidence if "ended" in e.text]
    assert (evidence.node_rank, evidence.text) == (2, f"10.0.0.3: {in_english(words)}")


def test_does_not_call_the_only_silent_node_absent_when_connection_attempts_arrive() -> None:
    half_open = Caller(kind="half_open", address="10.0.0.3")
    assert check("JOB001", node_0_alone(4, present=(0, 1, 3), callers=(half_open,))).state == "clear"


def test_is_less_sure_when_an_attempt_arrives_and_two_nodes_are_silent() -> None:
    half_open = Caller(kind="half_open", address="10.0.0.3")
    [hit] = check("JOB001", node_0_alone(4, present=(0, 1), callers=(half_open,))).hits
    assert (hit.culprits.nodes, hit.confidence) == ((2, 3), Confidence.POSSIBLE)


@pytest.mark.parametrize("refused", ["num_nodes_differs", "job_id_differs", "version"])
def test_a_refused_node_is_not_absent(refused: str) -> None:
    roll = without(2)
    roll = replace(roll, claims=(*roll.claims, claim(2, 4, refused=refused)))
    assert check("JOB001", fleet(4, roll=roll)).state == "clear"


def test_a_machine_with_a_wrong_number_is_taken_for_the_missing_one() -> None:
    roll = without(3)
    second = claim(1, 4, name="gpu3", address="10.0.0.4", pid=77, refused="duplicate_rank")
    assert check("JOB001", fleet(4, roll=replace(roll, claims=(*roll.claims, second)))).state == "clear"


def test_a_command_typed_twice_on_one_machine_excuses_nobody() -> None:
    again = claim(1, 4, pid=77, refused="duplicate_rank")
    roll = replace(without(3), claims=(*without(3).claims, again), waited_s=20.0)
    [hit] = check("JOB001", fleet(4, roll=roll)).hits
    assert hit.culprits.nodes == (3,)
    assert check("JOB001", fleet(4, roll=replace(roll, waited_s=2.0))).state == "clear"


def test_accuses_nobody_while_node_0_drops_its_own_port() -> None:
    dropping = FirewallFacts(
        tool="nft", drops=drops_of("inet filter input: tcp dport 29500 drop"), dropped_ports=((29500, 29500),)
    )
    alone = node_0_alone(3, facts={"firewall": dropping})
    assert check("JOB001", alone).state == "clear"
    some_came = node_0_alone(3, present=(0, 1), facts={"firewall": dropping})
    assert [h.culprits.nodes for h in check("JOB001", some_came).hits] == [(2,)]


def test_accuses_nobody_while_node_0_has_no_port() -> None:
    taken = MasterPortFacts(port=29500, opened=False, error="Address already in use (EADDRINUSE)")
    assert check("JOB001", node_0_alone(3, facts={"master_port": taken})).state == "clear"


def test_accuses_nobody_by_a_partial_roll() -> None:
    assert check("JOB001", node_0_alone(200, partial=True)).state == "clear"


def test_is_clear_when_everybody_came() -> None:
    assert check("JOB001", fleet(4)).state == "clear"


def test_is_not_checked_without_a_roll_call() -> None:
    outcome = check("JOB001", fleet(4, roll=None, why_not={"roll": "one node"}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {None: "one node"})


@cases(
    ("scheduler", "sources", "step", "command"),
    [
        (None, {}, "start the same command with --node-rank 2", ""),
        ("environment", {"node_rank": "NODE_RANK"}, "start the same command with --node-rank 2", ""),
        ("slurm", {"node_rank": "SLURM_NODEID"}, "slurm starts it there", ""),
        ("slurm", {"node_rank": "--node-rank"}, "put this before it", "srun --nodes=4 --ntasks-per-node=1"),
        ("openmpi", {"node_rank": "OMPI_COMM_WORLD_RANK and so on"}, "openmpi starts it there", ""),
        ("pbs", {}, "put this before it", "pbsdsh --"),
        ("lsf", {}, "put this before it", "blaunch"),
        ("kubernetes-leaderworkerset", {}, "the pod of this node", "kubectl get pods"),
    ],
)
def test_says_how_to_start_it_under_this_launcher(
    scheduler: str | None, sources: dict[str, str], step: str, command: str
) -> None:
    healthy = fleet(4).per_node(LaunchFacts)[0][0]
    launch = {0: replace(healthy, scheduler=scheduler, sources=sources)}
    [hit] = check("JOB001", fleet(4, roll=without(2), launch=launch)).hits
    first = fill_steps(load()["JOB001"].steps, hit.values)[0]
    assert step in first.explanation
    assert first.command.startswith(command)
