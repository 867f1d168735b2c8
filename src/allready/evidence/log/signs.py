"""What shows at a log's end that its program came to its own end, where no single line says so for certain.

A program repeats itself while it works.  Behind its last repetition it says what came out, where it was saved, how long
it took, and closes what it had opened: each is a weak sign, and several of different kinds are good evidence.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from allready.evidence.log import closing_words as wording
from allready.evidence.log import languages
from allready.evidence.log.fronts import without_front
from allready.evidence.log.left_loop import LETTERS, MIN_REPEATS, form, plain
from allready.evidence.log.results import FRACTION, num_measures
from allready.evidence.log.subjects import is_of_an_act
from allready.evidence.log.trouble import is_bad
from allready.model import SignKind
from allready.patterns import compiled

_MAX_CODA = 80
"""Lines behind the last one of a loop: more is another work."""

_MAX_BEHIND = 4
"""Lines behind the last sign that say nothing of the end."""

_ENOUGH = 3
_MANY = 20
_MAX_WAITING = 3
_MIN_RULE = 10
_MAX_TITLE = 3
"""Lines from the rule above a title to the one below it."""

_MOST = 0.8
_MIN_RUN = 10
_MAX_CHARS = 300
_MANY_VALIDATED = 8
_MIN_REPORT = 5
"""Lines of a report: a class each, and the averages."""


class WeakSign(NamedTuple):
    """One weak sign.  `at`: the place of its line."""

    kind: SignKind
    at: int


@functools.cache
def _done() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:done|finish(?:ed)?|complet(?:ed?|ion)|concluded|"
        r"succe(?:ss(?:fully)?|eded)|successful(?=\W*$)|ended|all good)\b"
        rf"(?!['\"]?\s{{0,3}}[=:]\s{{0,3}}\d)|(?:{languages.DONE})",
        re.IGNORECASE,
    )


@functools.cache
def _of_less() -> re.Pattern[str]:
    """Of what comes before the work, or within it."""
    return re.compile(
        r"\b(?:epochs?|steps?|iter\w*|batch\w*|checkpoint\w*|ckpt|load\w*|download\w*|initiali\w*|init|setup|set up|"
        r"warm\w*|compil\w*|captur\w*|cach\w*|connect\w*|read(?:ing)?|import\w*|install\w*|prepar\w*|pre-?process\w*|"
        r"token\w*|build\w*|built|folds?|shards?|chunks?|request\w*|forward|backward|rendezvous|barrier|"
        r"rank \d+|worker \d+|process \d+|start\w*|configur\w*|collect(?:ed|ing|ions?)?|creat\w*|allocat\w*|fetch\w*|"
        rf"so far|already)\b|{languages.OF_A_PART}",
        re.IGNORECASE,
    )


@functools.cache
def _saved() -> re.Pattern[str]:
    things = (
        r"(?:results?|reports?|summar(?:y|ies)|plots?|figures?|charts?|graphs?|predictions?|submissions?|metrics|tables?|"
        r"outputs?|statistics|stats|curves?|visuali[sz]ations?|histor(?:y|ies)|analys[ie]s|"
        r"(?:benchmark|evaluation|test|run) logs?|final[ _][\w ]{1,20}|trained model|model)"
    )
    verbs = r"(?:saved|written|wrote|exported|stored|generated|dumped|saving|available|uploaded)"
    files = r"\.(?:csv|tsv|json|html?|pdf|png|svg|jpe?g|xlsx?|md|txt|npz?|pkl|parquet|tex|yaml)\b"
    return re.compile(
        rf"\b{things}\b[^|]{{0,60}}?\b{verbs}\b|\b{verbs}\b[^|]{{0,60}}?\b{things}\b|"
        rf"\b{verbs}\b.{{0,200}}?{files}|\b{things}\b\W{{1,6}}(?:→|->|=>)|"
        r"(?:结果|报告|图|预测|指标).{0,30}(?:已?保存|写入|导出)|(?:保存|写入|导出).{0,10}(?:结果|报告|图)",
        re.IGNORECASE,
    )


@functools.cache
def _time() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:total|overall|elapsed|full|training|execution|run|running|wall(?:[- ]?clock)?|inference|evaluation|"
        r"processing|program|script|job)[ _]?"
        r"(?:\w{1,12}[ _])?(?:time|took|duration|runtime|elapsed)\b(?! for )[^\d|]{0,24}"
        r"\d[\d.:]{0,12}(?!th|st|nd|rd|\w*[/])|"
        r"\belapsed\W{1,3}\d[\d.:]{0,12}|^\s{0,4}real\s{1,8}\d{1,4}m|"
        r"\b(?:总(?:耗时|用时|时间)|耗时|用时)\D{0,6}\d",
        re.IGNORECASE,
    )


@functools.cache
def _closed() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:shut(?:ting)?[ -]?down|stopp(?:ed|ing)|clos(?:ed|ing)|clean(?:ed|ing)?[ -]?up|releas(?:ed|ing)|"
        r"disconnect(?:ed|ing)|destroy(?:ed|ing)|exit(?:ed|ing)?|quit(?:ting)?|deactivated|cleared|torn down|teardown|"
        r"goodbye|bye|logging off|removing temp\w*|deleting|"
        r"end (?:of )?(?:\w{1,8} )?epilog(?:ue)?)\b|(?:已(?:清理|释放|关闭|退出|停止))",
        re.IGNORECASE,
    )


@functools.cache
def _of_all() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:test(?:ing)?|final|overall|average|avg|mean|macro|weighted|total|best|median|summary|std|winner)\b|平均|总|最终|测试",
        re.IGNORECASE,
    )


_TEST = r"(?i)(?<![a-z])test(?:ing|ed|s)?(?![a-z])|测试"
_VALIDATION = r"(?i)(?<![a-z])(?:val|valid|validation|dev)(?![a-z])|验证"
_ALL_DONE = r"(?i)\ball (?:done|finished|completed?)\b"
_SUBJECT = r"(?i)\W{0,8}(?P<what>[^\W\d][\w./-]{1,40}(?: [\w./-]{1,40}){0,3}?) (?:is |was |has |have )?"
_BEGUN = rf"{_SUBJECT}(?:start(?:s|ed|ing)|beg(?:ins|an|inning)|launched|running)\b"
_ENDED = rf"{_SUBJECT}(?:finish(?:es|ed)|ends|ended|complete[ds]?|done)\b"
_SETTING = r"[A-Za-z]\w*\s{0,40}[:=] ?\S"


def weak_signs(
    earlier: Sequence[str], lines: Sequence[str], is_noise: Callable[[str], bool], openings: Sequence[int]
) -> list[WeakSign] | None:
    """The signs behind the last line of a loop, in order; None where something went wrong or begins there.

    `lines`: the last ones; `earlier`: as much as is kept of the log before them.  `openings`: the places in both where
    the log begins again.
    """
    said = [
        (at, words)
        for at, line in enumerate((*earlier, *lines))
        if not is_noise(line) and compiled(LETTERS).search(words := without_front(plain(line)))
    ]
    is_long = all(b - a >= _MIN_RUN for a, b in pairwise(openings))
    begun = max(openings, default=0) if is_long else 0
    own = [one for one in said if one[0] >= begun]
    if not own or own[-1][0] < len(earlier) or wording.begins().search(own[-1][1]) is not None:
        return None
    forms = [form(words) for _, words in own]
    whole = next((one for one in reversed(forms[:-1]) if len(one) > len(forms[-1]) and one.startswith(forms[-1])), "")
    forms[-1] = whole or forms[-1]  # it may have been cut
    ends_alike = _ends_alike(said)
    first = _behind_loop(own, [*forms[:-1], "" if ends_alike else forms[-1]])
    coda = range(first, len(own))
    if not 0 < len(coda) <= _MAX_CODA:
        return None
    runs = _runs(forms)
    said_before = {one for one, num in runs.items() if num > 1} | set(forms[:first]) - (
        {forms[-1]} if ends_alike else set()
    )
    found: list[WeakSign] = []
    for i in coda:
        at, words = own[i][0], own[i][1][:_MAX_CHARS]
        if forms[i] not in said_before and is_bad(words):
            return None
        found += [
            WeakSign(kind, at)
            for kind in kinds(words, is_last=i == len(own) - 1)
            if forms[i] not in said_before or kind is SignKind.EARLY
        ]
    if any(wording.waits().search(own[i][1]) for i in coda[-_MAX_WAITING:]):
        return None
    if any(is_noise(line) and is_bad(line) for line in (*earlier, *lines)[own[first - 1][0] + 1 if first else 0 :]):
        return None  # another process died
    found += _tested(own, coda)
    if ends_alike:
        found.append(WeakSign(SignKind.ALIKE, own[-1][0]))
    found += _framed((*earlier, *lines), begun)
    found += _begun_and_ended(own)
    last = max((one.at for one in found), default=-1)
    if sum(at > last for at, _ in own) > _MAX_BEHIND:
        return None
    if len(own) >= _MIN_RUN and any(one.at == own[-1][0] for one in found) and _is_of_all(own[-1][1]):
        found.append(WeakSign(SignKind.LAST, last))
    return sorted((WeakSign(kind, at - len(earlier)) for kind, at in found), key=lambda one: one.at)


def _is_of_all(words: str) -> bool:
    """Whether the last line says that all is done, and names no part or act."""
    is_of_less = wording.is_other(words) or (is_of_an_act(words) and compiled(_ALL_DONE).search(words) is None)
    return _done().search(words) is not None and not is_of_less


def _runs(forms: Sequence[str]) -> Counter[str]:
    """How often each form stands, those in a row as one: a table, a list."""
    return Counter(one for one, next_ in zip(forms, [*forms[1:], ""], strict=True) if one != next_)


def _behind_loop(own: Sequence[tuple[int, str]], forms: Sequence[str]) -> int:
    """The place in `own` behind the last line that counts a step, or that stands among others again and again.  What
    was measured at the step that is reached counts none."""
    runs = _runs(forms)
    times = Counter(forms)
    behind, reached = 0, ""
    for i, (one, (_, words)) in enumerate(zip(forms, own, strict=True)):
        number = wording.step_of(words)
        is_step = wording.goes_on(words) and (number != reached or compiled(FRACTION).search(words) is None)
        if runs[one] >= MIN_REPEATS or times[one] >= _MANY or is_step:
            behind = i + 1
        reached = number or reached
    return behind


_FIRM = {SignKind.EARLY, SignKind.TEST, SignKind.ALIKE, SignKind.FRAMED, SignKind.FULL}
"""What hardly comes in the middle."""


def are_enough(found: Sequence[WeakSign], *, is_known: bool, is_of_a_part: bool) -> bool:
    """Whether these signs are of enough kinds.

    `is_known`: it is known how far the program will count, or it counts nothing; `is_of_a_part`: the log names parts of
    the job, and more may be to come.
    """
    told = {one.kind for one in found}
    least = _ENOUGH + (is_of_a_part and SignKind.FRAMED not in told)
    return told != {SignKind.ALIKE} and len(told) + bool(told & _FIRM) + is_known >= least


def kinds(words: str, *, is_last: bool = False) -> list[SignKind]:
    """What one line, without its logger's front, says of an end."""
    found = []
    if wording.early().search(words) and not wording.denies(words):
        found.append(SignKind.EARLY)
    is_less = _of_less().search(wording.without_paths(words).replace("_", " ")) is not None
    if not is_less and _time().search(words):
        found.append(SignKind.TIME)
    if not is_less and not wording.denies(words):
        is_of_a_step = wording.is_of_a_step().search(words) is not None
        found += [SignKind.DONE] if _done().search(words) else []
        found += [SignKind.SAVED] if not is_of_a_step and _saved().search(words) else []
        found += [SignKind.CLOSED] if _closed().search(words) else []
    if num_measures(words) and (is_last or _of_all().search(words)):
        found.append(SignKind.RESULT)
    return found


