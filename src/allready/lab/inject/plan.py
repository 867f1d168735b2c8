"""What is to be injected: read from a command line, checked, and written down for the ranks."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from allready.errors import UsageError
from allready.lab.faults import FAULTS, Fault, from_mapping
from allready.lab.faults.catalog import parameters
from allready.lab.inject.kinds import CHOICES, CHOICES_OF, KINDS, FaultKind, Value
from allready.text.usage import did_you_mean

HOOK = Path(__file__).with_name("hook")
"""The folder that goes onto PYTHONPATH."""
PLAN_VARIABLE = "ALLREADY_LAB_INJECT"
PLAN_FILE = "plan.json"


class RankFault(Struct, frozen=True, kw_only=True):
    """A fault in a rank, checked.  `step` counts from 0; `at` "import": when the rank has imported its framework."""

    id: int
    kind: str
    rank: int | str  # "all" where the kind allows it
    step: int = 0
    at: str = "step"
    values: Mapping[str, Value] = {}

    def as_dict(self) -> dict[str, Any]:
        layer = KINDS[self.kind].layer if self.kind in KINDS else "driver"
        own = {"id": self.id, "kind": self.kind, "rank": self.rank, "step": self.step, "at": self.at, "layer": layer}
        return own | dict(self.values)


class NetFault(Struct, frozen=True, kw_only=True):
    """A fault of the lab's network or nodes that comes at a step of a rank, or `after_s` seconds after the start.

    `repeat`: it is applied and lifted so often (`up_s` between); `lasts_s` None: until the end.
    """

    id: int
    fault: Fault
    step: int | None = None
    rank: int = 0
    after_s: float = 0.0
    lasts_s: float | None = None
    repeat: int = 1
    up_s: float = 5.0


class FaultPlan(Struct, frozen=True, kw_only=True):
    """Everything to be injected into one job.  `step_of`: as in `plan_of`."""

    rank_faults: tuple[RankFault, ...] = ()
    net_faults: tuple[NetFault, ...] = ()
    step_of: str = "auto"
    seed: int = 0

    def write(self, folder: Path) -> dict[str, str]:
        """Write it into `folder`, which the truth will go to; gives what the ranks' environment needs."""
        folder.mkdir(parents=True, exist_ok=True)
        marks = [
            RankFault(id=f.id, kind="mark", rank=f.rank, step=f.step).as_dict()
            for f in self.net_faults
            if f.step is not None
        ]
        plan = {
            "folder": str(folder.absolute()),
            "seed": self.seed,
            "step_of": self.step_of,
            "faults": [f.as_dict() for f in self.rank_faults] + marks,
        }
        (folder / PLAN_FILE).write_text(json.dumps(plan, indent=1), encoding="utf-8")
        return {PLAN_VARIABLE: str(folder.absolute() / PLAN_FILE)}


def python_path(now: str | None) -> str:
    """PYTHONPATH with the hook in front."""
    return f"{HOOK}:{now}" if now else str(HOOK)


def plan_of(wanted: Sequence[Sequence[str]], *, step_of: str = "auto", seed: int = 0) -> FaultPlan:
    """A plan from the words of a command line: KIND PARAMETER=VALUE ..., one sequence for each fault."""
    if step_of not in {"auto", "optimizer", "collective", "jit"} and not re.fullmatch(r"[\w.]+:[\w.]+", step_of):
        raise UsageError(
            "--step-of {step_of!r}: write auto, optimizer, collective, jit, or MODULE:FUNCTION", step_of=step_of
        )
    in_ranks: list[RankFault] = []
    in_net: list[NetFault] = []
    for number, words in enumerate(wanted, 1):
        values = parameters(words)
        kind = words[0] if words else ""
        if kind in KINDS:
            in_ranks.append(rank_fault(number, kind, values))
        elif kind in FAULTS:
            in_net.append(net_fault(number, kind, values))
        else:
            raise UsageError(
                "unknown fault {kind!r}; valid: {known}",
                kind=kind,
                known=", ".join([*KINDS, *FAULTS]) + did_you_mean(kind, [*KINDS, *FAULTS]),
            )
    return FaultPlan(rank_faults=tuple(in_ranks), net_faults=tuple(in_net), step_of=step_of, seed=seed)


def usage(kind: FaultKind) -> str:
    """The parameters of a fault in one line, as `lab.faults.catalog.usage` writes them."""
    words = [f"rank=N{'|all' if kind.allows_all else ''}", "step=N"]
    for name, default in kind.parameters.items():
        words.append(f"{name}=NUMBER" if default is None else f"[{name}={str(default).removesuffix('.0')}]")
    return " ".join(words)


