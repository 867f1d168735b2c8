"""As DeepSpeed's: the group of all ranks, which remains when the engine is gone."""

from typing import Any

_WORLD_GROUP: Any = None
