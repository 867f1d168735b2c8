"""What an earlier job left in the report folder is put aside, so that this job's logs and report have none of it."""

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from allready.evidence.inputs.find import EARLIER
from allready.launch.attempts import RECORD
from allready.live.run_paths import node_log_dir
from allready.patterns import compiled

_ATTEMPT = r"attempt\d{1,6}"
_NODE = r"node\d{1,6}"
_REPORT = r"report(-node\d*)?\.(json|html)"
MAX_SAME_SECOND = 100


def put_aside_job(report_dir: Path, *, with_reports: bool) -> Path | None:
    """Before any rank of this job runs: where everything of the job before it is now; None where there is nothing.

    Args:
        with_reports: also its reports, since none of this job's can be there yet.
    """
    names = _names(report_dir)
    ranks_left = [name for name in names if name == RECORD or _is_attempt(report_dir / name)]
    if not ranks_left:
        return None
    reports = [name for name in names if with_reports and compiled(_REPORT).fullmatch(name)]
    return _put_aside(report_dir, [Path(name) for name in (*ranks_left, *reports)])


def put_aside_node(report_dir: Path, attempt: int, node_rank: int) -> Path | None:
    """Before ranks of a node begin: its logs of this attempt and of later ones, which cannot be this job's."""
    attempts = [int(name.removeprefix("attempt")) for name in _names(report_dir) if _is_attempt(report_dir / name)]
    numbers = sorted(number for number in attempts if number >= attempt)
    folders = [node_log_dir(Path(), number, node_rank) for number in numbers]
    return _put_aside(report_dir, [folder for folder in folders if (report_dir / folder).is_dir()])


def _is_attempt(path: Path) -> bool:
    """A folder of logs as an agent makes it; one that a user calls `attempt1` holds no node's folder."""
    if path.is_symlink() or not compiled(_ATTEMPT).fullmatch(path.name):
        return False
    return any(compiled(_NODE).fullmatch(name) for name in _names(path))


def _names(report_dir: Path) -> list[str]:
    try:
        return sorted(path.name for path in report_dir.iterdir())
    except OSError:
        return []


def _put_aside(report_dir: Path, paths: Iterable[Path]) -> Path | None:
    """Another node of this job may do the same in a folder that they share: the one that comes first moves a file."""
    place: Path | None = None
    for path in paths:
        with contextlib.suppress(OSError):
            place = place or _new_place(report_dir, (report_dir / path).stat().st_mtime)
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (report_dir / path).rename(place / path)
    return place


def _new_place(report_dir: Path, time_s: float) -> Path:
    above = report_dir / EARLIER
    above.mkdir(exist_ok=True)
    if above.is_symlink():
        raise NotADirectoryError(above)
    name = time.strftime("%Y%m%d-%H%M%S", time.localtime(time_s))
    return _first(lambda number: above / (name if number == 1 else f"{name}-{number}"))


def _first(path_of: Callable[[int], Path]) -> Path:
    for number in range(1, MAX_SAME_SECOND):
        with contextlib.suppress(FileExistsError):
            path_of(number).mkdir()
            return path_of(number)
    raise FileExistsError(path_of(1))
