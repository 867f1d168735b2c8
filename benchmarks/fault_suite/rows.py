"""Every row of the suite by id."""

from collections.abc import Mapping, Sequence

from allready.errors import UsageError
from fault_suite import rows_control, rows_network, rows_process, rows_start
from fault_suite.scenario import Row

ROWS: Mapping[str, Row] = {
    row.id: row for row in (*rows_start.ROWS, *rows_process.ROWS, *rows_network.ROWS, *rows_control.ROWS)
}


def choose(which: str, only: Sequence[str] = ()) -> list[Row]:
    """The rows of "core", "standard", "all" or "controls"; or only those named.

    Raises:
        UsageError: no such row.
    """
    if only:
        if unknown := [name for name in only if name.upper() not in ROWS]:
            raise UsageError(f"there is no row {unknown[0]!r}; there are: {', '.join(ROWS)}")
        return [ROWS[name.upper()] for name in only]
    return [
        row
        for row in ROWS.values()
        if which == "all" or (row.core, row.standard, row.control)[("core", "standard", "controls").index(which)]
    ]
