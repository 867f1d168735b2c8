"""`@cases(...)`: many cases in one test, which runs them all and then lists every one that failed.

As `pytest.mark.parametrize`, for tables whose rows need no fixtures of their own: a broken table shows all its mistakes
at once, and the number of tests counts questions instead of rows.  Fixtures of the test are shared by its cases.
"""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet

_MAX_SHOWN = 50
_MAX_ID = 100


class Failures:
    """The failed cases of one test."""

    def __init__(self) -> None:
        self._failed: list[str] = []
        self._count = 0

    def run(self, name: str, body: Callable[[], object]) -> None:
        """Run one case; whatever it raises is kept for `report`."""
        self._count += 1
        try:
            body()
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - reported by `report`
            self.add(name, error)

    async def run_async(self, name: str, body: Callable[[], Any]) -> None:
        """`run` for a coroutine function."""
        self._count += 1
        try:
            await body()
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - reported by `report`
            self.add(name, error)

    def add(self, name: str, error: BaseException) -> None:
        """Note that the case `name` failed with `error`."""
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
        at = f"{frames[0].filename.rpartition('/')[2]}:{frames[0].lineno}: " if frames else ""
        text = str(error) or type(error).__name__
        text = text if isinstance(error, AssertionError | pytest.fail.Exception) else f"{type(error).__name__}: {text}"
        self._failed.append(f"{name}\n    {at}" + text.replace("\n", "\n    "))

    def report(self) -> None:
        """Fail with all cases that failed, if any did."""
        assert self._count, "there were no cases"
        if self._failed:
            rest = len(self._failed) - _MAX_SHOWN
            shown = "\n".join(self._failed[:_MAX_SHOWN]) + (f"\nand {rest} more" if rest > 0 else "")
            pytest.fail(f"{len(self._failed)} of {self._count} cases failed:\n{shown}", pytrace=False)


def cases(
    names: str | Sequence[str],
    values: Iterable[Any],
    *,
    ids: Callable[[Any], str] | Sequence[str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run the decorated test for every row of `values`; arguments as for `pytest.mark.parametrize`."""
    arguments = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    rows = list(_rows(arguments, values, ids))

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run_all(*own: Any, **fixtures: Any) -> None:
                failures = Failures()
                for name, row in rows:
                    await failures.run_async(name, functools.partial(test, *own, **row, **fixtures))
                failures.report()
        else:

            @functools.wraps(test)
            def run_all(*own: Any, **fixtures: Any) -> None:
                failures = Failures()
                for name, row in rows:
                    failures.run(name, functools.partial(test, *own, **row, **fixtures))
                failures.report()

        signature = inspect.signature(test)
        rest = [p for p in signature.parameters.values() if p.name not in arguments]
        run_all.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run_all

    return decorate


def _rows(
    arguments: list[str], values: Iterable[Any], ids: Callable[[Any], str] | Sequence[str] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, value in enumerate(values):
        given_id: object = None
        row = (value,) if len(arguments) == 1 else value
        if isinstance(value, ParameterSet):
            assert not value.marks, "a case cannot have marks of its own: use pytest.mark.parametrize"
            row, given_id = value.values, value.id
        assert len(row) == len(arguments), f"case {number} does not have {len(arguments)} values: {row!r}"
        if isinstance(given_id, str):
            name = given_id
        elif ids is None:
            name = ", ".join(repr(part) for part in row)
        else:
            name = ids[number] if not callable(ids) else ", ".join(str(ids(part)) for part in row)
        yield f"[{number}] {name[:_MAX_ID]}", dict(zip(arguments, row, strict=True))
