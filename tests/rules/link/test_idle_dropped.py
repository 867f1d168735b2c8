from typing import Any

from .wires import DEAD, NOW, ask, row

FORGOTTEN = DEAD | {"last_received_s": 1300.0}


def test_names_the_path_on_which_idle_connections_are_forgotten() -> None:
    [hit] = ask("LNK005", rows={(1, 2): FORGOTTEN}, more=[row(1, 2, local_port=9001, remote_port=9002)]).hits
    assert hit.culprits.links == ((1, 2),)
    assert int(str(hit.values["idle_s"])) > 1200


def test_a_path_on_which_nothing_works_is_no_forgotten_connection() -> None:
    assert ask("LNK005", rows={(1, 2): FORGOTTEN}).state == "clear"
    assert ask("LNK003", rows={(1, 2): FORGOTTEN}).state == "hit"


def test_a_connection_that_was_used_a_moment_ago_was_not_forgotten() -> None:
    assert ask("LNK005", rows={(1, 2): DEAD}, more=[row(1, 2, local_port=9001, remote_port=9002)]).state == "clear"


def test_a_connection_that_is_only_idle_is_healthy() -> None:
    idle = {"last_received_s": 1300.0, "last_sent_s": 1300.0}
    assert ask("LNK005", rows={(1, 2): idle}).state == "clear"


def test_a_first_packet_that_is_answered_now_shows_that_the_path_works() -> None:
    """After a pause all connections of the ranks may have been forgotten, so that none is left that works."""
    [hit] = ask("LNK005", rows={(1, 2): FORGOTTEN}, reached={1: {2: True}}).hits
    assert hit.culprits.links == ((1, 2),)
    assert "a SYN is answered" in hit.evidence[0].text
    for code in ("LNK001", "LNK003"):
        assert ask(code, rows={(1, 2): FORGOTTEN}, reached={1: {2: True}}).state == "clear"
    before: dict[str, Any] = {"reached": {1: {2: True}}, "asked_s": NOW - 3}  # the data has gone unanswered since 1.4 s
    assert ask("LNK005", rows={(1, 2): FORGOTTEN}, **before).state == "clear"
    assert ask("LNK005", rows={(1, 2): FORGOTTEN}, reached={1: {2: False}}).state == "clear"
