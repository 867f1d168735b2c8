"""For trainers and fault-tolerance libraries of others: all ranks agree that a step is done, or stop, or fail alike.

Importing this loads none of them.
"""

from allready.integrations.torchft import torchft_failures
from allready.integrations.trainers import agreed_failures, hugging_face_callback, lightning_callback

__all__ = ["agreed_failures", "hugging_face_callback", "lightning_callback", "torchft_failures"]