def _ends_alike(said: Sequence[tuple[int, str]]) -> bool:
    """Whether the last line stands only there and at the end of earlier runs, each of which the log's first line
    follows."""
    forms = [form(words) for _, words in said]
    ends = [i for i, one in enumerate(forms[:-1]) if one == forms[-1]]
    is_long = all(b - a >= _MIN_RUN for a, b in pairwise([-1, *ends]))
    return bool(ends) and is_long and all(forms[i + 1] == forms[0] for i in ends)


def _tested(own: Sequence[tuple[int, str]], coda: range) -> list[WeakSign]:
    """The first measure of a test, or the first report of many measures, behind a loop whose steps were validated
    again and again and never so."""

    def measures(words: str, of: re.Pattern[str]) -> bool:
        return of.search(words := wording.without_paths(words)) is not None and num_measures(words) > 0

    before = [words for _, words in own[: coda.start]]
    known = {form(words) for words in before}
    report = [at for at, words in (own[i] for i in coda) if num_measures(words) and form(words) not in known]
    tests = [at for at, words in (own[i] for i in coda) if measures(words, compiled(_TEST))]
    is_first = bool(tests) and not any(measures(words, compiled(_TEST)) for words in before)
    if not is_first and len(report) < _MIN_REPORT:
        return []
    first = tests[0] if is_first else report[0]
    num_validated = sum(measures(words, compiled(_VALIDATION)) for words in before)
    return [WeakSign(SignKind.TEST, first)] if num_validated >= _MANY_VALIDATED else []


