"""What a script says, by its syntax tree."""

import ast

import pytest

from allready.facts.software import literals


def test_a_parse_at_which_python_itself_fails_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on Python 3.11 while other threads ran: AST constructor recursion depth mismatch."""
    parse = ast.parse
    failed: list[str] = []

    def fails_once(source: str) -> ast.Module:
        if not failed:
            failed.append(source)
            raise SystemError("AST constructor recursion depth mismatch (before=24, after=20)")
        return parse(source)

    monkeypatch.setattr("allready.facts.software.ast.parse", fails_once)
    assert literals("NAME = 'x'") == {"NAME": "x"}
    assert failed
