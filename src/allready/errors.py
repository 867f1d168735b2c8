"""Every error that allready raises on purpose.

AllreadyError
├── StatedError         (base) its message can be said in other languages
├── UsageError          the user asked for something impossible; the message names what is valid
├── FactUnavailable     one fact of one machine cannot be read; the message says why (stays below `facts`)
├── ExchangeError       talking to the other nodes failed
├── DeadlineExceeded    a wait ended at its deadline (also a builtin TimeoutError)
├── LabError            the fault laboratory cannot do what was asked on this machine
└── TableError          an entry of a signature table is wrong; the message names it and what is valid (of developers)
"""

from collections.abc import Iterable
from typing import Self


class AllreadyError(Exception):
    """Base of all errors that allready raises on purpose."""


class StatedError(AllreadyError):
    """An error whose message people read: `template` is the English one with a `{name}` for each of `values`, to be
    said in another language.  A value may be the StatedError that it comes from.  What another program said is a value:
    `FactUnavailable("{error}", error=error)`."""

    def __init__(self, template: str, **values: object) -> None:
        super().__init__(template.format(**values) if values else template)
        self.template, self.values = template, values

    @classmethod
    def all_of(cls, errors: Iterable["StatedError"]) -> Self:
        """Several in one."""
        named = {f"e{number}": error for number, error in enumerate(errors)}
        return cls("; ".join(f"{{{name}}}" for name in named), **named)


class UsageError(StatedError):
    """The user asked for something impossible; the message names what is valid.  Exit code 2."""


class FactUnavailable(StatedError):  # noqa: N818 - reads as the answer it is: a state, not a mistake
    """One fact of one machine cannot be read; the message is one line saying why."""


class ExchangeError(AllreadyError):
    """Talking to the other nodes failed."""


class DeadlineExceeded(AllreadyError, TimeoutError):  # noqa: N818
    """A wait ended at its deadline."""


class LabError(StatedError):
    """The fault laboratory cannot do what was asked on this machine."""


class TableError(AllreadyError):
    """An entry of a signature table is wrong, as a new one may be in a checkout; the message names it and what is
    valid."""


UNFORESEEN = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, AssertionError, MemoryError)
"""What code raises at data of another process that it does not expect."""
