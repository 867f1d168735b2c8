"""How a log ends: its program, launcher or scheduler says that it is done, its progress is full, or it stops midway."""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

from msgspec.structs import replace

from allready.evidence.lines.operations import tag_of, writer
from allready.evidence.log import closing_words as wording
from allready.evidence.log import last_line, numbered, unnamed
from allready.evidence.log.announced import counted, steps
from allready.evidence.log.apart import Course, left_behind
from allready.evidence.log.context import LogContext
from allready.evidence.log.eta import counts_down
from allready.evidence.log.fronts import without_front
from allready.evidence.log.last_error import last_error
from allready.evidence.log.later_run import later_run
from allready.evidence.log.left_loop import closing_line, form, plain, training_lines, trains
from allready.evidence.log.line import decode, text_of
from allready.evidence.log.members import all_ended
from allready.evidence.log.parts import is_of_a_list, is_of_a_part
from allready.evidence.log.progress import CountForm, Label, LastProgress, announces_epochs, counts, progress
from allready.evidence.log.reopened import openings
from allready.evidence.log.results import Results, last_results
from allready.evidence.log.signs import WeakSign, are_enough, kinds, weak_signs
from allready.evidence.log.subjects import is_of_an_act
from allready.evidence.log.trouble import is_bad, is_of_a_library, is_overcome
from allready.model import Closing, ClosingKind, ClosingSign, SignKind
from allready.patterns import compiled
from allready.signatures import of_line

_MAX_LINES = 400
_MAX_LINE_BYTES, _MAX_BAR_BYTES = 1_000, 4_000
_MAX_HEAD_BYTES = 65_536
_MIN_COUNTS = 8
"""More steps than ranks still count while they wait for one that died."""

_MAX_BEHIND = 80
"""Ordinary lines behind the words that differ in more than numbers: results, paths, summaries of trackers."""

_MAX_BEHIND_COUNT = 60
"""The same behind a count that has reached its end, without the rows of a table: more is another work."""

_VALUE = r"[=:|]\s{0,8}-?\d{1,9}\.\d{1,20}%?\s{0,8}\|?$"

_MAX_AGAIN, _MAX_AGAIN_SHAPES = 24, 2
"""Lines behind the words like those before them: other ranks finish their last step; more is another run."""

_MANY_ENDS, _BEGINNING = 3, 0.5

_MIN_PART = 8
"""Lines of other forms between words that were said before and now: more than ranks write that end one by one."""

_MAX_OVERCOME, _MAX_OVERCOME_LINES = 24, 100
"""Ordinary lines between words of trouble and the end, of different kinds and in all: more is a program that went
on."""

_BOX = r"(?:\[[\w.:-]{1,255}\] )?[-=*]{40,120}\s*"
_MAX_BOX = 24
"""A rule above and below a message, as Open MPI draws them, and so many lines between them at most."""

_MAX_MESSAGE = 5
"""Lines of one message: `unable to find an adapter.` and, below it, `Another transport will be used instead`."""

_MAX_BEHIND_TESTS = 4
"""What a shell adds: the time, an exit code."""

_MIN_RUN = 50
"""Lines of a run; what begins so again sooner is a loop."""

_MIN_DIGITS = 6
"""Of a line that tells an event apart from others of its kind."""

_MIN_TOLD, _MAX_ABOVE = 5, 20
"""Lines that stand again, blank ones between them left out."""

_FEW_RESULTS = 2
_FEW_WRITERS = 2
_MIN_CUT, _MIN_BROKEN = 16, 6
"""Letters of a last line that may have been cut, and of one that ends in a number, which may lack its unit: it is like
those that it begins like."""

_CONVERGED = (
    r"(?i)\bconverged?\b[^|]{0,80}?\b(?:in|after|at)\b\W{0,2}(?:step|iter\w{0,6}|cycle)?s?\W{0,2}(?P<done>\d{1,9})\b"
)
"""`Steepest Descents converged to Fmax < 1000 in 917 steps`, long before the most that it may take."""

_COUNTING_NOTHING = (wording.member_done, wording.of_the_best, wording.is_final, wording.of_settings)

_ANNOUNCES = r"\w\s?(?:\.\.\.|…)\s*$"
"""What is counted begins with such a line: `Step 5/5: building the tree...`."""

