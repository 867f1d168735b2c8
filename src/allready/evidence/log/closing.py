"""How a log ends: its program, launcher or scheduler says that it is done, its progress is full, or it stops midway."""

import functools
import itertools
import re
from collections.abc import Iterator

from msgspec.structs import replace

from allready.evidence.lines.operations import tag_of, writer
from allready.evidence.log.announced import steps
from allready.evidence.log.apart import Course, left_behind
from allready.evidence.log.context import LogContext
from allready.evidence.log.eta import counts_down
from allready.evidence.log.last_error import last_error
from allready.evidence.log.line import decode
from allready.evidence.log.members import all_ended
from allready.evidence.log.progress import Progress, counts, progress
from allready.evidence.log.reopened import openings
from allready.evidence.log.trouble import is_bad, is_of_a_library, is_of_some, is_overcome
from allready.model import Closing, ClosingKind
from allready.signatures import of_line

_MAX_LINES = 400
_MAX_LINE_BYTES, _MAX_BAR_BYTES = 1_000, 4_000
_MAX_HEAD_BYTES = 65_536
_MIN_COUNTS = 8
"""More steps than ranks still count while they wait for one that died."""

_MAX_BEHIND = 120
"""Ordinary lines behind the words that differ in more than numbers: results, paths, summaries of trackers."""

_MAX_AGAIN, _MAX_AGAIN_SHAPES = 24, 2
"""Lines behind the words like those before them: other ranks finish their last step; more is another run."""

_MAX_BEHIND_TESTS = 4
"""What a shell adds: the time, an exit code."""

_SUBJECT = (
    r"(?:pre-?training|fine-?tun(?:e|ing)|training|train(?:er)?|fit(?:ting)?|run|jobs?|benchmark(?:s|ing)?|experiments?|"
    r"trials?|tests|programs?|scripts?|pipelines?|workflows?|workloads?|applications?|execution|simulation|processes|"
    r"solving|solver|optimi[sz](?:ation|ing)|learning|"
    r"all (?:ranks?|workers?|tasks?|nodes?|epochs|steps|iterations)|everything)"
)
_CERTAIN = re.compile(
    rf"\b{_SUBJECT}\b[\w\s:.,'\"`#/()-]{{0,40}}?\b(?:finished|done|completed?|succeeded|successful|ended)\b|"
    r"\b(?:finish(?:ed|ing)|done|completed|end of|end|ending|exiting|concluded)\b"
    rf"[ \w]{{0,12}}?(?:with |the |all |of |from )*{_SUBJECT}\b|"
    r"\b(?:finished|completed|terminated|ended|ran|run|executed|exit(?:ed|s|ing)?)\s+(?:successfully|normally|cleanly|gracefully)\b|"
    r"\bsuccessfully\s+(?:finished|completed|terminated|ended|exited|trained)\b|"
    r"\b(?:exit(?:ed)?|return(?:ed)?)(?:[ _-]?(?:with|status|code|value)){1,3}\s*[:=]?\s*\(?0\b(?!\.\d)|"
    r"(?:\b|_)(?:job ?state|state|status|result)(?:\b|__)['\"]?\s*[:=]\s*['\"]?(?:success(?:ful)?|succeeded|completed?|"
    r"finished|passed)\b|"
    r"\breached (?:the )?(?:max(?:imum)?|final|last|target|end)\b|"
    r"(?:->|=>|→) ?['\"]?(?:finished|succeeded|completed|success)\b|训练(?:已)?(?:完成|结束)",
    re.IGNORECASE,
)
"""Words of an end of everything, unless a part is named."""

_WHOLE = re.compile(
    r"\bmax(?:imum)?[_ ](?:number of )?(?:epochs?|steps?|iter(?:ation)?s?|time|tokens)\b[^|]{0,24}\breached|"
    r"\bexiting program (?:at|after)\b|\bfinish(?:ed|ing) training (?:at|after)\b|"
    r"\bworker group (?:successfully )?finished\b|\bfinished server process\b|"
    r"\bfinished mdrun\b|"
    r"^# Ended \(code 0\)|"
    r"HPCG result is VALID|\bEnd of Tests\b|Overall training speed",
    re.IGNORECASE,
)
"""Words of an end of everything that may name a step, a worker or a process."""

_SENTENCE = re.compile(r"(?<=[.!;])\s+(?=[A-Z\d])")

