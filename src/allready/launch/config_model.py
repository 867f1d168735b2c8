"""A configuration file as it was read, and what it sets for one node."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the file sets for one node; flag's dest -> value, and where it stands."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    script: str | None = None
    arguments: tuple[str, ...] = ()
    node: str | None = None  # the section that was picked
    num_nodes: int | None = None  # sections; None where there are none
    master: str | None = None  # address of the node that is marked, or known to be node 0
    is_master: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """[job] or one [node]."""

    name: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    script: str | None = None
    arguments: tuple[str, ...] = ()
    address: str | None = None
    master: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A whole file, read and checked for keys and types."""

    path: str
    job: Section
    nodes: tuple[Section, ...] = ()
