"""A configuration file as it was read, and what it sets for one node."""

from typing import Any

from msgspec import Struct


class FileSettings(Struct, frozen=True, kw_only=True):
    """What the file sets for one node; flag's dest -> value, and where it stands."""

    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    environment: dict[str, str] = {}
    script: str | None = None
    arguments: tuple[str, ...] = ()
    node: str | None = None  # the section that was picked
    num_nodes: int | None = None  # sections; None where there are none
    master: str | None = None  # address of the node that is marked, or known to be node 0
    is_master: bool | None = None


class Section(Struct, frozen=True, kw_only=True):
    """[job] or one [node]."""

    name: str = ""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    environment: dict[str, str] = {}
    script: str | None = None
    arguments: tuple[str, ...] = ()
    address: str | None = None
    master: bool = False
    where: str = ""


class ConfigFile(Struct, frozen=True, kw_only=True):
    """A whole file, read and checked for keys and types."""

    path: str
    job: Section
    nodes: tuple[Section, ...] = ()
