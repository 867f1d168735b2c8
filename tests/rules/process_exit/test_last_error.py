from datetime import UTC, datetime

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.log import read_lines
from allready.model import Closing, ClosingKind, Confidence, FaultClass, Origin, Status
from tests.rules.runs import ask, death, event

ERROR = Closing(
    origin=Origin(source="log.lammps", line=32), kind=ClosingKind.OPEN, error="ERROR: Lost atoms (thermo.cpp:441)"
)
STEPS = [f"step {n}/40 loss 2.0" for n in range(1, 21)]


def _told(lines: list[str]) -> str | None:
    report = judge_readings([read_lines(lines, "job.out")], Question(), started=datetime.now(UTC))[0]
    return None if report.verdict is None else report.verdict.code


def test_the_last_words_are_told_where_nothing_else_is_known() -> None:
    [hit] = ask("DTH008", closings=(ERROR,)).hits
    assert (hit.values["text"], hit.confidence) == ("ERROR: Lost atoms (thermo.cpp:441)", Confidence.POSSIBLE)
    assert not hit.culprits


def test_a_good_end_a_known_end_and_a_wait_say_more() -> None:
    good = Closing(origin=ERROR.origin, kind=ClosingKind.WORDS, error=ERROR.error)
    assert ask("DTH008", closings=(good,)).state == "clear"
    assert ask("DTH008", closings=(ERROR,), deaths=(death(2),)).state == "clear"
    assert ask("DTH008", closings=(ERROR,), events=(event("torch.watchdog_timeout", 0),)).state == "clear"
    assert ask("DTH008").state == "clear"


def test_a_shell_s_reason_behind_the_error_is_the_one_that_is_told() -> None:
    lines = [
        "Error: failed to run torchrun on worker-1",
        "",
        "Command:",
        "Stderr:",
        "bash: torchrun: command not found",
    ]
    assert _told(lines) == "LCH066"
    assert _told(["bash: module: command not found", *STEPS, "Error: the shards end at 17"]) == "DTH008"


def test_an_error_whose_words_go_on_in_the_next_line_is_told_with_its_end() -> None:
    words = [
        "CalledProcessError: Command '['python.exe', 'train.py',",
        "'--config=a.toml']' returned non-zero exit status 3.",
    ]
    report = judge_readings([read_lines(words, "job.out")], Question(), started=datetime.now(UTC))[0]
    assert report.verdict is not None
    assert report.verdict.sentence.endswith("returned non-zero exit status 3.")


def test_the_system_s_word_for_a_failed_call_is_an_error_whatever_program_prints_it() -> None:
    for last, fault_class in (
        ("fetch 10.1.0.4:8080: connect: No route to host", FaultClass.START_PATH),
        ("pull: dial tcp 10.1.0.4:443: connect: network is unreachable", FaultClass.START_PATH),
        ("shard 7: write(fd=12): Disk quota exceeded", FaultClass.ENV_LIMIT),
        ("lookup of data-0.cluster: Name or service not known", FaultClass.START_NAME),
    ):
        report = judge_readings([read_lines([*STEPS, last], "job.out")], Question(), started=datetime.now(UTC))[0]
        assert report.verdict is not None
        assert (report.verdict.code, report.verdict.fault_class) == ("DTH008", fault_class)
    for last in (
        "No route to host is what it says when the cable is out",
        "lookup of data-0.cluster: Name or service not known, using the address",
        "WARNING: cache: Permission denied",
    ):
        assert _told([*STEPS, last]) is None
    for behind in ("cleaning up", "step 21/40 loss 2.0"):  # the program went on
        assert _told([*STEPS, "mkdir: /data/out: Read-only file system", behind]) is None


def test_errors_in_the_words_of_programs() -> None:
    for last in (
        ["ERROR: Lost atoms: original 0 current 500000 (../thermo.cpp:441)", "Last command: rerun dump.dat"],
        ["2026-01-01 10:00:00,123 - main - ERROR - cannot read the list of shards"],
        ["[FATAL] the table of stations is empty"],
        ["ERROR on proc 3: Particle outside surface of region (fix_wall.cpp:307)", "Last command: run 2000000"],
        ["E0729 22:37:07.947906 25624 pybind.cc:2330] Invalid CUDAPlace(1), must inside [0, 1)"],
        [
            "Error in call to target 'a.b.C':",
            "AttributeError(\"'NoneType' object has no attribute 'values'\")",
            "full_key: encoder",
        ],
    ):
        assert _told([*STEPS, *last]) == "DTH008", last


def test_what_is_no_last_error() -> None:
    for last in (
        ["error: 0.023"],
        ["ERROR: cannot read shard 7, retrying"],
        ["ERROR: cannot read shard 7", *(f"shard {n} read" for n in range(9))],
        ["UserWarning: error bars are not drawn"],
        ["mean error: 0.3 accuracy 0.9"],
    ):
        assert _told([*STEPS, *last]) is None, last
    assert (
        judge_readings(
            [read_lines([*STEPS, "ERROR: cannot upload the table", "Training finished."], "job.out")],
            Question(),
            started=datetime.now(UTC),
        )[0].status
        is not Status.HEALTHY
    )
