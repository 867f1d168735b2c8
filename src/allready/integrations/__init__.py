"""Callbacks for trainers of others: after every step all ranks agree that it is done, or stop, or fail alike.

A function makes each, so that importing this loads no trainer.
"""

from allready.integrations.trainers import agreed_failures, hugging_face_callback, lightning_callback

__all__ = ["agreed_failures", "hugging_face_callback", "lightning_callback"]
