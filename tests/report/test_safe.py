import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allready.report.safe import encodable, pad, plain, safe_json, shorten, width


@given(st.text())
def test_nothing_is_left_that_could_steer_a_terminal(text: str) -> None:
    assert all(unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in plain(text))


def test_what_was_there_is_still_to_be_seen() -> None:
    assert plain("a\x1b[31mb\rc\n\u202edcba\udcff") == "a\\x1b[31mb\\rc\\n\\u202edcba\\udcff"
    assert plain("two\nlines", keep_newlines=True) == "two\nlines"
    assert plain("a\tb") == "a b"


def test_a_long_line_says_how_much_was_cut() -> None:
    assert plain("x" * 5000, most=10) == "xxxxxxxxxx … +4990"


def test_chinese_takes_two_columns() -> None:
    assert width("节点 0") == 6
    assert width("e\u0301") == 1
    assert pad("节点", 6) == "节点  "
    assert pad("节点", 6, right=True) == "  节点"


@given(st.text(alphabet="ab节点", max_size=30), st.integers(min_value=0, max_value=20))
def test_shortened_text_fits(text: str, columns: int) -> None:
    assert width(shorten(text, columns)) <= columns


@pytest.mark.parametrize(
    ("encoding", "text"), [("ascii", "1 us ... ->"), ("utf-8", "1 µs … →"), ("nonsense", "1 us ... ->")]
)
def test_text_fits_the_encoding_of_the_stream(encoding: str, text: str) -> None:
    assert encodable("1 µs … →", encoding) == text


def test_chinese_in_an_ascii_terminal_becomes_question_marks_not_an_exception() -> None:
    assert encodable("节点", "ascii") == "??"


def test_json_may_be_printed_and_says_the_same() -> None:
    bad = [c for c in map(chr, range(0x7F, sys.maxunicode + 1)) if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"}]
    text = json.dumps({"a": "中文 ü 😀 " + "".join(bad)}, ensure_ascii=False).encode()
    shown = safe_json(text)
    assert json.loads(shown) == json.loads(text)
    assert not set(bad) & set(shown.decode())
    assert "中文 ü 😀" in shown.decode()
    assert safe_json(b'{"a": 1}') == b'{"a": 1}'
