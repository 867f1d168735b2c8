"""Which rules there are: those of the folders under `rules/`, and one for each signature of a log line."""

import functools
import importlib
import pkgutil

from allready import model
from allready.judging import signature_rules
from allready.judging.registry import JOB_PARTS, RULES, Rule

AREAS = (
    "job", "name", "port", "net", "env", "limit", "gpu", "collective", "bench",
    "process_exit", "start", "desync", "link", "hang", "live", "slow", "fabric", "runtime", "variables", "fallback",
)  # fmt: skip
"""Folders of rules, in the order in which one area explains the next: who is here, then paths, then the rest;
the second line judges what a run left behind."""

AREAS_OF_FILES = ("job", "process_exit", "start", "desync", "hang", "slow", "fabric", "fallback")
"""Folders with rules that can be asked where there is nothing but what a run left behind."""


def load() -> dict[str, Rule]:
    """Import every rule; returns code -> rule, sorted by code."""
    _import(AREAS)
    return dict(sorted(RULES.items()))


def load_for(fleet: model.Fleet) -> dict[str, Rule]:
    """The same of the rules that can be asked of this fleet: files of a run alone need a third of the imports."""
    others = set(JOB_PARTS.values()) - {"world", "run_evidence"}
    is_checked = fleet.nodes or not {"roll", "reach", "collectives"} <= fleet.inapplicable
    if fleet.run_evidence is None or is_checked or any(getattr(fleet, part) is not None for part in others):
        return load()
    return load_for_files()


def load_for_files() -> dict[str, Rule]:
    """The same of the rules that can be asked where there is nothing but what a run left behind."""
    _import(AREAS_OF_FILES)
    kept = {code: rule for code, rule in RULES.items() if rule.area in AREAS_OF_FILES or rule.area.startswith("log_")}
    return dict(sorted(kept.items()))


def _import(areas: tuple[str, ...]) -> None:
    for area in areas:
        load_area(area)
    signature_rules.register()


@functools.cache
def load_area(area: str) -> tuple[Rule, ...]:
    """Import the rules of one folder, sorted by code."""
    package = importlib.import_module(f"allready.rules.{area}")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return tuple(RULES[code] for code in sorted(RULES) if RULES[code].area == area)
