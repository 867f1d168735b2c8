"""Evidence, reasons and problems in other languages, found by their English."""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path

from allready.text.ui import FOLDERS


@functools.cache
def evidence_forms(language: str) -> Mapping[str, str]:
    """The templates of evidence in `language` by the English one; empty for English."""
    if language == "en":
        return {}
    file = Path(__file__).parent / FOLDERS[language] / "rules" / "evidence.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))
