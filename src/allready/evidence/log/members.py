"""The last output of each of several processes: whether all of them have ended well."""

from collections.abc import Sequence

from allready.patterns import compiled

_SPAWNED = r"\bprocess (\d{1,10}) spawned with command"
_EXITED = r"\bProcess (\d{1,10}) exits successfully"
_NUM_STARTED = r"\b(?:num_local_procs|dist_world_size)=(\d{1,9})\b"
_EIGHT = 8

_MEMBER = r"(?:rank|worker|process|task|node|proc)"
_DONE = (
    r"(?i)\b(?:all )?(?:done|finished|completed?)\b(?: for| by| on| in| of|:)?\W{0,4}"
    rf"{_MEMBER}\W{{0,3}}(\d{{1,6}})\b[\s.!]{{0,8}}$|"
    rf"\[Rank (\d{{1,6}})\] NCCL watchdog thread terminated normally\b|"
    rf"\b{_MEMBER}\W{{0,3}}(\d{{1,6}})\b[\]):\s]{{0,6}}(?:is |has |was )?(?:all )?"
    r"(?:done|finished|completed?)[\s.!]{0,8}$"
)
_NAMED = r"(?i)\b(?:rank|local_rank|worker|task|proc(?:ess)?)\W{0,3}(\d{1,6})\b"
_SIZE = r"(?i)\b(?:nranks|world[_ ]?size|num[_ ](?:ranks|workers|processes|procs|tasks)|n?procs)\W{1,4}(\d{1,6})\b"
_MAX_MEMBERS = 100_000


def all_ended(lines: Sequence[str], head: str) -> int | None:
    """The place of the line after which no process is left; None where one is, or where their number is not plain."""
    found = _of_launcher(lines, head)
    return found if found is not None else _by_number(lines, head)


def _of_launcher(lines: Sequence[str], head: str) -> int | None:
    """By a launcher's lines on its processes.

    Where nothing says how many there were, as many as a node has GPUs must have ended: those that are stuck leave a
    number that no node has.
    """
    ended: dict[str, int] = {}
    for at, text in enumerate(lines):
        if "exits successfully" in text and (match := compiled(_EXITED).search(text)) is not None:
            ended[match[1]] = at
    if not ended:
        return None
    started = set(compiled(_SPAWNED).findall(head))
    announced = [int(number) for number in compiled(_NUM_STARTED).findall(head)]
    if started or announced:
        is_all = len(ended) >= max(len(started), *announced, 1)
    else:
        is_all = len(ended) % _EIGHT == 0 or len(ended) in {2, 4}
    return max(ended.values()) if is_all else None


def _by_number(lines: Sequence[str], head: str) -> int | None:
    """By what each says of itself: numbers from 0 on, as many as are reported or named anywhere, two at least."""
    ended: dict[int, int] = {}
    for at, text in enumerate(lines):
        if (match := compiled(_DONE).search(text)) is not None:
            ended[int(match[1] or match[2] or match[3])] = at
    if len(ended) < 2:
        return None
    text = "\n".join((head, *lines))
    sizes = [int(number) for number in compiled(_SIZE).findall(text)]
    named = {int(number) for number in compiled(_NAMED).findall(text)} | ended.keys()
    most = max(len(ended), *sizes, *(number + 1 for number in named if number < _MAX_MEMBERS))
    return max(ended.values()) if len(ended) == most and max(ended) == most - 1 else None
