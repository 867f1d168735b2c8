"""The results with which an evaluation or a benchmark ends: the last lines give measures, and stand once."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from allready.patterns import compiled

_MAX_LINES = 60
_FEW, _MANY = 2, 5
_MAX_TAIL = 4
"""Lines of the block behind the last measure: counts, settings, the end of a document."""

_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?"
_PAIR = (
    rf"(?i)['\"]?(?P<name>[^\W\d][\w @%/()\[\].+-]{{0,60}}?)['\"]?\s{{0,30}}(?:[:=|]{{1,2}}|(?<=['\"]),|(?=tensor\())"
    rf"\s{{0,20}}(?:tensor\()?['\"\[]?"
    rf"(?P<value>{_NUMBER}|nan\b|None\b)"
)
_ROW = rf"^\s{{0,20}}\|?\s{{0,4}}(?P<name>[^\W\d][\w @%/()-]{{0,40}}?)(?:[\s|]{{1,20}}{_NUMBER}%?){{3,12}}[\s|]*$"
_CELLS = r"^\s{0,8}\|(?:[^|]{0,80}\|){2,40}\s*$"
_NUMBERS = r"(?<![@\d])(?<!Rank-)(?!(?<=Rank)-)[\d.,+-]+"
_AT_STEP = r"(?i)\bat (?:step|epoch|iter(?:ation)?|round) \d{1,12}\b"
"""When it was measured: `Test MRR at step 199999: 0.79`."""

FRACTION = r"\d\.\d"
_LISTED = r"(?i)\b(?!INFO\b|epoch|step|iter)[A-Za-z][\w ]{2,40}:[\s\d,]*$"
"""Which ones: `Timeout cases: 49 299`."""

_RULE = r"^[\W_]*$"
_TITLE = r"^\W{0,8}[^\W\d][^\d]{0,80}(?::\W{0,4}|\)|\]|(?<=[A-Z]{3}))\s*$"
_ENDS = r"(?i)\b(?:summary|final|overall|conclusion)\b"
_OF_ALL = r"(?i)\b(?:summary|final|overall|average|avg|mean|median|p\d{2}|total|macro|weighted|test)\b|平均|总|最终"
_MEASURE = (
    r"(?i)(?<![a-z])(?:acc(?:uracy)?|precision|recall|f1\w*|f-?score|fscore|bleu\w*|rouge\w*|meteor|cider|chrf|ter|m?ap(?:\d{2})?|"
    r"m?iou|dice|hausdorff|auc|auroc|ap\d{0,2}|ndcg\w*|mrr|hits?|recall@\w{1,4}|r@\w{1,4}|rank-\d{1,2}|top\d|loss|rmse|mae|mse|mape|"
    r"smape\w*|r2|psnr|ssim|lpips|fid|wer|cer|perplexity|ppl|score|reward|return|success\w*|throughput|latency|bandwidth|"
    r"busbw|algbw|speed|cost|"
    r"gflops|tflops|flops|fps|samples|images|tokens|tok|iter time|step time|elapsed|runtime|duration|"
    r"time|memory|mem|vram|error|metrics?|distance|correlation|spearman|pearson|kappa|mcc|entropy|crps|nll|ece)(?![a-z])"
)
_SETTING = (
    r"(?i)(?<![a-z])(?:lr|learning|(?:drop|decay|sampl\w{1,3}|mask|frame|bit|base)[ _]?rate|(?<!\w[ _])rate|"
    r"dropout|decay|eps(?:ilon)?|warm-?up|seed|beta\d?|momentum|alpha|gamma|lambda|"
    r"temperature|top_?[pk]|patience|epochs?|steps?|iter(?:ation)?s?|layers?|heads?|hidden|dim|vocab|path|port|"
    r"version|params?|parameters|weight|fraction|eta|remaining|limit|max_\w{1,20}|min_delta|tol(?:erance)?|cpu|threads?|"
    r"timeout|walltime)(?![a-z])|_thresh|allow_"
)
_FOR_ONE = r"(?i)\btime for (?!(?:all|the|this|everything|training)\b)"
"""What one of several things took."""

_GOES_ON = (
    r"(?i)%\||\b(?:epoch|step|iter(?:ation)?|batch|episode)\b['\"]?[ :=/\[#]{1,3}\d|\b(?:eta|time_left|learning_rate|"
    r"lr|grad_norm|running|waiting|pending|queued?|prog)\b['\"]?\s{0,3}[:=]|\bepoch\b"
)
"""Of a line that is written again and again while the work goes on."""


_EVENT = r"['\"]event_type['\"]\s?:"
"""A record of what happened when: its time is no measure."""


class Results(NamedTuple):
    """`at`: the place of the line that the block ends with; `closes`: its title says that it is the last message."""

    at: int
    closes: bool


def last_results(lines: Sequence[str], earlier: Sequence[str], trains: Callable[[], bool]) -> Results | None:
    """The block of measures that the log ends with; None where it ends otherwise, or where one like it came before.

    `lines`: without what their loggers put in front, and "" for those of libraries.
    `earlier`: lines from the beginning of the log, none of the last.  `trains`: it trains, and does not say for how
    long: then measures may be those of an evaluation in the middle.
    Each of its lines gives at least one measure by its name, or stands in a table or a document of them.
    """
    last, measures, title = _last_block(lines)
    if last < 0 or not measures:
        return None
    shown = [lines[place] for place in measures]
    is_summed = any(compiled(_OF_ALL).search(text) for text in shown) or title
    has_several = sum(num_measures(text) for text in shown) >= _FEW
    if has_several + is_summed + (not trains()) < _FEW:  # two of three speak for the end
        return None
    if not any(compiled(_MEASURE).search(text) is not None for text in lines[measures[-1] : last + 1]):
        return None  # a table of something else
    if len(shown) > _FEW and not is_summed and len({_measure_of(text) for text in shown} - {""}) == 1:
        return None  # one measure of each sample
    names = [_name(text) for text in shown]
    is_document = any(text.rstrip() in {"}", "]"} for text in lines[last:]) or all(map(compiled(_CELLS).match, shown))
    if (len(set(names)) < len(names) and not is_document) or measures[0] < last - _MAX_TAIL:
        return None
    before = {_name(text) for text in (*earlier, *lines[: _table_from(lines, measures[-1])])}
    if names[0] in before:
        return None
    return Results(last, title or any(compiled(_ENDS).search(text) for text in shown))


def _table_from(lines: Sequence[str], first: int) -> int:
    """Where the tables begin of which the measure in `lines[first]` is a row: one may repeat rows of another."""
    if compiled(_CELLS).match(lines[first]) is None:
        return first
    at = first
    while at > 0 and (
        not lines[at - 1].strip() or compiled(_CELLS).match(lines[at - 1]) or compiled(_RULE).match(lines[at - 1])
    ):
        at -= 1
    return at


def _last_block(lines: Sequence[str]) -> tuple[int, list[int], bool]:
    """The place of its last line (-1 without one), those of its measures from behind, whether a title closes it."""
    last = -1
    measures: list[int] = []
    times = Counter(map(_name, lines))
    title = False
    for at in range(len(lines) - 1, max(-1, len(lines) - 1 - _MAX_LINES), -1):
        text = lines[at]
        if not text.strip() or compiled(_RULE).match(text):
            continue
        if compiled(_TITLE).match(text) is not None and measures:
            title = title or compiled(_ENDS).search(text) is not None
            continue
        if sum(number for name, number in times.items() if name.startswith(_name(text))) >= _MANY:
            break  # of the loop in front of the results, also where its last line was cut
        if not measures and len(lines) - at <= _MAX_TAIL and compiled(_LISTED).search(text) is not None:
            last = max(last, at)
            continue
        if (
            compiled(_EVENT).search(text) is not None
            or compiled(_GOES_ON).search(text) is not None
            or not (_is_of_results(text) or (measures and compiled(_PAIR).search(text)))
        ):
            break
        last = max(last, at)
        if num_measures(text):
            measures.append(at)
    return last, measures, title


def num_measures(text: str) -> int:
    """How many measures a line gives."""
    text = compiled(_AT_STEP).sub("", text)
    pairs = [
        match
        for match in compiled(_PAIR).finditer(text)
        if compiled(_MEASURE).search(match["name"]) is not None
        and compiled(_SETTING).search(match["name"]) is None
        and compiled(_FOR_ONE).search(match["name"]) is None
    ]
    if any(compiled(FRACTION).search(match["value"]) is not None for match in pairs):
        return len(pairs)
    row = compiled(_ROW).match(text)
    is_row = row is not None and compiled(FRACTION).search(text) is not None
    return (
        _FEW
        if is_row or (compiled(_CELLS).match(text) is not None and compiled(FRACTION).search(text) is not None)
        else 0
    )


def _measure_of(text: str) -> str:
    """The only measure that a line gives, by how its name ends; "" where it gives several, or a row."""
    names = [
        match["name"]
        for match in compiled(_PAIR).finditer(text)
        if compiled(_MEASURE).search(match["name"]) is not None
    ]
    return names[0].split()[-1].strip("(").lower() if len(names) == 1 else ""


def _is_of_results(text: str) -> bool:
    """Whether a line may stand among results: a measure, a part of a document or a table, a count."""
    if num_measures(text) or compiled(_CELLS).match(text) is not None:
        return True
    pair = compiled(_PAIR).search(text)
    return (
        pair is not None
        and pair.start() < 40
        and (compiled(_SETTING).search(pair["name"]) is None or text.lstrip()[0] in "'\"")
    )


def _name(text: str) -> str:
    """What a line is called, without its numbers; hits@1 and hits@3 are two measures, so are Rank-1 and Rank-5."""
    return re.sub(r"\s+", " ", compiled(_NUMBERS).sub("0", text)).strip()[:60]
