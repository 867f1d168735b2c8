"""What to do about a finding: steps with a place, a command to paste and an explanation."""

import pytest

from allready.model import Confidence, Culprits, FaultClass, Finding, Remedy, RemedyStep, Severity
from allready.model.fill import fill_steps, placeholders_of, steps_of
from allready.text import catalog
from tests.cases import cases

STOPPED = RemedyStep(
    explanation="rank {rank} is stopped: let it go on", command="kill -CONT {pid}", where="node {node}"
)
HOSTILE = ["7; rm -rf ~", "$(id)", "`id`", "-oProxyCommand=x", "a b", "x\ny", "'", "a|b", "<x>"]


def filled(step: RemedyStep, **values: object) -> list[Remedy]:
    return list(fill_steps((step,), values))


def test_everything_known_is_filled_in() -> None:
    [remedy] = filled(STOPPED, rank=37, pid=1037, node="4 (gpu04)")
    assert (remedy.where, remedy.command) == ("node 4 (gpu04)", "kill -CONT 1037")
    assert remedy.explanation == "rank 37 is stopped: let it go on"


def test_what_is_not_known_stands_in_capitals_and_an_unknown_place_is_left_out() -> None:
    [remedy] = filled(STOPPED, rank=37, pid="?", node="?")
    assert (remedy.where, remedy.command) == ("", "kill -CONT PID")


def test_a_step_whose_value_is_empty_is_left_out_and_the_others_keep_their_numbers() -> None:
    steps = (STOPPED, RemedyStep(explanation="read its stack", command="{dump}"))
    [second] = fill_steps(steps, {"rank": 1, "pid": "", "node": "0", "dump": "py-spy dump -p 7"})
    assert (second.step, second.command) == (1, "py-spy dump -p 7")


def test_a_step_for_each_of_several_nodes_is_there_once_for_each() -> None:
    step = RemedyStep(explanation="open port {port}", where="node {on}", command="{command}", each="openings")
    rows = ({"on": "0", "command": "ufw allow 1"}, {"on": "1", "command": "nft add"})
    first, second = filled(step, port=1, openings=rows)
    assert [(r.where, r.command, r.explanation) for r in (first, second)] == [
        ("node 0", "ufw allow 1", "open port 1"),
        ("node 1", "nft add", "open port 1"),
    ]
    assert (first.step, second.step, second.values["on"]) == (0, 0, "1")
    assert filled(step, port=1, openings=()) == []


@cases("hostile", HOSTILE)
def test_a_value_that_a_shell_would_take_apart_never_stands_in_a_command(hostile: str) -> None:
    [remedy] = filled(RemedyStep(explanation="reach {host}", command="ping -c 1 {host}"), host=hostile)
    assert remedy.command == "ping -c 1 HOST"
    assert hostile in remedy.explanation


def test_a_command_that_a_rule_made_whole_stands_as_it_is() -> None:
    made = "nft insert rule inet filter input 'tcp dport { 1, 2 } accept'"
    [remedy] = filled(RemedyStep(explanation="open the port", command="{command}"), command=made)
    assert remedy.command == made


def test_an_entry_of_a_table_has_steps_or_one_sentence() -> None:
    assert steps_of({"remedy": " restart it "}) == (RemedyStep(explanation="restart it"),)
    steps = steps_of({"remedies": [{"explanation": "a"}, {"explanation": "b", "where": "node {n}"}]})
    assert (len(steps), set(placeholders_of(steps))) == (2, {"n"})
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
    own = {"node": "1 (gpu01)", "end": "kill 4242", "port": "29500", "holder": "pid 4242"}
    steps = (
        RemedyStep(explanation="if that is a leftover, end it", where="node {node}", command="{end}"),
        RemedyStep(explanation="otherwise give this job another port: --master-port N", where="every node"),
    )
    one = finding("PRT005", *fill_steps(steps, own), **own)
    assert one.remedy == (
        "on node 1 (gpu01): if that is a leftover, end it: kill 4242; "
        "on every node: otherwise give this job another port: --master-port N"
    )
    first, second = catalog.say_remedies(one, "zh")
    assert (first.where, first.command, second.where) == ("节点 1 (gpu01)", "kill 4242", "所有节点")
    assert catalog.say(one, "remedy", "zh").startswith("在节点 1 (gpu01)：如果那是残留进程，结束它：kill 4242；")


def test_what_a_language_lacks_stays_english() -> None:
    own = {"rank": "37", "pid": "1037", "node": "4"}
    one = finding("XXX001", *fill_steps((STOPPED,), own), **own)
    assert catalog.say(one, "remedy", "zh") == "在 node 4：rank 37 is stopped: let it go on：kill -CONT 1037"


def test_a_report_from_before_there_were_steps_is_shown_as_it_was_written() -> None:
    old = Finding(
        code="PRT005",
        severity=Severity.ERROR,
        fault_class=FaultClass.DEAD,
        confidence=Confidence.CERTAIN,
        culprits=Culprits(),
        message="m",
        remedy="end it",
    )
    assert catalog.say(old, "remedy", "en") == "end it"
