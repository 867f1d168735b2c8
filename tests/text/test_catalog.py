from allready.judging.stated import doing_words, said
from allready.model import Confidence, Culprits, FaultClass, Finding, Phrase, Severity
from allready.text.catalog import choose_language, in_words, place_text, say, say_phrase, source_name
from tests.cases import cases


def finding(code: str = "JOB001", **values: str) -> Finding:
    return Finding(
        code=code,
        severity=Severity.ERROR,
        fault_class=FaultClass.DEAD,
        confidence=Confidence.CERTAIN,
        culprits=Culprits(),
        message="english message",
        remedy="english remedy",
        title="english title",
        values=values,
    )


GIVEN = {"nodes": "1 (a{b})", "waited_s": "3", "num_nodes": "2", "present": "1", "ranks": "1"}


def test_says_it_in_chinese_with_the_values_filled_in() -> None:
    said = say(finding(**GIVEN), "message", "zh")
    assert "节点 1 (a{b})" in said
    assert "{" not in said.replace("a{b}", "")


def test_ranks_that_wait_are_called_so_also_in_a_report_that_has_only_their_numbers() -> None:
    known = {"who": "rank 3", "call": "all_reduce #7", "error": "?"}
    for waiting, shown in (("1", "rank 1"), ("1, 2", "rank 1, 2"), ("2 ranks", "2 ranks")):
        for code in ("RTM001", "RTM002", "RTM003", "RTM004", "RTM005"):
            text = say(finding(code, **known, waiting=waiting), "message", "zh")
            assert shown in text, text
            assert text.count(waiting) == 1, text


def test_says_it_in_english_as_the_finding_has_it() -> None:
    assert say(finding(**GIVEN), "message", "en") == "english message"
    assert say(finding(**GIVEN), "title", "en") == "english title"


@cases(
    ("name", "value", "shown"),
    [
        ("state", "left", "已离开"), ("state", "left, answered", "left, answered"),
        ("error", "ValueError: want a, same", "ValueError: want a, same"), ("detail", "none", "none"),
        ("odd", "(not set)", "(not set)"), ("value", "all of them", "all of them"),
    ],
)  # fmt: skip
def test_only_the_words_of_an_enumeration_are_translated_and_nothing_that_was_read(
    name: str, value: str, shown: str
) -> None:
    assert in_words({name: value}, "zh") == {name: shown}


@cases(
    ("phrase", "shown"),
    [
        (said("none"), "无"), (said("no dump"), "没有转储"), (doing_words("user_idle"), "停在用户代码中"),
        (Phrase("of another version", {}), "of another version"),
    ],
)  # fmt: skip
def test_a_phrase_is_said_by_the_tables_that_have_it(phrase: Phrase, shown: str) -> None:
    assert say_phrase(phrase, "zh") == shown


def test_what_a_process_does_without_a_word_for_it_stands_as_it_is() -> None:
    assert (doing_words("exit code 0"), doing_words("")) == ("exit code 0", None)


def test_chinese_has_a_blank_beside_letters_numbers_and_placeholders() -> None:
    assert [place_text(where, "zh") for where in ("节点 {on}", "节点 3", "所有节点")] == [
        "在节点 {on}", "在节点 3", "在所有节点"
    ]  # fmt: skip
    assert source_name("flight recorder", "zh") == "飞行记录器"


def test_falls_back_to_english_where_a_text_or_a_value_is_missing() -> None:
    assert say(finding("XXX999"), "remedy", "zh") == "english remedy"
    assert say(finding(nodes="1"), "message", "zh") == "english message"


@cases(
    ("asked", "environ", "language"),
    [
        ("zh", {"LANG": "en_US.UTF-8"}, "zh"),
        (None, {"ALLREADY_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        (None, {"LC_ALL": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
        (None, {"LC_ALL": "", "LC_MESSAGES": "zh_TW", "LANG": "en_US.UTF-8"}, "zh"),
        (None, {"LANG": "ZH_cn"}, "zh"),
        (None, {"LANG": "de_DE.UTF-8"}, "en"),
        (None, {}, "en"),
    ],
)
def test_the_language_is_the_first_that_somebody_chose(
    asked: str | None, environ: dict[str, str], language: str
) -> None:
    assert choose_language(asked, environ) == language
