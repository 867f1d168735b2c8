"""Settings made up for the rules about them, and the machine that they meet."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from allready.model import Hit, Interface, NetFacts, RdmaFacts, RdmaPort, Settings, SoftwareFacts
from allready.variables.sources.parsed import read_environment
from allready.variables.sources.read import read_text
from tests.fleets import check, fleet


def settings(*files: tuple[str, str], here: Mapping[str, str] | None = None, **changes: Any) -> Settings:
    """What files (name, text) and an environment assign."""
    parsed = [read_text(name, text) for name, text in files]
    if here is not None:
        parsed.append(read_environment(here))
    return Settings(
        settings=tuple(s for p in parsed for s in p.settings),
        calls=tuple(c for p in parsed for c in p.calls),
        malformed=tuple(m for p in parsed for m in p.malformed),
        used=frozenset().union(*(p.used for p in parsed)),
        loaders=tuple(plan for p in parsed for plan in p.loaders),
        meetings=tuple(plan for p in parsed for plan in p.meetings),
        one_gpu_per_task=any(p.one_gpu_per_task for p in parsed),
        **changes,
    )


def script(*lines: str, **changes: Any) -> Settings:
    """A shell script with these lines."""
    return settings(("train.sh", "\n".join(lines) + "\n"), **changes)


def here(**variables: str) -> Settings:
    """An environment."""
    return settings(here=variables)


def hits(code: str, made: Settings, **facts: Any) -> tuple[Hit, ...]:
    """What a rule finds on a healthy machine, changed as given (each fact is that of the machine)."""
    outcome = check(code, fleet(1, settings=made, **{name: {0: fact} for name, fact in facts.items()}))
    assert outcome.crash is None, outcome.crash
    return outcome.hits


def values(code: str, made: Settings, **facts: Any) -> Mapping[str, object]:
    """The values of the one thing that a rule finds."""
    [hit] = hits(code, made, **facts)
    return hit.values


def clear(code: str, made: Settings, **facts: Any) -> bool:
    return not hits(code, made, **facts)


def software(**versions: str) -> SoftwareFacts:
    return SoftwareFacts(versions=versions)


def interface(name: str, *addresses: str, **changes: Any) -> Interface:
    plain = Interface(name=name, is_up=True, is_loopback=name == "lo", mtu_bytes=1500, addresses=addresses)
    return replace(plain, **changes)


def net(*names: str) -> NetFacts:
    """lo and these interfaces, each with an address."""
    cards = [interface(name, f"10.0.{place}.1/24") for place, name in enumerate(names)]
    return NetFacts(interfaces=(interface("lo", "127.0.0.1/8"), *cards))


def rdma(*devices: str, **changes: Any) -> RdmaFacts:
    """A port of each device, an ACTIVE one of InfiniBand unless changed."""
    ports = [
        RdmaPort(device=device, port=1, state="ACTIVE", physical_state="LinkUp", link_layer="InfiniBand")
        for device in devices
    ]
    return RdmaFacts(ports=tuple(replace(port, **changes) for port in ports))
