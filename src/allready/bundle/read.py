"""Reads a bundle from any source: members are streamed, and nothing is written to the disk but by `extract`."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from allready.bundle.manifest import BUNDLE_SCHEMA, ENVIRONMENT, ENVIRONMENT_SCHEMA, FACTS, MANIFEST, Manifest
from allready.errors import StatedError
from allready.evidence.inputs import Found, InputLimits, Source, unpack
from allready.json_bounds import TooLargeError, decode_within
from allready.model import Phrase
from allready.model.fill import in_english, said
from allready.patterns import compiled

GZIP = b"\x1f\x8b\x08"
MAX_MEMBER_BYTES = 64 << 20
MAX_MEMORY_BYTES = 192 << 20
MAX_EXTRACTED_BYTES = 4 << 30
MAX_MEMBERS = 50_000
LIMITS = InputLimits(
    ratio=500.0, free_bytes=256 << 20, total_bytes=MAX_EXTRACTED_BYTES, num_members=MAX_MEMBERS, num_layers=1
)
_DRIVE = r"[A-Za-z]:"


class BundleError(StatedError):
    """The file is no bundle, or a damaged one; the text says why."""

    def __init__(self, template: str, **values: object) -> None:
        super().__init__(template, **{name: in_english(value) for name, value in values.items()})
        self.values = values


class Bundle(Struct, frozen=True, kw_only=True):
    """What commands take of a bundle.  facts: JSON of a file of facts; None: it has none."""

    manifest: Manifest
    facts: bytes | None = None
    variables: dict[str, str] | None = None


def is_packed(head: bytes) -> bool:
    """Whether a file that begins so may be a bundle."""
    return head.startswith(GZIP)


def is_bundle(path: str) -> bool:
    """Whether the first file in an archive is the manifest of a bundle, sound or not."""
    try:
        return next((name.partition("/")[2] == MANIFEST for name, _ in _streams(path)), False)
    except BundleError:
        return False


def read_bundle(path: str) -> Bundle:
    """Manifest, facts and environment.

    Raises:
        BundleError: it is no bundle.
    """
    found = _members(path, {MANIFEST, FACTS, ENVIRONMENT})
    if MANIFEST not in found:
        raise BundleError("it has no manifest.json")
    manifest = _manifest(found[MANIFEST])
    variables = None
    if ENVIRONMENT in found:
        body = _decoded(ENVIRONMENT, found[ENVIRONMENT])
        try:
            if isinstance(body, dict) and body.get("schema") == ENVIRONMENT_SCHEMA:
                variables = msgspec.convert(body.get("variables"), dict[str, str])
        except msgspec.ValidationError as error:
            raise BundleError("{name}: {error}", name=ENVIRONMENT, error=error) from error
    return Bundle(manifest=manifest, facts=found.get(FACTS), variables=variables)


def extract(path: str, folder: Path) -> list[str]:
    """Write the members below `folder`, which must not exist yet; gives their names.

    Whatever the archive says, only regular files are written, only below the folder, and only so much.

    Raises:
        BundleError: it is no archive, or holds what no bundle does.
        OSError: a member cannot be written.
    """
    if not os.path.lexists(path):
        raise BundleError("there is no such file or folder")
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise BundleError(
            "the folder {folder} cannot be made: {error}", folder=folder, error=error.strerror or error
        ) from error
    names: list[str] = []
    for name, source in _streams(path):
        parts = _parts(name)
        target = folder.joinpath(*parts)
        try:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except (FileExistsError, NotADirectoryError) as error:
            raise BundleError(
                "two members are called {name}, or one of them needs a folder of that name", name=repr(name)[:200]
            ) from error
        with os.fdopen(descriptor, "wb") as file, source.open() as stream:
            while data := stream.read(1 << 20):
                file.write(data)
        if source.problem:
            raise BundleError("{name}: {why}", name=name, why=source.problem)
        names.append("/".join(parts))
    if not names:
        raise BundleError("nothing in it could be read")
    return names


def _parts(name: str) -> tuple[str, ...]:
    """The folders and the file of a member, if all of them are below where they are put.

    Raises:
        BundleError: they are not.
    """
    parts = tuple(name.replace("\\", "/").split("/"))
    is_bad = any(part in {"", ".", ".."} or len(part.encode(errors="replace")) > 255 for part in parts)
    if is_bad or len(parts) > 32 or compiled(_DRIVE).match(name) or not name.isprintable():
        raise BundleError("a member is called {name}, which is no place below a folder", name=repr(name)[:200])
    return parts


def _members(path: str, wanted: Collection[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, source in _streams(path):
        top, _, inner = name.partition("/")
        if inner in wanted and inner not in found and top:
            with source.open() as stream:
                data = stream.read(MAX_MEMBER_BYTES + 1)
            if len(data) > MAX_MEMBER_BYTES:
                raise BundleError("{name}: larger than {limit} MiB", name=inner, limit=MAX_MEMBER_BYTES >> 20)
            found[inner] = data
            if len(found) == len(wanted):
                break
    return found


def _streams(path: str) -> Iterator[tuple[str, Source]]:
    """Name and stream of each regular file in an archive; links, devices and folders are none.

    Raises:
        BundleError: the archive is damaged, or a bomb.
    """
    problems: tuple[Phrase, ...] = ()
    is_archive = False
    for item in unpack(Found(path=path, label=path), limits=LIMITS):
        if isinstance(item, Source):
            if item.label == path:
                break
            is_archive = True
            yield item.label.removeprefix(f"{path}!"), item
        elif item.path == path:
            problems = item.problems or problems
            is_archive = is_archive or item.kind == "archive"
        elif item.problem:
            problems = (said("{source}: {why}", source=item.path.removeprefix(f"{path}!"), why=item.problems),)
    if problems:
        raise BundleError("{why}", why=problems)
    if not is_archive:
        raise BundleError("it is no archive")


def _manifest(data: bytes) -> Manifest:
    body = _decoded(MANIFEST, data)
    if not isinstance(body, dict) or body.get("schema") != BUNDLE_SCHEMA:
        raise BundleError("{name} is not of {schema}", name=MANIFEST, schema=BUNDLE_SCHEMA)
    try:
        return msgspec.convert(body, Manifest)
    except msgspec.ValidationError as error:
        raise BundleError("{name}: {error}", name=MANIFEST, error=error) from error


def _decoded(name: str, data: bytes) -> Any:
    try:
        return decode_within(MAX_MEMORY_BYTES, data)
    except TooLargeError as error:
        raise BundleError("{name}: {error}", name=name, error=error) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BundleError("{name} is not JSON ({error})", name=name, error=error) from error