def _begun_and_ended(own: Sequence[tuple[int, str]]) -> list[WeakSign]:
    """The last line, where it says that what the first one began is over: `Learner started`, `Learner finished`."""
    if len(own) < _MIN_RUN:
        return []
    opening, last = compiled(_BEGUN).match(own[0][1]), own[-1]
    closing = None if opening is None else compiled(_ENDED).match(last[1])
    if opening is None or closing is None or opening["what"].lower() != closing["what"].lower():
        return []
    is_less = _of_less().search(last[1]) is not None or wording.denies(last[1])
    return [] if is_less else [WeakSign(SignKind.FRAMED, last[0])]


def _framed(lines: Sequence[str], begun: int) -> list[WeakSign]:
    """The rule that closes a document which began with it; not one between titles, or around settings."""
    drawn = [(at, text) for at, line in enumerate(lines) if (text := plain(line))]
    first = next((text for at, text in drawn if at >= begun), "")
    if len(first) < _MIN_RULE or compiled(LETTERS).search(first) or drawn[-1][1] != first:
        return []
    own = [text for at, text in drawn if at >= begun]
    rules = [i for i, text in enumerate(own) if text == first]
    body = [text for text in own[rules[1] + 1 if len(rules) > 1 else 1 :] if compiled(LETTERS).search(text)]
    has_titles = any(b - a <= _MAX_TITLE for a, b in pairwise(rules[1:]))
    has_titles = has_titles and not any(_done().search(text) for text in own[rules[-2] :])
    is_of_settings = sum(compiled(_SETTING).match(text) is not None for text in body) >= _MOST * len(body)
    return [] if has_titles or is_of_settings else [WeakSign(SignKind.FRAMED, drawn[-1][0])]
