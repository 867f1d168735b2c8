"""Which of several deaths by SIGKILL were the OOM killer's."""

from msgspec import Struct

from allready.proc.cgroup import CgroupFiles, num_oom_kills

KILL_IS_FRESH_S = 15.0
"""A process that the kernel chose may take so long to give its memory back before it is seen dead."""


class OomKills(Struct):
    """Assigns the kills that the counters of control groups show to deaths.

    Ranks of one node mostly share a group, and its counter does not show which process died: every count is used for
    one death, and is forgotten when no rank is seen dead soon after (then it was some child of a rank).
    """

    _used: dict[str, int] = {}
    _grown: dict[str, list[float]] = {}  # when each unused kill was first seen

    def sample(self, files: CgroupFiles, now_s: float) -> None:
        """Read the counter; to be called for every rank at every sample.  `now_s`: monotonic."""
        count = num_oom_kills(files)
        if count is not None and files.memory is not None:
            self.count(files.memory, count, now_s)

    def count(self, group: str, count: int, now_s: float) -> None:
        grown = self._grown.setdefault(group, [])
        used = self._used.setdefault(group, count)
        grown += [now_s] * min(1000, max(0, count - used))
        self._used[group] = max(used, count)
        while grown and now_s - grown[0] > KILL_IS_FRESH_S:
            grown.pop(0)

    def claim(self, files: CgroupFiles) -> bool:
        """Whether there is an unused kill in the group of a process that died by SIGKILL; it is used by this."""
        grown = self._grown.get(files.memory or "", [])
        if not grown:
            return False
        grown.pop(0)
        return True
