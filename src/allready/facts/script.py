"""The training script: what it is, so that nodes can be compared."""

from typing import Any

from allready.errors import FactUnavailable
from allready.facts.host import Host
from allready.model import ScriptFacts


def collect_script(host: Host, path: str, *, timeout_s: float) -> ScriptFacts:
    """SHA-256 and size of the script's content.

    Raises:
        FactUnavailable: it is missing, a directory, not readable, or its file system does not answer.
    """
    answer: Any = host.probe(f"digest:{path}", timeout_s=timeout_s)
    try:
        return ScriptFacts(path=path, sha256=str(answer["sha256"]), size_bytes=int(answer["size_bytes"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FactUnavailable(f"{path}: no digest") from error