def rank_fault(number: int, kind_name: str, given: Mapping[str, Any]) -> RankFault:
    """A checked fault in a rank; numbers may be text."""
    kind, values = KINDS[kind_name], dict(given)

    def refuse(why: str) -> UsageError:
        return UsageError(
            "fault {kind_name}: {why}; its parameters: {parameters}",
            kind_name=kind_name,
            why=why,
            parameters=usage(kind),
        )

    rank_text, step_text = str(values.pop("rank", "")), str(values.pop("step", "0"))
    at = str(values.pop("at", "step"))
    module = str(values.pop("module", "torch"))
    if step_text == "import":
        at, step_text = "import", "0"
    if rank_text == "all" and kind.allows_all:
        rank: int | str = "all"
    elif rank_text.isdecimal():
        rank = int(rank_text)
    else:
        raise refuse("rank is a number" + (" or all" if kind.allows_all else ""))
    if not step_text.isdecimal():
        raise refuse("step is a number from 0, or import")
    if at == "import" and kind.layer != "process":
        raise refuse("only what happens to the process itself can come at the import")
    if at not in CHOICES["at"] or module not in CHOICES["module"]:
        raise refuse(f"at is one of {', '.join(CHOICES['at'])}, module one of {', '.join(CHOICES['module'])}")
    if unknown := sorted(set(values) - set(kind.parameters)):
        raise refuse(f"it has no parameter {unknown[0]!r}")
    read = {name: _read(kind, name, values.get(name, default), refuse) for name, default in kind.parameters.items()}
    if kind_name == "slow" and not read["percent"] and not read["ms"]:
        raise refuse("give percent or ms")
    if kind_name == "root" and read["root"] == -1:
        del read["root"]
    if at == "import":
        read["module"] = module
    return RankFault(id=number, kind=kind_name, rank=rank, step=int(step_text), at=at, values=read)


def _read(kind: FaultKind, name: str, value: Any, refuse: Callable[[str], UsageError]) -> Value:
    default = kind.parameters[name]
    choices = CHOICES_OF.get((kind.name, name)) or CHOICES.get(name)
    if value is None:
        raise refuse(f"it needs {name}")
    if choices is not None:
        text = str(value).removeprefix("SIG") if name == "signal" else str(value)
        if text not in choices:
            raise refuse(f"{name} is one of {', '.join(choices)}, not {value!r}")
        return text
    number: int | float
    if isinstance(default, str):
        return str(value)
    if name.endswith("_bytes") and (match := re.fullmatch(r"(\d+)([KMG])(?:i?B)?", str(value))):
        return int(match.group(1)) << 10 * " KMG".index(match.group(2))
    try:
        number = int(str(value)) if isinstance(default, int) else float(value)
    except ValueError:
        raise refuse(f"{name} is a number, not {value!r}") from None
    if number != number or (number < 0 and name not in {"elements", "root"}) or number > 1e12:
        raise refuse(f"{name} makes no sense as {value!r}")
    return number


def net_fault(number: int, kind_name: str, given: Mapping[str, Any]) -> NetFault:
    """A checked fault of the lab: its parameters and its times: `step` and `rank` or `start_s`, `lasts_s`, `repeat`."""
    values = dict(given)
    if FAULTS[kind_name].scenario_only:
        return NetFault(id=number, fault=from_mapping({"fault": kind_name, **values}))

    def number_of(name: str, default: float) -> float:
        text = str(values.pop(name, default))
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not 0 <= found < 1e6:
            raise UsageError(
                "fault {kind_name}: {name} is a number from 0, not {text!r}", kind_name=kind_name, name=name, text=text
            )
        return found

    step = int(number_of("step", 0)) if "step" in values else None
    rank, after_s = int(number_of("rank", 0)), number_of("start_s", 0)
    lasts_s = number_of("lasts_s", 0) if "lasts_s" in values else None
    repeat, up_s = int(number_of("repeat", 1)), number_of("up_s", 5)
    if repeat != 1 and lasts_s is None:
        raise UsageError("fault {kind_name}: repeat needs lasts_s", kind_name=kind_name)
    fault = from_mapping({"fault": kind_name, **values})
    return NetFault(
        id=number, fault=fault, step=step, rank=rank, after_s=after_s, lasts_s=lasts_s, repeat=max(repeat, 1), up_s=up_s
    )
