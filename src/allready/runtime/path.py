"""Which call a rank makes next, by those before: what all ranks expect alike needs no comparison.

All ranks of a group have the same path, because what is not expected is compared before it counts.  So ranks that make
an expected call make the same one; who makes another does not expect it, asks, and nothing of its call has begun.
"""

from allready.model import CallArguments

MEMORY = 4096
"""Calls of which a path knows the order: a loop with more of them between two repetitions is compared every time."""
_NUM_SIGNS = 0xD800
"""Of the characters that stand for calls: of those that are no surrogates."""


class Step:
    """A call.  `key`: what it is for `direct`.  `next`: the one that is expected after it."""

    __slots__ = ("called", "key", "next")

    def __init__(self, called: CallArguments, key: object = None) -> None:
        self.called, self.key, self.next = called, key, self


class Path:
    """The calls of one group, in their order.

    After a call that was not expected, what followed the last calls when they came before is expected: the longest row
    of them that has come before counts, and its first time, since a loop repeats what it did from its beginning.
    `last`: the one that was made last.  `expected`: the next one; None: `follow` is to see it, whatever it is.
    """

    __slots__ = ("_begin", "_due", "_signs", "_since", "_steps", "_text", "expected", "last")

    def __init__(self) -> None:
        self.last: Step | None = None
        self.expected: Step | None = None
        self._due: Step | None = None
        self._steps: list[Step] = []
        self._text = ""
        self._signs: dict[CallArguments, str] = {}
        self._begin = self._since = 0

    def hide(self) -> None:
        """From now on nothing is expected, so that the next call is seen by `follow`."""
        self._due, self.expected = self.due, None

    @property
    def due(self) -> Step | None:
        """The next call if it is as before."""
        return self.expected or self._due

    def follow(self, called: CallArguments, key: object, number: int) -> CallArguments | None:
        """This rank makes a call; what was expected in its place."""
        due = self.due
        if due is None or called.shared != due.called.shared:
            self._turn(Step(called, key), number)
            expected = None if due is None else due.called
        else:
            expected, due.called = due.called, called
            self.last, self.expected = due, due.next
        self._due = None
        return expected

    def _turn(self, step: Step, number: int) -> None:
        self._catch_up(number - 1 - self._since)
        self._append(step)
        begin = self._seen_before()
        self._begin = len(self._steps) - 1 if begin is None else begin
        self._since = number
        step.next = self._steps[self._begin]
        self.last, self.expected = step, step.next

    def _catch_up(self, num: int) -> None:
        """Write down what was done as expected since the last iteration."""
        row = self._steps[self._begin :]
        for n in range(max(0, num - MEMORY), num):
            step = row[n % len(row)]
            self._append(Step(step.called, step.key))

    def _append(self, step: Step) -> None:
        if self._steps:
            self._steps[-1].next = step
        shared = step.called.shared
        if len(self._signs) == _NUM_SIGNS:
            self._signs.clear()
        sign = self._signs.setdefault(shared, chr(len(self._signs)))
        self._steps.append(step)
        self._text += sign
        if len(self._steps) > 2 * MEMORY:
            del self._steps[:MEMORY]
            self._text = self._text[MEMORY:]

    def _seen_before(self) -> int | None:
        """Where the row of the last calls has ended before, for the first time."""
        text, length, begin = self._text, 1, None
        while length < len(text):
            found = text.find(text[-length:], 0, len(text) - 1)
            if found < 0:
                break
            begin = found + length
            length *= 2
        return begin
