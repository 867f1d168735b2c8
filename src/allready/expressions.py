"""Regular expressions that are compiled when they are first used.

The readers know hundreds of shapes of lines, and a run's logs have a few dozen of them.
"""

import re
from typing import TYPE_CHECKING, Any, AnyStr, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")


class _Later:
    """Has the attributes of the compiled expression; its methods from the first use on as its own."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self.pattern, self.flags = source, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle ask for such, before there is anything
            raise AttributeError(name)
        compiled: re.Pattern[Any] = re.compile(self.pattern, self.flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)

    def __reduce__(self) -> "tuple[Callable[..., Any], tuple[str | bytes, int]]":
        return expression, (self.pattern, self.flags)

    def __repr__(self) -> str:
        return f"expression({self.pattern!r})"


def expression(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, for a constant of a module.  An error in it shows when it is first used.

    A match's `re` is the compiled expression, which is another object: compare its `pattern`.
    """
    return cast("re.Pattern[AnyStr]", _Later(source, flags))
