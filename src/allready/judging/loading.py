"""Which rules there are: those of the folders under `rules/`, and one for each signature of a log line."""

import functools
import importlib
import pkgutil

from allready import model
from allready.judging.registry import JOB_PARTS, RULES, Applies, Rule

_RULES = "allready.rules."
AREAS = (
    "job", "name", "port", "net", "env", "limit", "gpu", "collective", "bench",
    "process_exit", "start", "desync", "link", "hang", "live", "slow", "fabric", "runtime", "variables", "fallback",
)  # fmt: skip
"""Folders of rules, in the order in which one area explains the next: who is here, then paths, then the rest;
the second line judges what a run left behind."""

OF_FILES = (
    "job.token_differs", "process_exit", "start", "desync", "hang", "slow.always_last", "fabric", "fallback",
)  # fmt: skip
"""Folders, or their only modules, with rules that can be asked where there is nothing but what a run left behind."""

AREAS_OF_FACTS = ("job", "name", "port", "net", "env", "limit", "gpu", "variables")
"""Folders with rules that can be asked where there is nothing but the facts of nodes."""


def load() -> dict[str, Rule]:
    """Import every rule; returns code -> rule, sorted by code."""
    _import(AREAS)
    return {code: RULES[code] for code in sorted(RULES)}


def asked_for(where: Applies) -> tuple[Rule, ...]:
    """Those that apply there, sorted by code."""
    return tuple(rule for rule in load().values() if rule.applies is not None and where in rule.applies)


def load_for(fleet: model.Fleet) -> dict[str, Rule]:
    """The same of the rules that can be asked of this fleet: files of a run alone need a third of the imports."""
    have = {part for part in JOB_PARTS.values() if getattr(fleet, part) is not None} - {"world"}
    if not {"roll", "reach", "collectives"} <= fleet.inapplicable:
        return load()
    if fleet.nodes:
        return load_for_facts() if have <= {"settings"} else load()
    return load_for_files() if have == {"run_evidence"} else load()


def load_for_facts() -> dict[str, Rule]:
    """The same of the rules that can be asked where there is nothing but the facts of nodes."""
    return dict(sorted((rule.code, rule) for area in AREAS_OF_FACTS for rule in load_area(area)))


def load_for_files() -> dict[str, Rule]:
    """The same of the rules that can be asked where there is nothing but what a run left behind."""
    _import(OF_FILES)
    kept = [code for code, rule in RULES.items() if _is_of_files(rule.area, rule.module)]
    return {code: RULES[code] for code in sorted(kept)}


@functools.cache
def _is_of_files(area: str, module: str) -> bool:
    return area.startswith("log_") or module.startswith(tuple(f"{_RULES}{place}" for place in OF_FILES))


def _import(places: tuple[str, ...]) -> None:
    from allready.judging import signature_rules  # not for the facts of one machine, which have no log lines

    for place in places:
        if "." in place:
            importlib.import_module(f"{_RULES}{place}")
        else:
            load_area(place)
    signature_rules.register()


@functools.cache
def load_area(area: str) -> tuple[Rule, ...]:
    """Import the rules of one folder, sorted by code."""
    package = importlib.import_module(f"{_RULES}{area}")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return tuple(RULES[code] for code in sorted(RULES) if RULES[code].area == area)
