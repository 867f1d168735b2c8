from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, GpuFacts, GpuPair, P2pStatus
from allready.model.fill import in_english
from tests.fleets import check, fleet
from tests.rules.gpu.made_up import gpus

OFF = P2pStatus.CHIPSET
OK = P2pStatus.OK


def four(*statuses: P2pStatus | None, level: str | tuple[str, ...] = "PXB", **changes: Any) -> GpuFacts:
    """Four GPUs; the status of their pairs 0-1, 0-2, 0-3, 1-2, 1-3, 2-3, the last one for all others."""
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    known = (*statuses, *[statuses[-1]] * 6)
    levels = level if isinstance(level, tuple) else (level,) * 6
    return replace(
        gpus(num=4, **changes),
        pairs=tuple(GpuPair(a=a, b=b, p2p=known[i], level=levels[i]) for i, (a, b) in enumerate(pairs)),
    )


def test_names_the_pairs_that_lack_what_their_like_have() -> None:
    [hit] = check("GPU018", fleet(2, gpu={1: four(OK, OFF, OK)})).hits
    assert hit.culprits.nodes == (1,)
    assert (hit.values["pairs"], in_english(hit.values["reason"]), hit.values["level"]) == ("0-2", "chipset", "PXB")


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    facts = four(OFF)
    bridged = four(OK, OFF)
    harmless = {
        "all on": four(OK),
        "consumer cards, off between all": facts,
        "a virtual machine": four(P2pStatus.NOT_SUPPORTED),
        "off between processors, on below a switch": four(
            OK, OFF, OFF, OFF, OFF, OK, level=("PIX", "SYS", "SYS", "SYS", "SYS", "PIX")
        ),
        "NVLink bridges for two": replace(bridged, gpus=tuple(replace(g, nvlinks=(True,) * 4) for g in bridged.gpus)),
        "another model": replace(
            four(OK, OK, P2pStatus.GPU, OK, P2pStatus.GPU, P2pStatus.GPU),
            gpus=tuple(replace(g, name="NVIDIA T400" if g.index == 3 else g.name) for g in facts.gpus),
        ),
        "not told": four(None),
        "an older report": replace(facts, pairs=()),
    }
    wrong = [name for name, one in harmless.items() if check("GPU018", fleet(1, gpu={0: one})).hits]
    assert not wrong


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU018", fleet(2, gpu={1: FactMissing("no NVML")})).unchecked == {1: "no NVML"}


def test_healthy_nodes_are_clear() -> None:
    assert check("GPU018", fleet(3)).state == "clear"
