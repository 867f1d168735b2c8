"""What lines of logs accuse in a run."""

from allready.model import Confidence, Event, FaultClass, Role, Severity
from tests.rules.desync.test_other_call import mismatch
from tests.rules.ruins import ask, event, operation


def fingerprint(rank: int, other: int, op: str = "ALLREDUCE", other_op: str = "ALLREDUCE", seq: str = "31") -> Event:
    values = {"rank_a": str(rank), "rank_b": str(other), "op_a": op, "op_b": other_op, "seq_a": "31", "seq_b": seq}
    return event("torch.fingerprint_mismatch", rank, role=Role.ROOT, values=values)


def test_fingerprints_of_one_operation_differ_in_its_arguments() -> None:
    [hit] = ask("TCH016", events=(fingerprint(1, 2),)).hits
    assert hit.fault_class is FaultClass.DESYNC_ARGS
    [hit] = ask("TCH016", events=(fingerprint(1, 2, other_op="BROADCAST"),)).hits
    assert hit.fault_class is None  # the table's: another flow of calls


def test_the_rank_from_which_all_others_differ_is_the_odd_one() -> None:
    [hit] = ask("TCH016", events=(fingerprint(0, 2), fingerprint(1, 2), fingerprint(2, 0), fingerprint(3, 2))).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.LIKELY)


def test_two_ranks_that_differ_are_a_tie() -> None:
    [hit] = ask("TCH016", events=(fingerprint(0, 2), fingerprint(2, 0))).hits
    assert not hit.culprits.ranks


def test_numbers_of_a_smaller_group_are_no_ranks_of_the_job() -> None:
    values = {"rank_a": "0", "rank_b": "1", "op_a": "A", "op_b": "A", "seq_a": "1", "seq_b": "1"}
    lines = tuple(event("torch.fingerprint_mismatch", r, role=Role.ROOT, values=values) for r in (4, 6))
    [hit] = ask("TCH016", events=lines).hits
    assert not hit.culprits.ranks


def test_a_line_that_names_every_rank_accuses_nobody() -> None:
    def named(text: str) -> tuple[int, ...]:
        line = event("torch.desync_report", role=Role.ROOT, values={"ranks": text})
        [hit] = ask("TCH015", events=(line,)).hits
        return hit.culprits.ranks

    assert named("1, 3") == (1, 3)
    assert named("0, 1, 2, 3") == ()


def test_an_echo_of_sizes_that_differ_yields_to_records_that_show_whose() -> None:
    line = event("gloo.size_mismatch", role=Role.ROOT)
    [alone] = ask("GLO005", events=(line,)).hits
    [beside] = ask("GLO005", events=(line,), mismatches=(mismatch((1,), operation(64, "broadcast")),)).hits
    assert (alone.severity, beside.severity) == (None, Severity.WARNING)
