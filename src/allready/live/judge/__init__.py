"""On node 0: what all nodes say of a running job, judged again and again."""

from allready.live.judge.judge import GatherOrder, Judge

__all__ = ["GatherOrder", "Judge"]