_RECORD = re.compile(r"\btrain_(?:runtime|samples_per_second)\b['\"]?\s{0,40}[:=]\s{0,4}\d|\*{3,} train metrics")
"""What a trainer prints once, behind its last step, whatever else the line counts."""

_LIKELY = re.compile(
    r"\btotal\b[\w ]{0,20}\b(?:time|runtime|duration|elapsed)\b|"
    r"\btotal\b[\w ]{1,40}[:=]\s{0,4}\d[\d.]{0,20} ?(?:s|secs?|seconds|min|mins|minutes|hours|hrs?|h)\b|"
    r"\b(?:train(?:ing)?|elapsed|run(?:ning)?|execution|wall(?:[- ]?clock)?)[ _]?(?:time|runtime|duration)\b\s*"
    r"(?:is|was)?\s*(?:[:=(]|\d)|"
    r"\b(?:finished|completed?|done|took)\b.{0,20}\b\d[\d.:]*\s*(?:s|sec|seconds?|m|min|minutes?|h|hours?)\b|"
    r"\bresults? (?:saved|written)\b|\brun (?:summary|stats|statistics):|"
    r"wandb: Synced \d|"
    r"\bbenchmark duration \(s\):?\s{1,40}\d|"
    r"\bfound no errors\b|\bno errors? (?:was |were )?(?:found|detected|occurred)\b|"
    r"\beval(?:uation)? (?:is |was )?(?:done|finished|completed?)\b|\bpeak memory\b|"
    r"\bprocess group destroyed\b|^\W*good-?bye\b.{0,40}$|\bran for:?\s{1,4}\d|"
    r"\ball\b[^.:]{0,60}\b(?:exported|saved|written|generated|converted|uploaded|copied|processed)\b|"
    r"^\W*(?:\d[\d:.,/T-]{3,28}\W{1,3}){0,2}(?:all )?(?:done|finished|completed?|success(?:ful(?:ly)?)?|bye|passed|"
    r"the end|end|fin)[\s.!]{0,80}\W{0,80}$",
    re.IGNORECASE,
)
"""Words that programs print when they end, and some of them more often."""


@functools.cache
def _of_all() -> re.Pattern[str]:
    """The best, the last and the sum of all: such words may name an epoch or a checkpoint."""
    return re.compile(
        r"\bbest (?:\w{1,20} ){0,3}(?:metric|acc\w*|score|result|loss|f1|m?ap|ar|bleu|perplexity|ppl|checkpoint|model|"
        r"psnr|ssim|fid|m?iou|dice|au?roc|auc|[wc]er|rmse|mae|mse|h-?mean|recall|precision|reward|return)\b\W{0,4}"
        r"(?:is |was |at (?:epoch |step |iter(?:ation)? )?)?\W{0,4}\d|\bsav(?:ed|ing) (?:the )?final\b|"
        r"\bsav(?:ed?|ing)\b.{0,200}?[/_-]final(?:\.\w{1,12}|/)?['\"]?[\s.!]*$|"
        r"\bfinal_\w{1,40}\b\W{1,4}\d|"
        r"\bfinal[ _](?:\w{1,20} )?(?:model|checkpoint|weights|results?|metrics?|accuracy|loss|score)\b|"
        r"\b(?:total|average|avg|mean) (?:images|samples|tokens|examples|sequences|throughput|bandwidth)"
        r"(?: ?/ ?s(?:ec(?:ond)?)?| per second)?\b\W{0,4}\d",
        re.IGNORECASE,
    )


@functools.cache
def _early() -> re.Pattern[str]:
    """The event, not the setting or the counter."""
    return re.compile(
        r"\bearly[ _-]?stop(?:ping|ped)?\b(?!['\"]?\s{0,3}=|['\"]?\s{0,3}:\s{0,3}(?:true|false|none|\d|[{\['\"])|"
        r"[ _-]?(?:counter|patience|callback|rounds?|criteri\w*|monitor\w*|enabled|disabled|is |with |will |in \d|if |"
        r"not |round|config\w*|set ))",
        re.IGNORECASE,
    )


@functools.cache
def _of_the_best() -> re.Pattern[str]:
    """It names the epoch or step of something, which is not where the program stands."""
    return re.compile(
        r"\b(?:best|highest|lowest|early[ _-]?stop(?:ping|ped)?)\b.{0,80}?\b(?:at|in|from|on|of|is|was|:|=)\W{0,4}"
        r"(?:epoch|step|iter\w*|round)\b|\bbest[ _-](?:epoch|step|iter\w*|round)\b",
        re.IGNORECASE,
    )


