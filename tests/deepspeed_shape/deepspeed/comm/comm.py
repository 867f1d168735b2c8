"""As DeepSpeed's: its backend, which remembers groups."""

from typing import Any

cdb: Any = None
