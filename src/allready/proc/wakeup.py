"""How one thread ends the `poll` of another."""

import contextlib
import os


class Wakeup:
    """Readable, as a file, once it was poked.  Without a file until `open`, and after `close`: a poke is lost then."""

    def __init__(self) -> None:
        self._fd = -1

    def open(self) -> None:
        """Does nothing where it is open."""
        if self._fd < 0:
            self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """For `poll`."""
        return self._fd

    def poke(self) -> None:
        """From any thread."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # closed since
                os.eventfd_write(self._fd, 1)

    def settle(self) -> None:
        """Once it was readable: until the next poke it is not."""
        os.eventfd_read(self._fd)

    def close(self) -> None:
        """Once nothing polls it any more."""
        fd, self._fd = self._fd, -1  # a poke must not find the number of another file
        if fd >= 0:
            os.close(fd)
