"""What `check` asks of the reachability stage."""

from allready.preflight.reach.wire import Probing


class ReachRequest(Probing, frozen=True, kw_only=True):
    """What to try, and how long to wait for it.  Only node 0 has one; nodes receive its `Probing`."""

    master: tuple[str, int] | None = None
    """Address and port that the nodes' own connections to node 0 use."""
    job_id: str = "none"
    """Seeds the sample of pairs when there are too many nodes for all."""
    max_rounds: int = 64
    """More rounds than this: a sample of the pairs."""
    endpoint_s: float = 5.0
    """How long node 0 waits for the nodes to open their listeners."""
    limit_s: float | None = None
    """Probing ends after so long, finished or not.  None: 8 s + 0.5 s per round."""

    def limit_for(self, num_rounds: int) -> float:
        return self.limit_s if self.limit_s is not None else 8.0 + 0.5 * num_rounds
