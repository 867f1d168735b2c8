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
        self._skipped: list[str] = []
        self._count = 0

    def run(self, name: str, body: Callable[[], object]) -> None:
        """Run one case; whatever it raises is kept for `report`."""
        self._count += 1
        try:
            body()
        except pytest.skip.Exception as skipped:
            self._skipped.append(str(skipped))
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - reported by `report`
            self.add(name, error)

    async def run_async(self, name: str, body: Callable[[], Any]) -> None:
        """`run` for a coroutine function."""
        self._count += 1
        try:
            await body()
        except pytest.skip.Exception as skipped:
            self._skipped.append(str(skipped))
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
        """Fail with all cases that failed, if any did; skip when every case was skipped."""
        assert self._count, "there were no cases"
        if self._failed:
            rest = len(self._failed) - _MAX_SHOWN
            shown = "\n".join(self._failed[:_MAX_SHOWN]) + (f"\nand {rest} more" if rest > 0 else "")
            pytest.fail(f"{len(self._failed)} of {self._count} cases failed:\n{shown}", pytrace=False)
        if len(self._skipped) == self._count:
            pytest.skip(self._skipped[0])


def cases(
    names: str | Sequence[str],
    values: Iterable[Any],
    *,
    ids: Callable[[Any], str] | Sequence[str] | None = None,
    parts: int = 1,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run the decorated test for every row of `values`; arguments as for `pytest.mark.parametrize`.

    A case has a `tmp_path` of its own.  `parts`: into how many tests the rows are dealt, where they take long.
    """
    arguments = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    rows = list(_rows(arguments, values, ids))
    parts = max(1, min(parts, len(rows)))
    part_name = f"part_of_{arguments[0]}"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        def calls(fixtures: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
            part = fixtures.pop(part_name, 0)
            for name, number, row in _chosen(rows, part, parts):
                own = dict(fixtures)
                if "tmp_path" in own:
                    own["tmp_path"] = own["tmp_path"] / f"case{number}"
                    own["tmp_path"].mkdir()
                yield name, functools.partial(test, **row, **own)

        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run_all(**fixtures: Any) -> None:
                failures = Failures()
                for name, call in calls(fixtures):
                    await failures.run_async(name, call)
                failures.report()
        else:

            @functools.wraps(test)
            def run_all(**fixtures: Any) -> None:
                failures = Failures()
                for name, call in calls(fixtures):
                    failures.run(name, call)
                failures.report()

        signature = inspect.signature(test)
        rest = [p for p in signature.parameters.values() if p.name not in arguments]
        if parts > 1:
            rest.append(inspect.Parameter(part_name, inspect.Parameter.KEYWORD_ONLY))
        run_all.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run_all if parts == 1 else pytest.mark.parametrize(part_name, range(parts))(_TIMEOUT(run_all))

    return decorate


_TIMEOUT = pytest.mark.timeout(600)
"""Of a part of a table whose rows take long, on a machine that has other work as well."""

only = ""
"""Run only cases whose name contains this: `pytest --case TEXT`."""


def _chosen(
    rows: Sequence[tuple[str, dict[str, Any]]], part: int, parts: int
) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """The rows of one part, each with its name and number."""
    chosen = [(name, n, row) for n, (name, row) in enumerate(rows) if n % parts == part and only in name]
    if rows and not chosen:
        pytest.skip(f"no case has {only!r} in its name")
    yield from chosen


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
