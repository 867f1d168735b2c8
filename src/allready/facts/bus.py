"""The PCI bus of a machine with GPUs: bridges, ACS, IOMMU and NUMA nodes, as facts."""

import msgspec

from allready.errors import FactUnavailable
from allready.facts.gpu import MAX_GPUS
from allready.facts.host import Host, names_in, text_of
from allready.model import BusFacts, PciGpu
from allready.proc.process import status_field

BUS_S = 1.0
GROUPS = "/sys/kernel/iommu_groups"
MAX_GROUPS = 256
ON = frozenset({"intel_iommu=on", "amd_iommu=on", "iommu=on", "iommu=force"})


def collect_bus(host: Host, *, timeout_s: float = BUS_S) -> BusFacts:
    """Where the GPUs sit; without GPUs on the bus only what follows from the processor and the IOMMU.

    Raises:
        FactUnavailable: the bus cannot be read.
    """
    answer = host.probe("pci", timeout_s=timeout_s)
    try:
        gpus = msgspec.convert(answer["gpus"][:MAX_GPUS], tuple[PciGpu, ...])
        redirects = {str(row["address"]): row["redirects"] for row in answer["bridges"]}
    except (KeyError, TypeError, ValueError) as error:
        raise FactUnavailable("the list of PCI devices is not readable: {error}", error=type(error).__name__) from error
    return BusFacts(
        gpus=gpus,
        redirecting=tuple(name for name, does in redirects.items() if does),
        num_unread=sum(does is None for does in redirects.values()),
        iommu=iommu(host),
        is_virtual=is_virtual(host),
        usable_cpus=status_field(text_of(host, "/proc/self/status"), "Cpus_allowed_list"),
    )


def iommu(host: Host) -> str | None:
    """What most devices have: "off" (no group), "passthrough" (identity) or "translated"; None where it is not
    known."""
    names = names_in(host, GROUPS)[:MAX_GROUPS]
    if not names:
        return "off" if names_in(host, "/sys/kernel") else None
    kinds = [text_of(host, f"{GROUPS}/{name}/type").strip() for name in names]
    same = sum(kind == "identity" for kind in kinds)
    translated = sum(kind.startswith("DMA") for kind in kinds)
    if not same and not translated:  # an older kernel, which does not tell
        words = text_of(host, "/proc/cmdline").split()
        return "passthrough" if "iommu=pt" in words else "translated" if ON.intersection(words) else None
    return "translated" if translated >= same else "passthrough"


def is_virtual(host: Host) -> bool | None:
    """Whether the processor says that it runs under a hypervisor."""
    for line in text_of(host, "/proc/cpuinfo").splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == "flags":
            return "hypervisor" in value.split()
    return None
