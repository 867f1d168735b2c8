"""Where live progress goes; apart from the channels, which need asyncio: commands without a network start faster."""

from typing import Protocol


class Narrator(Protocol):
    """Where live progress goes.  Must be quick; called from the event loop."""

    def say(self, key: str, **values: object) -> None:
        """Show a passing state: the text of `key` (see `allready.text.ui`), replacing the previous state."""
        ...

    def log(self, key: str, **values: object) -> None:
        """Show a line that stays."""
        ...
