"""Which variables the installed versions read: since when, until when, and by which back-end."""

import re
from collections.abc import Mapping
from enum import StrEnum

from allready.variables.table import Reader, Variable

OLDEST = {"torch": "2.4.0", "nccl": "2.18.1", "jax": "0.4.30"}
"""What is assumed to be there at least where no version is found: the oldest release that allready supports."""

FIRST_NCCL2, FIRST_NCCL2_DEFAULT = (2, 14), (2, 15)
"""torch's releases that have the new NCCL back-end, and that use it by default."""

Version = tuple[int, ...]


class Standing(StrEnum):
    """How a variable stands to the versions found."""

    READ = "read"
    DEPRECATED = "deprecated"  # read, but it has a successor
    REMOVED = "removed"  # no longer read
    NOT_YET = "not-yet"  # only read by a later version
    IGNORED = "ignored"  # not by the back-end in use


def version(text: str | None) -> Version:
    """(2, 15, 0) of "2.15.0+cu130"; () when there is no number."""
    match = re.match(r"\D{0,8}(\d{1,4}(?:\.\d{1,5}){0,3})", text or "")
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def is_before(one: Version, other: Version) -> bool:
    """Whether `one` is the older; (2, 15) and (2, 15, 0) are equal."""
    size = max(len(one), len(other))
    return one + (0,) * (size - len(one)) < other + (0,) * (size - len(other))


def found_of(owner: str, versions: Mapping[str, str]) -> Version:
    """The version of the software that owns a variable; () when it is not known.

    versions: by name as in SoftwareFacts (torch, nccl, jax, jaxlib, ...).
    """
    if owner == "jax":
        return version(versions.get("jax") or versions.get("jaxlib"))
    return version(versions.get(owner))


def nccl_backend(versions: Mapping[str, str], use_nccl2: str | None) -> Reader | None:
    """Which process group torch makes for "nccl"; None when torch's version is not known.

    use_nccl2: the value of TORCH_DIST_USE_NCCL2.
    """
    torch = found_of("torch", versions)
    if not torch:
        return None
    if not is_before(torch, FIRST_NCCL2_DEFAULT):
        return Reader.NCCL if use_nccl2 == "0" else Reader.NCCL2
    if not is_before(torch, FIRST_NCCL2):
        return Reader.NCCL2 if use_nccl2 == "1" else Reader.NCCL
    return Reader.NCCL


def is_read(variable: Variable) -> bool:
    """Whether a release that allready supports reads it."""
    return not variable.is_folk and standing(variable, {}) is not Standing.REMOVED


def standing(variable: Variable, versions: Mapping[str, str], backend: Reader | None = None) -> Standing:
    """How the variable stands to these versions.  What is not known counts for the variable.

    backend: torch's process group for NCCL, where the job uses one.
    """
    have = found_of(variable.owner, versions)
    at_least = have or version(OLDEST.get(variable.owner))
    if variable.removed and at_least and not is_before(at_least, version(variable.removed)):
        return Standing.REMOVED
    if variable.since and have and is_before(have, version(variable.since)):
        return Standing.NOT_YET
    if backend is not None and backend in variable.ignored_by:
        return Standing.IGNORED
    if variable.deprecated and at_least and not is_before(at_least, version(variable.deprecated)):
        return Standing.DEPRECATED
    return Standing.READ