_NUMBERS = r"(?<![\d.])\d{2,12}(?![\d.]*\d)"
_FILE_NUMBERS = r"[A-Za-z]\w{0,60}?[_-](\d{2,12})\.\w{1,8}\b"


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
            if text and not any(words().search(text) for words in _COUNTING_NOTHING)
            for one in counts(at, text)
        ]
        self._head = ""

    @functools.cached_property
    def _shapes(self) -> list[str]:
        shapes = [_shape(text) for text in self.lines]
        if len(shapes[-1]) >= (_MIN_BROKEN if shapes[-1].endswith("0") else _MIN_CUT):
            alike = [one for one in shapes[:-1] if one.startswith(shapes[-1])]
            shapes[-1] = alike[-1] if len(alike) > 1 else shapes[-1]
        return shapes

    @functools.cached_property
    def _repeating(self) -> set[int]:
        """The lines that say again where a count was, as a summary does."""
        last: dict[Label, tuple[int, int | None]] = {}
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
            self._head = text_of(self._log.scanned.head[:_MAX_HEAD_BYTES]).replace("\r", "\n")
        return self._head

    @functools.cached_property
    def _last_counts_line(self) -> int | None:
        """Where a count stood from which on it went up by `_MIN_COUNTS` at least."""
        courses = [
            [(one.at, one.done) for one in self.readings if one.label == last.label and one.total == last.total]
            for last in {one.label: one for one in self.readings}.values()
        ]
        frames = [at for at, text in enumerate(self.lines) if text.lstrip().startswith('File "')]
        courses += [one for one in counted(self.lines).values() if one[-1][0] > max(frames, default=-1)]
        found = [at for course in courses if (at := _counted_from(course)) is not None]
        return self.number(max(found)) if found else None

    @functools.cached_property
    def _first(self) -> list[str]:
        """The lines that the log begins with."""
        return text_of(self._log.scanned.head[:_MAX_HEAD_BYTES]).split("\n")[:-1]

    @functools.cached_property
    def _kept(self) -> list[str]:
        """All that is kept of the log, in lines, of a bar every state."""
        scanned = self._log.scanned
        kept = scanned.head[: max(0, scanned.num_bytes - len(scanned.tail))] + scanned.tail
        return text_of(kept).replace("\r", "\n").split("\n")

    @functools.cached_property
    def _has_loop(self) -> bool:
        return trains(self._kept)

    @functools.cached_property
    def _trains(self) -> bool:
        """Whether it trains, or speaks of it: one result may be of the test before it."""
        return self._has_loop or any(wording.of_a_training().search(text) for text in self._kept)

    def _is_later_bar(self, state: LastProgress) -> bool:
        """Whether what is full is a bar without a name of its own that began behind the last line of a training: an
        evaluation draws one, too."""
        labels = {one.label for one in self.readings if (one.at, one.total) == (state.at, state.total)}
        if self._is_named_a_list or not labels or not all(label.form is CountForm.BAR for label in labels):
            return self._is_named_a_list
        first = next(one.at for one in self.readings if one.label in labels and one.total == state.total)
        if any(one.is_outer and one.done == one.total == state.total and one.at < first for one in self.readings):
            return False  # the bar of these epochs, from another stream
        places = training_lines(self.lines)
        return bool(places) and places[-1] < first

    @functools.cached_property
    def _is_named_a_list(self) -> bool:
        return is_of_a_list(self._kept)

    def _is_known(self, state: LastProgress | None) -> bool:
        """Whether it is known how far it will count, or it does not train: else an evaluation may be in the middle."""
        if state is None:
            return not self._trains
        if state.total is None and not self._trains and sum(one.is_outer for one in self.readings) == 1:
            return True  # an epoch that a sentence names
        return state.total is not None and not (self._has_loop and self._is_of_an_evaluation(state))

    def _falls_short(self, state: LastProgress | None) -> bool:
        """Whether it has not reached the number that its beginning announces, and gives no total with its counts."""
        return state is not None and state.is_midway and all(one.total != state.total for one in self.readings)

    def _is_of_an_evaluation(self, state: LastProgress) -> bool:
        """Whether the count that is known is one that stands beside the steps of the training."""
        beside = [one.is_minor for one in self.readings if (one.at, one.total) == (state.at, state.total)]
        return bool(beside) and all(beside)

    @functools.cached_property
    def _said(self) -> list[str]:
        """The lines without what their loggers put in front, "" for those of libraries."""
        return ["" if _is_noise(text) else without_front(text) for text in self.lines]

    @property
    def _said_earlier(self) -> list[str]:
        return list(map(without_front, self._earlier))

    @functools.cached_property
    def _earlier(self) -> list[str]:
        """Those that are not among the last ones."""
        return self._first[: self.number(0) - 1]

    @functools.cached_property
    def _openings(self) -> tuple[int, ...]:
        return openings(self._first, self.lines, self.number(0))

    @property
    def _places_of_openings(self) -> list[int]:
        """Among the lines that are kept."""
        head = len(self._earlier)
        return [n - 1 if n <= head else head + n - self.number(0) for n in self._openings]

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
        good = self._good(state, words)
        if good is not None and not self._another_run_begins(good):
            return good
        last = next(index for index in range(len(self.lines) - 1, -1, -1) if self.lines[index])
        error = last_error(self.lines, lambda text: _is_noise(text) or _is_known(text), has_begun=bool(self.readings))
        if error is not None:
            made = self._made(ClosingKind.OPEN, error[0], at, state)
            return replace(made, error=error[1])
        if state is not None and state.is_midway:
            return self._made(ClosingKind.MIDWAY, state.at, at, state)
        counts_open = state is not None and state.total is None
        return self._made(ClosingKind.OPEN, last, at, state if counts_open else None)

    def _good(self, state: LastProgress | None, words: tuple[int, bool] | None) -> Closing | None:
        """The end, where it is a good one by what this run wrote."""
        at = state.at if state is not None else None
        if words is not None and not self._is_denied(state, words[0]):
            place, is_certain = words
            return self._made(ClosingKind.WORDS, place, at, state, is_certain=is_certain)
        if (
            state is not None
            and state.is_full
            and not self._is_announced(state.at)
            and not (self._is_contradicted(state.at) or self._is_later_bar(state) or self._is_one_of_several)
        ):
            return self._made(ClosingKind.PROGRESS, state.at, at, state)
        results = last_results(self._said, self._said_earlier, lambda: not self._is_known(state))
        if results is not None and self._is_closed_by(results, state):
            return self._made(ClosingKind.WORDS, results.at, at, state)
        words_of_end = self._behind_loop(state)
        if words_of_end is not None:
            return self._made(ClosingKind.WORDS, words_of_end, at, state)
        signs = self._signs(state)
        if signs:
            made = self._made(ClosingKind.SIGNS, signs[-1].at, at, state)
            return replace(made, signs=tuple(map(self._sign, signs)))
        return None

    def _another_run_begins(self, end: Closing) -> bool:
        """Whether another run begins behind the line of this end, and has shown nothing yet."""
        begun = later_run(self._earlier, self.lines, (end.origin.line or 0) - self.number(0))
        if begun is None:
            return False
        behind = [text for text in map(plain, self._said[begun:]) if text]
        times = Counter(map(form, behind))
        return not any(times[form(text)] == 1 and kinds(text) for text in behind)

    def _behind_loop(self, state: LastProgress | None) -> int | None:
        """Where it says how it went, once it has left its loop."""
        if self._is_of_a_part:
            return None
        if state is not None and _is_below(state):
            return None
        text = closing_line(self._kept, _is_noise)
        raw = range(len(self.lines) - 1, -1, -1)
        place = next((at for at in raw if text is not None and plain(self.lines[at]) == text), None)
        return None if place is None or self._is_denied(state, place) else place

    def _signs(self, state: LastProgress | None) -> list[WeakSign]:
        """The weak signs that together speak for a good end; [] where they are too few or something denies them."""
        if self._is_one_of_several:
            return []
        found = weak_signs(self._earlier, self.lines, _is_noise, self._places_of_openings)
        if not found or self._breaks_off_behind(-1):
            return []
        if any(wording.of_a_fold().search(line) for line in self.lines[found[0].at :]):
            return []
        stops = any(one.kind is SignKind.EARLY for one in found)
        if state is not None and state.is_midway and not stops:
            return []
        head = len(self._earlier) if self.number(0) == len(self._earlier) + 1 else 0
        over = next((at for at in range(found[0].at - 1, -1 - head, -1) if self._is_over(at)), None)
        if over is not None and self._has_loop:
            found.insert(0, WeakSign(SignKind.FULL, over))
        is_known = self._is_known(state) and not self._only_prepares
        return found if are_enough(found, is_known=is_known, is_of_a_part=self._is_of_a_part) else []

    def _is_over(self, at: int) -> bool:
        """Whether the training is over here: this line says so, or that it stops early, once, and no step follows."""
        text = self._text(at)
        said = "" if _is_noise(text) else without_front(text)
        if wording.means_all(said):
            return True
        is_early = wording.early().search(said) is not None and not wording.denies(said)
        behind = (*self._earlier[len(self._earlier) + at + 1 :], *self.lines) if at < 0 else self.lines[at + 1 :]
        is_once = sum(_shape(line) == _shape(text) for line in (*self._earlier, *self.lines)) == 1
        return is_early and is_once and not any(map(wording.goes_on, behind))

    def _text(self, at: int) -> str:
        """The line at this place, which is below 0 for those before the last ones."""
        return self.lines[at] if at >= 0 else self._earlier[at]

    def _sign(self, sign: WeakSign) -> ClosingSign:
        return ClosingSign(kind=sign.kind, line=self.number(sign.at), text=self._text(sign.at).strip()[:300])

    def _progress(self) -> LastProgress | None:
        """What the counts say; those without a total where no other count tells how far the program came."""
        state = progress(self.readings, self.lines, self.head, "\n".join(self._earlier)) if self.readings else None
        if state is not None and state.is_midway and self._has_stopped_early(state):
            return state._replace(is_midway=False)
        if state is not None and (state.is_full or state.is_midway):
            return state
        at = counts_down(self.lines, self.head, self.readings)
        if at is not None and state is not None and state.total is None:
            return LastProgress(state.at, state.done, None, is_full=True, is_midway=False)
        found = steps(self.lines, self.head)
        if found is None and state is None and not announces_epochs(self.head):
            found = unnamed.steps(self.lines, self._earlier)
            if found is None and not self._has_loop:
                found = numbered.rows(self.lines, self._earlier)
        if found is None or (state is not None and state.at > found.at and state.total is not None):
            return state
        return LastProgress(found.at, found.done, found.total, is_full=found.is_full, is_midway=not found.is_full)

    def _has_stopped_early(self, state: LastProgress) -> bool:
        """Whether the training says behind its last count that it stops here, and no count is open within it."""
        return state.total is not None and any(
            self._says_early(at, state) and not is_bad(self.lines[at]) for at in range(state.at, len(self.lines))
        )

    def _says_early(self, at: int, state: LastProgress | None) -> bool:
        """Whether this line says that it went no further: it stopped early, or came to its end at the number at which
        the count stands."""
        text = self.lines[at]
        converged = compiled(_CONVERGED).search(text) if state is not None else None
        is_there = converged is not None and state is not None and int(converged["done"]) - state.done in {0, 1}
        return (is_there or wording.early().search(text) is not None) and not wording.denies(text)

    def _made(
        self, kind: ClosingKind, place: int, at: int | None, state: LastProgress | None, *, is_certain: bool = False
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

    def _words(self, state: LastProgress | None) -> tuple[int, bool] | None:
        """The line whose words close the log, and whether they mean the whole run."""
        behind: set[str] = set()
        only_records = False
        last_exit = all_ended(self.lines, self.head)
        for at in range(len(self.lines) - 1, -1, -1):
            text = self.lines[at]
            if at == last_exit:
                return None if self._is_one_of_several else (at, True)
            if not text.strip() or _is_noise(text):
                if wording.info().match(text) is not None and wording.goes_on(text):
                    return None  # a program that writes as libraries do
                continue
            if wording.is_end_of_run(text):
                return (at, True) if wording.means_all(text) else None
            if wording.of_what_was().search(text) is not None:
                only_records = only_records or wording.step().search(text) is not None
            else:
                if state is not None and state.is_midway and at in self._counting:
                    return None
                said = self._means_end(at, state)
                if said and self._has_a_record_above(at):
                    continue
                if said is not None:
                    return None if only_records or self._is_open(at, is_certain=said) else (at, said)
                if (not behind and wording.begins().search(text)) or (
                    wording.goes_on(text) and at not in self._repeating
                ):
                    return None
            behind.add(self._shapes[at])
            if len(behind) > _MAX_BEHIND:
                return None
        return None

    def _has_a_record_above(self, at: int) -> bool:
        """Whether these words may be about one of several parts, and a benchmark's record above them is of the run."""
        return self._is_of_this_part(at, is_certain=True) and any(map(wording.is_end_of_run, self.lines[:at]))

    def _is_open(self, at: int, *, is_certain: bool) -> bool:
        """Whether these words leave open that the run goes on."""
        is_last = not any(map(str.strip, self.lines[at + 1 :]))
        return (
            (is_last and wording.waits().search(self.lines[at]) is not None)
            or self._is_of_this_part(at, is_certain=is_certain)
            or self._is_left_unsaid(at)
            or self._goes_on_behind(at, is_certain=is_certain)
            or self._has_begun_behind(at, is_certain=is_certain)
        )

    def _is_of_this_part(self, at: int, *, is_certain: bool) -> bool:
        """Whether these words may be about one of several parts."""
        is_part = self._is_one_of_several or (not is_certain and self._is_of_a_part_at(at))
        return is_part and not wording.means_all_folds(self.lines[at])

    @functools.cached_property
    def _is_one_of_several(self) -> bool:
        """Whether the log says how many parts the job has, or names them, and more are to come."""
        return is_of_a_part(self._kept, for_certain=True) or self._is_named_a_list

    @functools.cached_property
    def _is_of_a_part(self) -> bool:
        """Whether the log names parts of the job, and more may be to come."""
        return is_of_a_part(self._kept) or self._is_named_a_list

    def _is_of_a_part_at(self, at: int) -> bool:
        return self._is_of_a_part or any(wording.of_a_fold().search(line) for line in self.lines[at:])

    def _is_left_unsaid(self, at: int) -> bool:
        """Whether several writers say so, and one does not that wrote the same as they did before."""
        shape = self._shapes[at]
        places = [place for place, other in enumerate(self._shapes) if other == shape]
        said = {_writer(self.lines[place]) for place in places} - {None}
        if len(said) < _FEW_WRITERS:
            return False
        written: dict[str, Counter[str | None]] = {}
        for line, other in zip(self.lines[: places[0]], self._shapes, strict=False):
            if other:
                written.setdefault(other, Counter())[_writer(line)] += 1
        return any(
            said <= by.keys() and any(who not in said and times >= _MIN_COUNTS for who, times in by.items() if who)
            for by in written.values()
        )

    def _goes_on_behind(self, at: int, *, is_certain: bool) -> bool:
        """Whether the work that was done before these words begins again behind them; or, where these are not certain,
        is done again."""
        before = set(self._shapes[:at]) - {""}
        again = [shape for shape in self._shapes[at + 1 :] if shape in before]
        is_reopened = any(number > self.number(at) for number in self._openings)
        most, forms = (_MAX_OVERCOME_LINES, 1) if is_certain else (_MAX_AGAIN, _MAX_AGAIN_SHAPES)
        is_of_others = is_certain and _writer(self.lines[at]) is not None
        return is_reopened or (not is_of_others and len(again) > most and len(set(again)) > forms)

    def _has_begun_behind(self, at: int, *, is_certain: bool) -> bool:
        """Whether another work begins behind these words, or is repeated there, and has shown nothing since."""
        own = [text for text in map(plain, self._said[at + 1 :]) if text]
        forms = [form(text) for text in own]
        times = Counter(forms)
        may_repeat = is_certain and not wording.is_of_a_trainer(self.lines[at])
        begun = [
            i
            for i, text in enumerate(own)
            if wording.begins().search(text) or (not may_repeat and times[forms[i]] > _MIN_COUNTS)
        ]
        return bool(begun) and not any(kinds(text) for text in own[begun[-1] + 1 :])

    def _means_end(self, at: int, state: LastProgress | None) -> bool | None:
        """Whether the words of this line mean the whole run for certain; None where they close nothing."""
        text = self.lines[at]
        if wording.means_all(self._said[at] or text):  # a logger's place names modules
            is_whole = self._is_known(state) or wording.means_all_folds(text)
            is_part = self._has_loop and not is_whole and is_of_an_act(text)
            return None if is_part or self._comes_again(at) else True
        is_other = wording.is_other(text) or wording.is_of_a_step().search(text) is not None
        is_last = not any(wording.word().search(line) for line in self._said[at + 1 :])
        is_of_all = (
            (
                wording.of_all().search(text) is not None
                and (self._is_known(state) or not wording.is_average(text))
                and not wording.is_heading(text)
            )
            or (wording.of_best().search(text) is not None and self._is_known(state))
        ) and not wording.denies(text)
        is_result = (
            is_last
            and wording.result().search(text) is not None
            and not wording.denies(text)
            and self._shapes[at] not in self._shapes[:at]
            and not self._is_one_of_many(at)
            and self._is_known(state)
            and (state is None or state.total is None or state.done >= state.total)
        )
        is_tests = (
            wording.tests().search(text) is not None and len(set(self._shapes[at + 1 :]) - {""}) <= _MAX_BEHIND_TESTS
        )
        is_tests = is_tests or (is_last and self._passes(at))
        is_done = (
            is_last
            and not self._counting
            and not (state is None and self._has_loop)
            and wording.done().search(text) is not None
            and not is_other
            and not self._is_of_a_list(at)
            and not self._is_of_an_act(at, state)
        )
        is_likely = wording.likely().search(text) is not None and not is_other and not self._is_of_an_act(at, state)
        is_evaluated = (
            (
                self._is_known(state)
                if state is None or state.total is None
                else state.is_full or (state.done == state.total and not state.is_midway)
            )
            and wording.evaluated().search(text) is not None
            and not wording.denies(text)
            and (is_last or len(set(self._shapes[at + 1 :]) - {""}) <= _MAX_BEHIND_TESTS)
        )
        is_early = self._says_early(at, state)
        is_of_run = wording.of_the_run().search(text) is not None and not wording.denies(text)
        if is_of_all or is_result or is_likely or is_early or is_of_run or is_tests or is_done or is_evaluated:
            is_midway = state is not None and state.is_midway
            is_behind = state is not None and (at > state.at or (is_early and at == state.at))
            is_sum = is_of_all and wording.of_a_sum().search(text) is not None and not self._falls_short(state)
            is_sum = is_sum or is_of_run or is_early
            if ((is_behind and is_sum) or not is_midway) and self._stands_once(at):
                return False
        return None

    def _passes(self, at: int) -> bool:
        """Whether this line is a check's only verdict: of a list of them more may be to come."""
        given = [place for place, text in enumerate(self.lines) if wording.passes().search(text) is not None]
        return given == [at] and not self._has_loop

    def _is_of_an_act(self, at: int, state: LastProgress | None) -> bool:
        """Whether such words are about something that a training does in between: it is not known how far it will
        count, and the words, or the line before them, name nothing else, or the step where it is."""
        text = self.lines[at]
        if wording.of_one_act().search(text) is not None:
            return True
        above = [line for line in self.lines[:at] if line.strip() and not _is_noise(line)]
        if state is None and self._names_the_step(at):
            return True
        is_bare = wording.bare().match(text) is not None
        if self._only_prepares and is_bare:
            return True
        if self._is_known(state):
            return False
        if any(wording.so_far().search(line) for line in (text, *above[-_MAX_MESSAGE:])):
            return True
        if wording.of_any_work().search(text) is None:
            return self._has_loop and is_of_an_act(text)
        return self._has_loop and not (is_bare and not (above and wording.names_an_act().search(above[-1])))

    @functools.cached_property
    def _only_prepares(self) -> bool:
        """Whether all that it counted are bars of what comes before the work."""
        labels = {one.label for one in self.readings}
        return bool(labels) and all(
            one.form is CountForm.BAR and wording.prepares().search(one.words) for one in labels
        )

    def _names_the_step(self, at: int) -> bool:
        """Whether it names a file by a number that the last line of the loop counts."""
        words = wording.without_paths(self.lines[at])
        times = Counter(self._shapes)
        last = next((index for index in range(at - 1, -1, -1) if times[self._shapes[index]] > _MANY_ENDS), None)
        if last is None:
            return False
        named = set(compiled(_NUMBERS).findall(self.lines[at])) - set(compiled(_NUMBERS).findall(words))
        named |= set(compiled(_FILE_NUMBERS).findall(words))
        return bool(named & set(compiled(_NUMBERS).findall(self.lines[last])))

    def _is_one_of_many(self, at: int) -> bool:
        """Whether the lines before give a result as well, and begin alike: one of each sample."""
        before = [text for text in self.lines[:at] if text.strip()][-_FEW_RESULTS:]
        first = self.lines[at].split(maxsplit=1)[0]
        return len(before) == _FEW_RESULTS and all(
            text.split(maxsplit=1)[0] == first and wording.result().search(text) is not None for text in before
        )

    def _is_of_a_list(self, at: int) -> bool:
        """Whether the line before says the same of another file: more of them may be to come."""
        words = wording.without_paths(self.lines[at])
        return words != self.lines[at] and at > 0 and wording.without_paths(self.lines[at - 1]) == words

    def _is_closed_by(self, results: Results, state: LastProgress | None) -> bool:
        """Whether these results are the last message: no count is open in front of them, or they say so."""
        if self._is_of_a_part or wording.begins().search(self.lines[results.at]) is not None:
            return False
        is_over = state is None or (state.total is not None and not state.is_midway)
        is_behind = state is None or results.at > state.at
        closes = results.closes and is_behind and not self._falls_short(state)
        return (is_over or closes) and not self._is_denied(state, results.at)

    def _is_denied(self, state: LastProgress | None, place: int) -> bool:
        """Whether something went wrong behind the last progress, before or after the words: a script says that it is
        done whatever came before.  What a line itself calls overcome counts only where nothing follows."""
        if self._breaks_off_behind(place):
            return True
        first = -1 if state is None else state.at
        steps = [at for at, text in enumerate(self.lines[: place + 1]) if wording.step().search(text)]
        first = max([first, *steps[-1:]])
        is_verdict = self._passes(place)
        bad = [
            at
            for at, text in enumerate(self.lines)
            if is_bad(text)
            and (at >= place or not is_verdict)
            and (at >= place or not (self._is_overcome(at) or self._is_far(at, place)))
        ]
        begun = [number - self.number(0) for number in self._openings]
        if bad and sum(at < bad[0] for at in begun) <= 1:  # runs one after the other, not ranks side by side
            first = max([first, *(at - 1 for at in begun if at <= place)])
        return any(at > first or at == place for at in bad)

    def _breaks_off_behind(self, place: int) -> bool:
        """Whether a later line is the last one and has no end: the program was still writing."""
        if last_line.is_whole(self.lines, self._log.scanned.tail):
            return False
        last = self.lines[-1]
        is_later = place < len(self.lines) - 1 and not (place >= 0 and kinds(without_front(plain(last))))
        return is_later or last_line.is_open(last, self._log.scanned.tail)

    def _is_overcome(self, at: int) -> bool:
        """Whether this line, or others of its message, say that the program goes on."""
        return any(is_overcome(text) for text in self._message(at))

    def _message(self, at: int) -> Sequence[str]:
        """The lines of the box in which this one stands, or this one and the next ones."""
        rules = [place for place, text in enumerate(self.lines) if compiled(_BOX).fullmatch(text) is not None]
        top = max((place for place in rules if at - _MAX_BOX <= place < at), default=None)
        bottom = min((place for place in rules if at < place <= at + _MAX_BOX), default=None)
        if top is None or bottom is None:
            return self.lines[at : at + _MAX_MESSAGE]
        return self.lines[top:bottom]

    def _is_far(self, at: int, place: int) -> bool:
        """Whether the program wrote so much of its own in between that it went on."""
        own = [
            shape
            for shape, text in zip(self._shapes[at + 1 : place], self.lines[at + 1 : place], strict=True)
            if shape and not is_of_a_library(text)
        ]
        return len(set(own)) > _MAX_OVERCOME or len(own) > _MAX_OVERCOME_LINES

    def _comes_again(self, at: int) -> bool:
        """Whether the log says so from its beginning on, at the end of each of its parts: of the last one it is not
        known that it is the last."""
        shape, who = self._shapes[at], _writer(self.lines[at])
        places = [
            index for index, other in enumerate(self._shapes) if other == shape and _writer(self.lines[index]) == who
        ]
        if len(self._openings) >= len(places):
            return False  # runs that were appended, each with its own end
        if self._ends_each_part(at, is_certain=True):
            return True
        return len(places) > _MANY_ENDS and places[0] / len(self.lines) < _BEGINNING

    def _ends_each_part(self, at: int, *, is_certain: bool) -> bool:
        """Whether the log says so again and again, with other work in between: of each of its parts.  Where the log's
        first lines stand behind the words it was begun again."""
        kept = (*self._earlier, *self.lines)
        who, shape = _writer(self.lines[at]), self._shapes[at]
        head = len(self._earlier)
        place = head + at
        own = [
            i
            for i, text in enumerate(kept)
            if _shape(text) == shape and _writer(text) == who and (i == place or not self._is_told_again(at, i - head))
        ]
        first = {_shape(text) for text in kept[: min([_MIN_PART, *own])]} - {""}
        for a, b in pairwise(i for i in own if not is_certain or wording.means_all(kept[i])):
            between = [_shape(text) for text in kept[a + 1 : b] if text.strip() and not _is_noise(text)]
            if len(set(between)) >= _MIN_PART and not first & set(between[:_MIN_PART]):
                return True
        return False

    def _stands_once(self, at: int) -> bool:
        """Whether its writer wrote no line like it elsewhere: a time that is printed after each epoch ends nothing."""
        shape, who = self._shapes[at], _writer(self.lines[at])
        begun = self._run_from(at)
        places = [
            index
            for index, other in enumerate(self._shapes)
            if index >= begun
            and other == shape
            and (index == at or _writer(self.lines[index]) == who)
            and (index == at or not self._is_told_again(at, index))
        ]
        if len(places) > _MIN_COUNTS and len(places) > sum(other not in {"", shape} for other in self._shapes):
            return False  # a list of such times
        between = set(self._shapes[places[0] : places[-1]])
        if shape and not self._openings and self._ends_each_part(at, is_certain=False):
            return False
        return not between - {"", shape}

    def _is_told_again(self, at: int, other: int) -> bool:
        """Whether another line and those above it tell what these do, to the last digit: a log that was printed into
        itself."""
        mine = self._told(at)
        is_one_event = sum(map(str.isdigit, mine[0])) >= _MIN_DIGITS
        return is_one_event and without_front(self._text(other)).strip() == mine[0] and self._told(other) == mine

    def _told(self, at: int) -> list[str]:
        """This line and those above it, the last one first."""
        above = (self._text(place) for place in range(at, max(at - _MAX_ABOVE, -1 - len(self._earlier)), -1))
        return [text for text in (without_front(line).strip() for line in above) if text][:_MIN_TOLD]

    def _run_from(self, at: int) -> int:
        """The place of the line that the last of several runs before this one began with; 0 where there is one run."""
        begun = [number - self.number(0) for number in self._openings if number <= self.number(at)]
        is_long = len(begun) > 1 and min(b - a for a, b in pairwise(begun)) >= _MIN_RUN
        return max(begun[-1], 0) if is_long else 0

    def _is_contradicted(self, at: int) -> bool:
        """Whether something failed in this line or behind it, or begins there and has shown nothing yet."""
        behind = [text for text in self.lines[at:] if text.strip()]
        own = [text for text in behind if not is_of_a_library(text)]
        if any(number > self.number(at) for number in self._openings) or self._breaks_off_behind(at):
            return True
        if any(_counted_from(course) is not None for course in self._further_counts(at)):
            return True
        if len({_shape(text) for text in own if compiled(_VALUE).search(text) is None}) > _MAX_BEHIND_COUNT:
            return True
        if len(own) > 1 and all(wording.is_prepared().search(text) for text in own[1:]):
            return True
        is_over = len(own) > 1 and not is_bad(own[-1])  # the program went on, as it announced
        wrong = any(is_bad(text) and not (is_over and is_overcome(text)) for text in behind)
        return wrong or bool(own and wording.begins().search(own[-1]))

    def _further_counts(self, at: int) -> list[list[tuple[int, int]]]:
        """The steps that are counted behind this line, other than those of an evaluation that came as far as the one
        before it did."""
        before = counted(self.lines[: at + 1])
        return [
            course
            for kind, course in counted(self.lines[at + 1 :]).items()
            if course[-1][1] not in _reached(before.get(kind, ()))
        ]

    def _is_announced(self, at: int) -> bool:
        """Whether this line says what comes now, and less has come than behind the last one like it, or it is not known
        how much that is."""
        if compiled(_ANNOUNCES).search(self.lines[at]) is None:
            return False
        own = [place for place in range(len(self.lines)) if self._shapes[place] and not _is_noise(self.lines[place])]
        same = [i for i, place in enumerate(own) if place <= at and self._shapes[place] == self._shapes[at]]
        counts_at = {one.at for one in self.readings}
        if len(same) < _FEW_WRITERS:
            return True
        # Steps that the beginning announces are in no reading: then the next line of this form is the next count.
        next_count = next((i for i in range(same[-2] + 1, same[-1]) if own[i] in counts_at), same[-1])
        num_usual, num_behind = next_count - same[-2] - 1, len(own) - same[-1] - 1
        return num_usual == 0 or num_behind < num_usual


def _reached(course: Sequence[tuple[int, int]]) -> set[int]:
    """Where a count that begins again and again stood each time."""
    return {done for (_, done), (_, behind) in pairwise(course) if behind < done} | {done for _, done in course[-1:]}


def _is_below(state: LastProgress) -> bool:
    return state.total is not None and state.done < state.total


def _counted_from(course: Sequence[tuple[int, int]]) -> int | None:
    """The last place from which on a count went up by `_MIN_COUNTS` at least."""
    last = course[-1][1]
    begins = takewhile(lambda one: one[1] <= last, reversed(course))
    return next((at for at, done in begins if done <= last - _MIN_COUNTS), None)


def _writer(text: str) -> str | None:
    return tag_of(writer(text.encode()))


def _shape(text: str) -> str:
    return last_line.without_numbers(text)[:60]


def _is_noise(text: str) -> bool:
    """A library's line, but not a program's own closing words that it logs like one."""
    if not is_of_a_library(text) or wording.early().search(text) is not None:
        return False
    return wording.info().match(text) is None or not any(
        words.search(text)
        for words in (wording.certain(), wording.whole(), wording.likely(), wording.of_all(), wording.of_best())
    )


def _is_known(text: str) -> bool:
    """Whether a signature says what a line means: then its finding is the one to give."""
    return any(signature.code is not None for signature, _ in of_line(text))


def _last_lines(log: LogContext) -> Iterator[str]:
    """The text of each of the last lines, "" for those of NCCL."""
    raw = log.scanned.tail.rstrip(b"\n").split(b"\n")
    if len(log.scanned.tail) < log.scanned.num_bytes:  # the first one is not whole; of a bar the last states are
        raw = [raw[0].partition(b"\r")[2], *raw[1:]] if b"\r" in raw[0] else raw[1:]
    for line in raw[-_MAX_LINES:]:
        if b" NCCL " in line[:400] and b" NCCL watchdog" not in line[:400]:
            yield ""
        else:
            yield decode(line[-_MAX_BAR_BYTES:] if b"\r" in line else line[:_MAX_LINE_BYTES])
