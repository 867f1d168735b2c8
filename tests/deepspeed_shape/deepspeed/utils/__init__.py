"""As DeepSpeed's."""
