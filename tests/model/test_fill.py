"""Sentences where something is not known."""

import ast
import inspect

import pytest

from allready.model import Phrase
from allready.model import fill as module
from allready.model.fill import UNKNOWN, fill, parts, plain
from tests.text.sources import nodes


def test_what_is_known_is_put_in() -> None:
    assert fill("{who}: {n} of {m} (port {port})", {"who": "rank 1", "n": 2, "m": 4, "port": 80}) == (
        "rank 1: 2 of 4 (port 80)"
    )


def test_an_optional_part_goes_with_its_values() -> None:
    template = "{who} raised {error}[[ at {site}]][[, code {a} of {b}]]"
    values = {"who": "rank 1", "error": "x", "site": "a.py:3", "a": "1", "b": "2"}
    assert fill(template, values) == "rank 1 raised x at a.py:3, code 1 of 2"
    assert fill(template, values | {"site": UNKNOWN}) == "rank 1 raised x, code 1 of 2"
    assert fill(template, values | {"b": UNKNOWN}, is_command=True) == "rank 1 raised x at a.py:3"
    assert plain(template) == "{who} raised {error} at {site}, code {a} of {b}"


def test_of_alternatives_the_first_that_is_known_is_said() -> None:
    template = "listens on [[port {port} of {host}|port {port}|its port]][[ (pid {pid}, {name})| (pid {pid})]]"
    known = {"port": "80", "host": "gpu1", "pid": "7", "name": "sshd"}
    assert fill(template, known) == "listens on port 80 of gpu1 (pid 7, sshd)"
    assert fill(template, known | {"host": UNKNOWN, "name": UNKNOWN}) == "listens on port 80 (pid 7)"
    assert fill(template, known | {"port": UNKNOWN, "pid": UNKNOWN}) == "listens on its port"
    assert plain(template) == "listens on port {port} of {host} (pid {pid}, {name})"
    assert list(parts("a[[b|c]]d")) == [("a",), ("b", "c", ""), ("d",)]


def test_nobody_is_unknown_in_an_optional_part_and_has_a_word_elsewhere() -> None:
    values = {"who": None, "error": "bus error"}
    assert fill("[[{who}: ]]{error}", values) == "bus error"
    assert fill("{who}: {error}", values) == "a process: bus error"
    assert fill("{who}遇到 {error}", values, unnamed="某个进程") == "某个进程遇到 bus error"
    assert fill("[[{who}: ]]{error}", values | {"who": "rank 1"}) == "rank 1: bus error"


def test_a_command_has_a_word_in_capitals_for_what_is_not_known() -> None:
    unknown = {"peer": UNKNOWN, "host": UNKNOWN, "port": UNKNOWN, "pid": "7"}
    filled = fill("ping {peer}; nc -vz {host} {port}[[; grep :{port}]]; ps {pid}", unknown, is_command=True)
    assert filled == "ping ADDRESS; nc -vz HOST PORT; ps 7"


def test_what_a_value_or_a_phrase_contains_is_no_template() -> None:
    values = {"who": "gpu01 (pid 3)", "error": "f[[{site}|?]]", "port": UNKNOWN}
    assert fill("{who}: {error}[[ ({port})]]", values) == "gpu01 (pid 3): f[[{site}|?]]"
    inner = Phrase("round {round}[[, {where}]]", {"round": "1", "where": UNKNOWN})
    assert fill("{link} ({how})", {"link": "a", "how": inner}) == "a (round 1)"


def test_a_value_that_a_rule_forgot_to_bracket_is_called_unknown() -> None:
    """The tests over all rules find it; a report still has no question mark."""
    assert fill("GPU {gpu} failed", {"gpu": UNKNOWN}) == "GPU unknown failed"
    assert fill("GPU {gpu} 出错", {"gpu": UNKNOWN}, unknown="未知") == "GPU 未知 出错"


def test_a_value_that_is_missing_is_a_mistake_of_the_rule() -> None:
    for template in ("{who} {what}", "{who}[[ {what}]]"):
        with pytest.raises(KeyError):
            fill(template, {"who": UNKNOWN})


def test_nothing_here_looks_into_a_sentence() -> None:
    """Marks of the grammar are all that is looked for: no word of a sentence decides anything."""
    tree = ast.parse(inspect.getsource(module))
    calls = [(n.func.attr, n.args[0]) for n in nodes(tree, ast.Call) if isinstance(n.func, ast.Attribute) and n.args]
    looked_for = {
        (name, str(first.value))
        for name, first in calls
        if isinstance(first, ast.Constant) and name in {"partition", "split", "compile", "find", "index", "count"}
    }
    patterns = {text for name, text in looked_for if name == "compile"}
    others = looked_for - {("compile", text) for text in patterns}
    assert others == {("partition", "[["), ("partition", "]]"), ("split", "|"), ("partition", "/")}
    assert all(text.startswith((r"\[\[", r"\{")) for text in patterns)
    assert not {name for name, _ in calls} & {"replace", "removeprefix", "removesuffix", "endswith"}
