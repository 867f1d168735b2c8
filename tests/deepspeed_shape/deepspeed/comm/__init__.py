"""As DeepSpeed's."""

from deepspeed.comm import comm

__all__ = ["comm"]
