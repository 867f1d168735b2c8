"""What an error of ours says, for every language."""

from allready.errors import StatedError
from allready.model import Phrase
from allready.model.fill import said


def phrase_of(error: StatedError) -> Phrase:
    """What an error says."""
    values = {name: getattr(value, "phrase", value) for name, value in error.values.items()}
    inner = {name: phrase_of(value) for name, value in values.items() if isinstance(value, StatedError)}
    return said(error.template, **(values | inner))
