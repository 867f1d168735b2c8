"""How much one archive may unfold.  Memory is bounded anyway; these bound the time that a bomb can cost."""

from collections.abc import Mapping

from msgspec import Struct, field

from allready.errors import StatedError
from allready.units import GIB


class TooMuchError(StatedError):
    """An archive unfolds into more than is sane; the text says what was the limit."""


class DamagedError(StatedError):
    """Compressed data or an archive ends early or makes no sense from here on."""


class InputLimits(Struct, frozen=True, kw_only=True):
    """Generous for logs: the recorded NCCL logs shrink 32 (gzip) to 79 times (xz); a log whose lines differ in one
    counter only shrinks 55 and 1,076 times, one line repeated 257 times with gzip.
    """

    ratio: float = 2000.0  # of bytes out to bytes in
    ratio_of: Mapping[str, float] = field(default_factory=lambda: {"gzip": 500.0, "deflate": 500.0})
    free_bytes: int = GIB  # the ratio counts only above so many bytes
    total_bytes: int = 256 * GIB  # of everything that one file unfolds into
    num_members: int = 2_000_000
    num_layers: int = 2  # an archive, and what is packed inside it


LIMITS = InputLimits()


class Budget:
    """What one file on disk has unfolded into so far, over all its layers."""

    def __init__(self, limits: InputLimits = LIMITS) -> None:
        self.limits = limits
        self.num_in = 0
        self.num_out = 0
        self.num_members = 0

    def took(self, num_bytes: int) -> None:
        """Count bytes that came from the disk."""
        self.num_in += num_bytes

    def gave(self, num_bytes: int, codec: str) -> None:
        """Count bytes that a decompressor gave."""
        self.num_out += num_bytes
        if self.num_out > self.limits.total_bytes:
            size = f"{self.limits.total_bytes / GIB:.0f}"
            raise TooMuchError("unfolds into more than {size} GiB; the rest was not read", size=size)
        most = self.limits.ratio_of.get(codec, self.limits.ratio)
        if self.num_out > self.limits.free_bytes and self.num_out > most * max(self.num_in, 1):
            raise TooMuchError(
                "unfolds to more than {most} times its size, which no log does; the rest after {size} GiB was not read",
                most=f"{most:.0f}",
                size=f"{self.num_out / GIB:.1f}",
            )

    def member(self) -> None:
        """Count one member of an archive."""
        self.num_members += 1
        if self.num_members > self.limits.num_members:
            form = "has more than {most} members; the rest was not read"
            raise TooMuchError(form, most=f"{self.limits.num_members:,}")
