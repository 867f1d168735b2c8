"""Where an option was set: flag, PET_ variable, configuration file, default; and the notes that come up on the way."""

import argparse
from collections.abc import Mapping
from typing import Any

from allready.errors import UsageError
from allready.launch.config_model import FileSettings
from allready.launch.flag_kinds import KINDS
from allready.launch.flag_table import BY_DEST, FLAGS, Flag
from allready.launch.request import Note

_ASKS_NOTHING: tuple[object, ...] = ("spawn", "null", "", False)


class OptionSources:
    """Reads once; `sources` and `notes` grow while the orders are put together."""

    def __init__(self, args: argparse.Namespace, environ: Mapping[str, str], settings: FileSettings) -> None:
        """Raises UsageError for a PET_ variable that cannot be read."""
        self.sources: dict[str, str] = {}
        self.notes: list[Note] = []
        self._by_hand: dict[str, Any] = {}
        self._settings = settings
        for flag in FLAGS:
            value, source = getattr(args, flag.dest, None), f"--{flag.name}"
            if value is None and flag.pet:
                value, source = of_variable(flag, environ), f"PET_{flag.dest.upper()}"
            if value is not None:
                self._by_hand[flag.dest] = value
                self.sources[flag.dest] = source
            elif flag.dest in settings.values:
                self.sources[flag.dest] = settings.sources[flag.dest]
            if flag.idle and flag.dest in self.sources and self.value(flag.dest) not in _ASKS_NOTHING:
                self.note(f"idle_{flag.idle}", flag=self.sources[flag.dest])

    def by_hand(self, dest: str) -> Any:
        """By flag or PET_ variable, else None."""
        return self._by_hand.get(dest)

    def filed(self, dest: str) -> Any:
        """By the configuration file, else None."""
        return self._settings.values.get(dest)

    def value(self, dest: str) -> Any:
        """By flag, variable, file or default."""
        for found in (self.by_hand(dest), self.filed(dest)):
            if found is not None:
                return found
        flag = BY_DEST[dest]
        if flag.default is None or flag.kind == "choice":
            return flag.default
        return KINDS[flag.kind](flag.default)

    def where(self, dest: str) -> str:
        return self.sources.get(dest, f"--{BY_DEST[dest].name}")

    def note(self, key: str, **values: object) -> None:
        self.notes.append(Note(key=f"launch.{key}", values={name: str(value) for name, value in values.items()}))


def of_variable(flag: Flag, environ: Mapping[str, str]) -> Any:
    """The value of PET_NAME, None where it is unset or empty."""
    name = f"PET_{flag.dest.upper()}"
    text = environ.get(name, "")
    if not text:
        return None
    if flag.kind == "switch":
        try:
            return bool(int(text))
        except ValueError:
            raise UsageError("{name}={text!r}: torchrun reads 0 or 1 here", name=name, text=text) from None
    if flag.kind == "choice":
        if text not in flag.choices:
            raise UsageError(
                "{name}={text!r}: there are {choices}", name=name, text=text, choices=", ".join(flag.choices)
            )
        return text
    try:
        return KINDS[flag.kind](text)
    except ValueError as error:
        raise UsageError("{name}: {error}", name=name, error=error) from None
