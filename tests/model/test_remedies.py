"""What to do about a finding: steps with a place, a command to paste and an explanation."""

import pytest

from allready.model import Confidence, Culprits, FaultClass, Finding, Remedy, Severity
from allready.model.fill import fill_steps, placeholders_of, steps_of
from allready.text import catalog

STOPPED = Remedy(
    explanation="rank {rank} is stopped: let it go on", command="kill -CONT {pid}", where="node {node}", step=0
)


def filled(step: Remedy, **values: object) -> list[Remedy]:
    return list(fill_steps((step,), values))


def test_everything_known_is_filled_in() -> None:
    [step] = filled(STOPPED, rank=37, pid=1037, node="4 (gpu04)")
    assert (step.where, step.command) == ("node 4 (gpu04)", "kill -CONT 1037")
    assert step.explanation == "rank 37 is stopped: let it go on"


def test_what_is_not_known_stands_in_capitals_and_an_unknown_place_is_left_out() -> None:
    [step] = filled(STOPPED, rank=37, pid="?", node="?")
    assert (step.where, step.command) == ("", "kill -CONT PID")


def test_a_step_whose_value_is_empty_is_left_out_and_the_others_keep_their_numbers() -> None:
    steps = (STOPPED, Remedy(explanation="read its stack", command="{look}", step=1))
    [second] = fill_steps(steps, {"rank": 1, "pid": "", "node": "0", "look": "py-spy dump -p 7"})
    assert (second.step, second.command) == (1, "py-spy dump -p 7")


@pytest.mark.parametrize(
    "hostile", ["7; rm -rf ~", "$(id)", "`id`", "-oProxyCommand=x", "a b", "x\ny", "'", "a|b", "<x>"]
)
def test_a_value_that_a_shell_would_take_apart_never_stands_in_a_command(hostile: str) -> None:
    [step] = filled(Remedy(explanation="reach {host}", command="ping -c 1 {host}"), host=hostile)
    assert step.command == "ping -c 1 HOST"
    assert hostile in step.explanation


def test_a_command_that_a_rule_made_whole_stands_as_it_is() -> None:
    made = "nft insert rule inet filter input 'tcp dport { 1, 2 } accept'"
    [step] = filled(Remedy(explanation="open the port", command="{command}"), command=made)
    assert step.command == made


def test_an_entry_of_a_table_has_steps_or_one_sentence() -> None:
    assert steps_of({"remedy": " restart it "}) == (Remedy(explanation="restart it"),)
    [first, second] = steps_of({"remedies": [{"explanation": "a"}, {"explanation": "b", "where": "node {n}"}]})
    assert (first.step, second.step, placeholders_of((first, second))) == (0, 1, {"n"})
    assert steps_of({}) == ()
    with pytest.raises(TypeError):
        steps_of({"remedies": [{"explanation": "a", "comand": "ls"}]})
    with pytest.raises(TypeError):
        steps_of({"remedies": [{"command": "ls"}]})


def finding(code: str, *remedies: Remedy, **values: str) -> Finding:
    return Finding(
        code=code,
        severity=Severity.ERROR,
        fault_class=FaultClass.DEAD,
        confidence=Confidence.CERTAIN,
        culprits=Culprits(),
        message="m",
        remedy=catalog.remedy_text(remedies, "en"),
        remedies=remedies,
        values=values,
    )


def test_the_sentence_is_made_of_the_steps_in_both_languages() -> None:
    steps = (*filled(STOPPED, rank=37, pid=1037, node="4 (gpu04)"), Remedy(explanation="restart the job", step=1))
    one = finding("XXX001", *steps)
    assert one.remedy == ("on node 4 (gpu04): rank 37 is stopped: let it go on: kill -CONT 1037; restart the job")
    assert catalog.say(one, "remedy", "zh").startswith("在node 4 (gpu04)上：")  # no Chinese text for this code


def test_a_report_from_before_there_were_steps_is_shown_as_it_was_written() -> None:
    old = finding("XXX001")
    assert catalog.say(old, "remedy", "en") == old.remedy == ""