@functools.cache
def _is_final() -> re.Pattern[str]:
    """A result that is a share of all: `Final: 59/1319`."""
    return re.compile(
        r"^\W{0,8}(?:final|overall|result|score|accuracy)\b[\w ]{0,20}:\s{0,4}\d{1,9}\s?/\s?\d", re.IGNORECASE
    )


@functools.cache
def _of_the_run() -> re.Pattern[str]:
    """What is printed once for all epochs: the time of the run, the table of a test."""
    return re.compile(
        r"\btotal[ _-](?:train\w*|run\w*|elapsed|wall\w*|execution|job)\b"
        r"(?![\w .:=()-]{0,40}?\b(?:flops?|tokens?|param\w*|steps?|iter\w*|updates?|epochs?|batch\w*|samples?|images?|"
        r"examples?|size|files?|gpus?|ranks?|devices?|estimat\w*)\b)[\w .:=()-]{0,40}?\d|"
        r"\b(?:test|validate) metric\b.{0,80}?\bdataloader\b|\bdataloader:\d{1,3} (?:test|validate) results\b",
        re.IGNORECASE,
    )


@functools.cache
def _path() -> re.Pattern[str]:
    """Names of folders are no words of a sentence."""
    return re.compile(
        r"(?<![\w/])(?:[~.]{0,2}/[^\s,;'\"]{1,400}|\w[\w.-]{0,100}(?:/[\w.-]{1,100}){2,20}/?|[A-Z]:\\\S{1,400})"
    )


@functools.cache
def _sum() -> re.Pattern[str]:
    """Behind the last count such a word ends the run also where the count is not full: a limit of steps came first."""
    return re.compile(r"\b(?:final|total|average|avg|mean)\b|\bfinal_", re.IGNORECASE)


@functools.cache
def _result() -> re.Pattern[str]:
    """What an evaluation found, where it is the last line and stands once."""
    return re.compile(
        r"(?<![a-z])(?:f1|fb1|exact[_ ]match|bleu|rouge-?\w?|m?ap(?:50)?|miou|wer|perplexity|ppl|accuracy|"
        r"precision|recall|auc|acc@1|top[-_]?1)\b['\"]?(?:\s{0,2}\([\w -]{1,24}\))?"
        r"\s{0,24}[:=]?\s{0,4}\[?\d[\d.]{0,20}%?",
        re.IGNORECASE,
    )


@functools.cache
def _evaluated() -> re.Pattern[str]:
    """An evaluation that is over, behind a training that is, or in a program that does nothing else."""
    return re.compile(
        r"\b(?:finished|completed|done with)\b(?: the)? (?:evaluat\w+|inference|predict\w+|generat\w+|test\w*|"
        r"benchmark\w*|scor\w+)\b|\btests? (?:is |are |was |were )?(?:finished|completed?|done)\b",
        re.IGNORECASE,
    )


@functools.cache
def _tests() -> re.Pattern[str]:
    """What pytest ends with; a script may test its machine so, before the run."""
    return re.compile(r"^=+ (?:\d{1,9} \w{1,20}, ){0,6}\d{1,9} passed\b[^=]{0,80} in [\d.:]{1,12}s")


@functools.cache
def _done() -> re.Pattern[str]:
    """Any work that is done, other than a preparation, where it is the last line and no count is open."""
    return re.compile(
        r"^(?!.*\b(?:install|import|configur|start|launch|creat|allocat|register|authenticat|log(?:ged|ging) in|mount|"
        r"clon|pull|copi|sync|activat)).*\b(?:done|finished|completed?|succeeded|success(?:ful(?:ly)?)?|all good)\b"
        r"(?!['\"]?\s{0,3}[=:]|[ _-](?:in \d{1,3}%|rate|ratio|with errors?)|\s{0,4}\d{1,7}\s*$)|"
        r"^(?!.*\b(?:checkpoint|ckpt|model|weight|config|cache|vocab|token|arg|param|setting|state|log)).*"
        r"\b(?:saved|written|exported|stored) (?:in|to|as|at|into)\b",
        re.IGNORECASE,
    )


