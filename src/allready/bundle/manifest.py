"""What stands in a bundle's manifest.json, and the names of the members that have a meaning."""

from collections.abc import Mapping

from msgspec import Struct

from allready.model import Phrase

BUNDLE_SCHEMA = "allready.bundle/1"
ENVIRONMENT_SCHEMA = "allready.environment/1"
MANIFEST, FACTS, REPORT, ENVIRONMENT = "manifest.json", "facts.json", "report.json", "environment.json"
VERSIONS, KERNEL, LOGS = "versions.json", "kernel.log", "files"


class BundleEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One member of a bundle.

    size_bytes: in the bundle, unpacked.  original_bytes: of its source, where that was longer or shorter.
    cut_bytes: left out of the middle.  num_redacted: secrets replaced.
    """

    name: str
    source: str
    size_bytes: int
    sha256: str
    original_bytes: int | None = None
    cut_bytes: int = 0
    num_redacted: int = 0


class LeftOut(Struct, frozen=True, kw_only=True):
    """Something that is not in a bundle, and why."""

    source: str
    why: str
    phrases: Mapping[str, tuple[Phrase, ...]] = {}  # what `why` says, as data


class Manifest(Struct, frozen=True, kw_only=True):
    """What a bundle has, what was changed in it, and what it lacks."""

    schema: str = BUNDLE_SCHEMA
    tool_version: str = ""
    created: str = ""
    pseudonyms: bool = False
    max_bytes: int = 0
    entries: tuple[BundleEntry, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    num_left_out: int = 0
