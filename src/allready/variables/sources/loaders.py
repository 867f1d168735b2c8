"""Workers of DataLoader that a job's file asks for, beside the CPUs that it asks for."""

import re
from collections.abc import Iterator

from allready.model.settings import LoaderPlan

_WORKERS = re.compile(r"--(?:\w{1,40}[._-])?num[_-]workers(?:[= ]|\\\n)[ \t]{0,20}(\d{1,4})\b")
_RANKS = re.compile(r"--(?:nproc[_-]per[_-]node|num[_-]processes)[= ][ \t]{0,20}(\d{1,3})\b")
_CPUS = re.compile(
    r"^#SBATCH[ \t]{1,20}(?:[^#\n]{0,200}[ \t])?((?:--cpus-per-task[= ]|-c[ \t]{0,9})(\d{1,4}))\b", re.MULTILINE
)
MAX_PLANS = 64


def plans_in(source: str, text: str) -> Iterator[LoaderPlan]:
    """Those of a batch script: #SBATCH --cpus-per-task, and --num-workers of the commands behind it.

    The CPUs are those of a task.  A launcher with --nproc-per-node starts that many ranks in one task.
    """
    asked = list(_CPUS.finditer(text))
    if not asked:
        return
    body = "\n".join("" if line.lstrip().startswith("#") else line for line in text.split("\n"))
    for option in list(_WORKERS.finditer(body))[:MAX_PLANS]:
        ranks = _RANKS.search(_command_around(body, option.start()))
        yield LoaderPlan(
            source=source,
            line=body.count("\n", 0, option.start()) + 1,
            text=" ".join(option[0].split()),
            workers=int(option[1]),
            ranks=max(1, int(ranks[1])) if ranks else 1,
            cpus=int(asked[-1][2]),
            cpus_line=text.count("\n", 0, asked[-1].start(1)) + 1,
            cpus_text=asked[-1][1],
        )


def _command_around(text: str, place: int) -> str:
    """The command that stands there, with the lines that its backslashes join."""
    begin, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
    while begin > 1 and text[begin - 2] == "\\":
        begin = text.rfind("\n", 0, begin - 1) + 1
    while end > 0 and text[end - 1] == "\\":
        end = text.find("\n", end + 1)
    return text[begin : end if end >= 0 else len(text)]