@functools.cache
def _of_a_part() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:epoch|step|iter(?:ation)?|batch|eval\w*|valid\w*|load\w*|init\w*|setup|set up|warm\w*|compil\w*|"
        r"checkpoint\w*|data\w*|token\w*|pre-?process\w*|prepar\w*|start-?up|hand-?shake|prolog\w*|epilog\w*|preflight|"
        r"build\w*|built|phase|stage|fold|chunk|shard\w*|part|cach\w*|download\w*|request\w*|forward|backward|rendezvous|"
        r"barrier|connect\w*|process \d+|rank \d+|task \d+|worker \d+)\b",
        re.IGNORECASE,
    )


@functools.cache
def _negated() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:not|never|no|fail\w*|abort\w*|cancel\w*|killed|until|unless|when|before|if|will|unable|without|waiting|"
        r"unsuccessful\w*|expected|should|estimat\w*|eta|remaining|interrupted|prematurely)\b|n't\b",
        re.IGNORECASE,
    )


@functools.cache
def _harmless() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:0|no|zero|without) (?:\w+ )?(?:errors?|failures?|failed)\b|\bno (?:further |more )?improvements?\b|"
        r"\b(?:not|never|n't) improv\w+",
        re.IGNORECASE,
    )


@functools.cache
def _begins() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:start(?:ing|ed)?|begin(?:ning)?|running|loading|evaluating|launching|resum(?:e|ing)|initiali[sz]ing|"
        r"(?<!done )waiting|"
        r"building|creating|preparing|setting up|constructing|(?:re)?trying|retries|restarting|"
        r"epoch_start|eval_start|block_start)\b",
        re.IGNORECASE,
    )


@functools.cache
def _waits() -> re.Pattern[str]:
    return re.compile(r"\b(?:(?<!done )waiting|retrying|restarting|resuming)\b", re.IGNORECASE)


_STEP = re.compile(r"\b(?:step|iter|iteration|epoch)\b['\"]?[ :=/\[#]{1,3}\d{1,12}\b(?!\.\d)", re.IGNORECASE)


@functools.cache
def _summary() -> re.Pattern[str]:
    return re.compile(
        r"\s{0,80}(?:wandb: |\*{3,}|best\b|final\b|last\b)|.{0,200}?\b(?:sav(?:e|ed|ing)|checkpoint\w*)\b",
        re.IGNORECASE,
    )


_DIGITS = re.compile(r"\d+")
_OF_WHAT_WAS = re.compile(r"['\"]event_type['\"]\s{0,4}:\s{0,4}['\"](?:POINT_IN_TIME|INTERVAL_END)['\"]")
"""A record of what has been: an interval's end, a measurement.  It names a step, and no step follows from it."""

_OF_A_RECORD = re.compile(r"\bkey['\"]?\s{0,4}[:=]\s{0,4}['\"]?run_stop\b|:::MLP\w{0,20}.{0,300}\brun_stop\b")

_WORD = re.compile(r"(?<![A-Za-z\d])(?!INFO\b)[A-Za-z\d]|[^\x00-\x7f─═━│]")
"""Of a line that is more than a rule below a table, also one that was logged."""

_INFO = re.compile(r"\s{0,80}I\d{4} ")


@functools.cache
def _member_done() -> re.Pattern[str]:
    """A member's last word: a count in it is the one that it reached."""
    return re.compile(
        r"\b(?:rank|worker|process|task)[ _]?\d{1,7}\b[\s:,]{1,4}(?:is |has |was )?(?:done|finished|completed)\b"
        r"(?!\W{0,3}(?:[a-z]{1,12} ){0,3}(?:\w{1,12}_)?(?:steps?|epochs?|iter\w*|batch\w*|rounds?|updates?)\b)",
        re.IGNORECASE,
    )


def find(log: LogContext) -> Closing | None:
    """How this log ends; None where its end is NCCL's own lines, or it has none."""
    ending = _Ending(log)
    return ending.closing()


