"""Sentences where something is not known."""

import pytest

from allready.model.fill import NOBODY, fill, plain


def test_what_is_known_is_put_in() -> None:
    assert fill("{who}: {n} of {m} (port {port})", {"who": "rank 1", "n": 2, "m": 4, "port": 80}) == (
        "rank 1: 2 of 4 (port 80)"
    )


def test_a_question_mark_never_stands_in_a_command() -> None:
    template = "see ping {peer}; nc -vz {host} {port}; keys (ssh-copy-id {peer}), known_hosts (grep :{port}, pid {pid})"
    unknown = {"peer": "?", "host": "?", "port": "?", "pid": "7"}
    assert fill(template, unknown, is_command=True) == ("see ping ADDRESS; nc -vz HOST PORT; keys, known_hosts (pid 7)")


def test_a_sentence_leaves_out_what_is_not_known() -> None:
    known = {"who": NOBODY, "peer": "10.0.0.2", "port": "?", "error": "reset"}
    assert fill("{who} cannot listen on port {port}: in use", known) == "a process cannot listen on its port: in use"
    assert fill("{who} failed on port {port}", known) == "a process failed on its port"
    assert fill("{who}: to {peer}<{port}> ({error})", known) == "to 10.0.0.2 (reset)"
    assert fill("{who} cannot listen (port {port}): {error}", known) == "a process cannot listen: reset"
    assert fill("{who} 无法监听端口 {port}：已被占用", known | {"who": "rank 1"}) == "rank 1 无法监听端口：已被占用"


def test_nobody_is_no_subject_where_the_sentence_stands_without() -> None:
    values = {"who": NOBODY, "error": "bus error"}
    assert fill("{who}: {error}", values) == fill("on {who} {error}", values) == "bus error"
    assert fill("{who}：{error}", values, nobody="某个进程") == "bus error"
    assert fill("{who} 遇到 {error}", values, nobody="某个进程") == "某个进程 遇到 bus error"
    assert fill("{who}: {error}", values | {"who": "rank 1"}) == "rank 1: bus error"


def test_later_parts_of_which_nothing_is_known_are_left_out() -> None:
    template = "{who} wants {size}; GPU {gpu} has {all} in all, {free} free, this holds {mine} ({a} in tensors)"
    values = {"who": "rank 2", "size": "1 GiB", "gpu": "?", "all": "?", "free": "?", "mine": "?", "a": "?"}
    assert fill(template, values) == "rank 2 wants 1 GiB"
    known = values | {"gpu": "0", "all": "80 GiB"}
    assert fill(template, known | {"mine": "2 GiB"}) == (
        "rank 2 wants 1 GiB; GPU 0 has 80 GiB in all, this holds 2 GiB"
    )
    essential = "NCCL is asked for, but torch {version} is built without CUDA"
    assert fill(essential, {"version": "?"}) == essential.format(version="(unknown version)")
    assert fill("{who} waited in {op} with {n} elements", {"who": "rank 1", "op": "X", "n": "?"}) == (
        "rank 1 waited in X"
    )


def test_an_address_and_a_number_that_are_not_known_are_called_differently() -> None:
    values = {"peer": "?", "error": "reset"}
    assert fill("could not reach {peer}: {error}", values) == "could not reach an unknown address: reset"
    assert fill("连不上 {peer}：{error}", values, nowhere="未知地址") == "连不上 未知地址：reset"
    assert fill("rank {peer} ended", values) == "an unknown rank ended"
    assert fill("节点 {n} 掉线", {"n": "?"}, someone="某个 {kind}") == "某个 节点 掉线"
    assert fill("read the log of rank {peer}", values, is_command=True) == "read the log of rank N"


def test_a_place_that_is_not_known_is_not_sent_to() -> None:
    assert fill("mend the error at {site}; see others", {"site": "?"}, is_command=True) == "mend the error; see others"
    assert fill("mend the error at {site}; see others", {"site": "a.py:3"}, is_command=True) == (
        "mend the error at a.py:3; see others"
    )


def test_a_part_that_the_template_marks_goes_with_its_value() -> None:
    template = "{who} raised {error}[[ at {site}]][[, code {a} of {b}]]"
    values = {"who": "rank 1", "error": "x", "site": "a.py:3", "a": "1", "b": "2"}
    assert fill(template, values) == "rank 1 raised x at a.py:3, code 1 of 2"
    assert fill(template, values | {"site": "?"}) == "rank 1 raised x, code 1 of 2"
    assert fill(template, values | {"b": "?"}, is_command=True) == "rank 1 raised x at a.py:3"
    assert fill(template, values | {"error": "f[[{site}]]", "site": "?", "a": "?"}) == "rank 1 raised f[[{site}]]"
    assert plain(template) == "{who} raised {error} at {site}, code {a} of {b}"
    with pytest.raises(KeyError):
        fill(template, {"who": "?", "error": "x"})


def test_brackets_in_a_value_are_left_alone() -> None:
    assert fill("{who}: {error} ({port})", {"who": "gpu01 (pid 3)", "error": "f(?)", "port": "?"}) == (
        "gpu01 (pid 3): f(?)"
    )


def test_a_value_that_is_missing_is_a_mistake_of_the_rule() -> None:
    with pytest.raises(KeyError):
        fill("{who} {what}", {"who": "?"})
