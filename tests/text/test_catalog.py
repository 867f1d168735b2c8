from allready.model import Confidence, Culprits, FaultClass, Finding, Severity
from allready.text.catalog import choose_language, say
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


def test_says_it_in_english_as_the_finding_has_it() -> None:
    assert say(finding(**GIVEN), "message", "en") == "english message"
    assert say(finding(**GIVEN), "title", "en") == "english title"


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