class _Ending:
    """The last lines of a log, from behind."""

    def __init__(self, log: LogContext) -> None:
        self._log = log
        self.lines = list(_last_lines(log))
        self.readings = [
            one
            for at, text in enumerate(self.lines)
            if text and not any(words().search(text) for words in (_member_done, _of_the_best, _is_final))
            for one in counts(at, text)
        ]
        self._head = ""

    @functools.cached_property
    def _shapes(self) -> list[str]:
        return [_shape(text) for text in self.lines]

    @functools.cached_property
    def _repeating(self) -> set[int]:
        """The lines that say again where a count was, as a summary does."""
        last: dict[str, tuple[int, int | None]] = {}
        new: set[int] = set()
        for one in self.readings:
            if last.get(one.label) != (one.done, one.total):
                last[one.label] = one.done, one.total
                new.add(one.at)
        return {one.at for one in self.readings} - new

    @functools.cached_property
    def _counting(self) -> set[int]:
        """The lines that count the program's own steps, or others that have not come to their end."""
        counts = {one.at for one in self.readings if not one.is_minor or one.total is None or one.done < one.total}
        return counts - self._repeating

    @property
    def head(self) -> str:
        if not self._head:
            self._head = self._log.scanned.head[:_MAX_HEAD_BYTES].decode("utf-8", "replace").replace("\r", "\n")
        return self._head

    @functools.cached_property
    def _last_counts_line(self) -> int | None:
        """Where a count stood from which on it went up by `_MIN_COUNTS` at least."""
        found: list[int] = []
        for last in {one.label: one for one in self.readings}.values():
            course = [one for one in self.readings if one.label == last.label and one.total == last.total]
            begins = itertools.takewhile(lambda one: one.done <= last.done, reversed(course))  # noqa: B023 - used at once
            found += [one.at for one in begins if one.done <= last.done - _MIN_COUNTS][:1]
        return self.number(max(found)) if found else None

    @functools.cached_property
    def _openings(self) -> tuple[int, ...]:
        first = self._log.scanned.head[:_MAX_HEAD_BYTES].decode("utf-8", "replace").split("\n")
        return openings(first[:-1], self.lines, self.number(0))

    def number(self, at: int) -> int:
        """The number of the line at this place."""
        return self._log.scanned.num_lines - len(self.lines) + 1 + at

    def closing(self) -> Closing | None:
        if not any(self.lines):
            return None
        state = self._progress()
        words = self._words(state)
        at = state.at if state is not None else None
        behind = left_behind(self.readings, self.lines, self.number(0), self._log.scanned.marks)
        if behind is not None and (words is not None or (state is not None and state.is_full)):
            return self._stopped(behind)
        if words is not None and not self._is_denied(state, words[0]):
            place, is_certain = words
            return self._made(ClosingKind.WORDS, place, at, state, is_certain=is_certain)
        last = next(index for index in range(len(self.lines) - 1, -1, -1) if self.lines[index])
        if state is not None and state.is_full and not self._is_contradicted(state.at):
            return self._made(ClosingKind.PROGRESS, state.at, at, state)
        error = last_error(self.lines, lambda text: _is_noise(text) or _is_known(text))
        if error is not None:
            made = self._made(ClosingKind.OPEN, error[0], at, state)
            return replace(made, error=error[1])
        if state is not None and state.is_midway:
            return self._made(ClosingKind.MIDWAY, state.at, at, state)
        return self._made(ClosingKind.OPEN, last, at, None)

    def _progress(self) -> Progress | None:
        """What the counts say; those without a total where no other count tells how far the program came."""
        state = progress(self.readings, self.lines, self.head) if self.readings else None
        if state is not None and (state.is_full or state.is_midway):
            return state
        at = counts_down(self.lines, self.head, self.readings)
        if at is not None and state is not None and state.total is None:
            return Progress(state.at, state.done, None, is_full=True, is_midway=False)
        found = steps(self.lines, self.head)
        if found is None or (state is not None and state.at > found.at and state.total is not None):
            return state
        return Progress(found.at, found.done, found.total, is_full=found.is_full, is_midway=not found.is_full)

    def _made(
        self, kind: ClosingKind, place: int, at: int | None, state: Progress | None, *, is_certain: bool = False
    ) -> Closing:
        line = self._log.another_line(self.number(place), self.lines[place].encode())
        marks = self._log.scanned.iterations
        first = self.number(self.readings[0].at) if self.readings else None
        return Closing(
            origin=self._log.origin(line),
            kind=kind,
            text=self.lines[place].strip()[:300],
            done=state.done if state is not None else None,
            total=state.total if state is not None else None,
            first_progress_line=marks.first_line or first,
            progress_line=marks.last_line if at is None else self.number(at),
            restart_line=marks.restart_line,
            last_counts_line=self._last_counts_line,
            opening_lines=self._openings,
            is_certain=is_certain,
        )

    def _stopped(self, course: Course) -> Closing:
        """One of several writers stopped, whatever the others say."""
        place = course.line - self.number(0)
        text = self.lines[place] if place >= 0 else ""
        return Closing(
            origin=self._log.origin(self._log.another_line(course.line, text.encode())),
            kind=ClosingKind.MIDWAY,
            text=text.strip()[:300],
            done=course.done,
            total=course.total,
            first_progress_line=self._log.scanned.iterations.first_line,
            progress_line=course.line,
            restart_line=self._log.scanned.iterations.restart_line,
            opening_lines=self._openings,
        )

    def _words(self, state: Progress | None) -> tuple[int, bool] | None:
        """The line whose words close the log, and whether they mean the whole run."""
        behind: set[str] = set()
        only_records = False
        last_exit = all_ended(self.lines, self.head)
        for at in range(len(self.lines) - 1, -1, -1):
            text = self.lines[at]
            if not text.strip() or _is_noise(text):
                continue
            if _is_end_of_run(text):
                return (at, True) if _means_all(text) else None
            if at == last_exit:
                return at, True
            if _OF_WHAT_WAS.search(text) is not None:
                only_records = only_records or _STEP.search(text) is not None
            else:
                if state is not None and state.is_midway and at in self._counting:
                    return None
                said = self._said(at, state)
                if said is not None and _waits().search(text) and not any(map(str.strip, self.lines[at + 1 :])):
                    return None
                if said is not None:
                    return None if only_records or self._goes_on_behind(at, is_certain=said) else (at, said)
                if (not behind and _begins().search(text)) or (_goes_on(text) and at not in self._repeating):
                    return None
            behind.add(self._shapes[at])
            if len(behind) > _MAX_BEHIND:
                return None
        return None

    def _goes_on_behind(self, at: int, *, is_certain: bool) -> bool:
        """Whether the work that was done before these words begins again behind them; or, where these are not certain,
        is done again."""
        before = set(self._shapes[:at]) - {""}
        again = [shape for shape in self._shapes[at + 1 :] if shape in before]
        is_reopened = any(number > self.number(at) for number in self._openings)
        return is_reopened or (not is_certain and len(again) > _MAX_AGAIN and len(set(again)) > _MAX_AGAIN_SHAPES)

    def _said(self, at: int, state: Progress | None) -> bool | None:
        """Whether the words of this line mean the whole run for certain; None where they close nothing."""
        text = self.lines[at]
        if _means_all(text):
            return True
        is_of_all = _of_all().search(text) is not None and not _denies(text)
        is_last = not any(_WORD.search(line) and not _is_noise(line) for line in self.lines[at + 1 :])
        is_result = (
            is_last
            and _result().search(text) is not None
            and not _denies(text)
            and self._shapes[at] not in self._shapes[:at]
            and (state is None or (state.total is not None and state.done >= state.total))
        )
        is_tests = _tests().search(text) is not None and len(set(self._shapes[at + 1 :]) - {""}) <= _MAX_BEHIND_TESTS
        is_done = is_last and not self._counting and _done().search(text) is not None and not _is_other(text)
        is_likely = _LIKELY.search(text) is not None and not _is_other(text)
        is_evaluated = (
            (state is None or state.is_full)
            and _evaluated().search(text) is not None
            and not _denies(text)
            and len(set(self._shapes[at + 1 :]) - {""}) <= _MAX_BEHIND_TESTS
        )
        is_early = _early().search(text) is not None and not _denies(text)
        is_of_run = _of_the_run().search(text) is not None and not _denies(text)
        if is_of_all or is_result or is_likely or is_early or is_of_run or is_tests or is_done or is_evaluated:
            is_midway = state is not None and state.is_midway
            is_behind = state is not None and (at > state.at or (is_early and at == state.at))
            is_sum = (is_of_all and _sum().search(text) is not None) or is_of_run or is_early
            if ((is_behind and is_sum) or not is_midway) and self._stands_once(at):
                return False
        return None

    def _is_denied(self, state: Progress | None, place: int) -> bool:
        """Whether something went wrong behind the last progress, before or after the words: a script says that it is
        done whatever came before.  What a line itself calls overcome counts only where nothing follows."""
        first = -1 if state is None else state.at
        steps = [at for at, text in enumerate(self.lines[: place + 1]) if _STEP.search(text)]
        first = max([first, *steps[-1:]])
        bad = [at for at, text in enumerate(self.lines) if is_bad(text) and (at >= place or not is_overcome(text))]
        begun = [number - self.number(0) for number in self._openings]
        if bad and sum(at < bad[0] for at in begun) <= 1:  # runs one after the other, not ranks side by side
            first = max([first, *(at for at in begun if at <= place)])
        return any(at > first or at == place for at in bad)

    def _stands_once(self, at: int) -> bool:
        """Whether its writer wrote no line like it elsewhere: a time that is printed after each epoch ends nothing."""
        shape, who = self._shapes[at], _writer(self.lines[at])
        places = [
            index
            for index, other in enumerate(self._shapes)
            if other == shape and (index == at or _writer(self.lines[index]) == who)
        ]
        between = set(self._shapes[places[0] : places[-1]])
        return not between - {"", shape}

    def _is_contradicted(self, at: int) -> bool:
        """Whether something failed in this line or behind it, or begins there and has shown nothing yet."""
        behind = [text for text in self.lines[at:] if text.strip()]
        own = [text for text in behind if not is_of_a_library(text)]
        is_over = len(own) > 1 and not is_bad(own[-1])  # the program went on, as it said
        wrong = any(is_bad(text) and not (is_over and is_overcome(text)) for text in behind)
        return wrong or bool(own and _begins().search(own[-1]))


