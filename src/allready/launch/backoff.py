"""How long to wait between attempts; a rank of a JAX job imports nothing else for it."""

import random

from msgspec import Struct


class Backoff(Struct, frozen=True, kw_only=True):
    """How long to wait before another attempt."""

    base_s: float = 1.0
    most_s: float = 60.0
    jitter: float = 0.25

    def wait_s(self, n: int, draw: random.Random | None = None) -> float:
        """Seconds before retry `n`, the first being 0: base x 2^n, at most `most_s`, times 1 - jitter to 1 + jitter.

        The jitter keeps jobs that failed together from coming back together; so the cap is exceeded by it as well.
        """
        chance = (draw or random).uniform(-self.jitter, self.jitter)
        return round(max(0.0, min(self.most_s, self.base_s * 2.0 ** min(n, 64)) * (1.0 + chance)), 3)
