import subprocess
import sys

import pytest

from allready import model

LOADED = """
import sys
import allready.model
print(" ".join(sorted(name for name in sys.modules if name.startswith("allready.model."))))
from allready.model import Origin
print(" ".join(sorted(name for name in sys.modules if name.startswith("allready.model."))))
"""


def test_a_module_of_the_model_is_loaded_when_one_of_its_classes_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["", "allready.model.events"]


def test_every_name_of_the_model_is_found() -> None:
    assert [name for name in model.__all__ if getattr(model, name, None) is None] == []


def test_a_name_that_is_not_there_is_an_error_as_ever() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Orgin'"):
        getattr(model, "Orgin")  # noqa: B009
    with pytest.raises(ImportError):
        exec("from allready.model import Orgin")