def _writer(text: str) -> str | None:
    return tag_of(writer(text.encode()))


def _shape(text: str) -> str:
    return _DIGITS.sub("0", text)[:60]


def _is_noise(text: str) -> bool:
    """A library's line, but not a program's own closing words that it logs like one."""
    if not is_of_a_library(text) or _early().search(text) is not None:
        return False
    return _INFO.match(text) is None or not any(words.search(text) for words in (_CERTAIN, _WHOLE, _LIKELY, _of_all()))


def _is_known(text: str) -> bool:
    """Whether a signature says what a line means: then its finding is the one to give."""
    return any(signature.code is not None for signature, _ in of_line(text))


def _goes_on(text: str) -> bool:
    """Whether a line counts a step, other than in a summary of what was."""
    if _STEP.search(text) is None:
        return False
    return _summary().match(text) is None and not any(words().search(text) for words in (_member_done, _of_the_best))


def _is_end_of_run(text: str) -> bool:
    """A benchmark's record that its run is over, well or not."""
    return "run_stop" in text and _OF_A_RECORD.search(text) is not None


def _means_all(text: str) -> bool:
    if _is_end_of_run(text):
        return re.search(r"\bsuccess['\"]?\s{0,4}(?:[,}\])]|$)", text) is not None
    if _RECORD.search(text) is not None:
        return True
    return any(
        (_WHOLE.search(part) and not _denies(part)) or (_CERTAIN.search(part) and not _is_other(part))
        for part in _SENTENCE.split(text)
    )


def _is_other(text: str) -> bool:
    """Whether the words are about a part of the run, or deny the end."""
    return _of_a_part().search(_with_results().sub("", _plain(text))) is not None or _denies(text)


def _plain(text: str) -> str:
    return _harmless().sub("", _path().sub("", text) if "/" in text or "\\" in text else text)


@functools.cache
def _with_results() -> re.Pattern[str]:
    """What was reached stands behind the words of the end."""
    return re.compile(r"\bwith (?:a |an |the )?(?:best|final|total|average|mean|test|validation)\b.*$", re.IGNORECASE)


def _denies(text: str) -> bool:
    plain = _plain(text)
    return _negated().search(plain) is not None or is_of_some(plain)


def _last_lines(log: LogContext) -> Iterator[str]:
    """The text of each of the last lines, "" for those of NCCL."""
    raw = log.scanned.tail.rstrip(b"\n").split(b"\n")
    if len(log.scanned.tail) < log.scanned.num_bytes:  # the first one is not whole; of a bar the last states are
        raw = [raw[0].partition(b"\r")[2], *raw[1:]] if b"\r" in raw[0] else raw[1:]
    for line in raw[-_MAX_LINES:]:
        if b" NCCL " in line[:400]:
            yield ""
        else:
            yield decode(line[-_MAX_BAR_BYTES:] if b"\r" in line else line[:_MAX_LINE_BYTES])
