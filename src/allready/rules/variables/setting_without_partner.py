"""VAR023."""

from collections.abc import Iterator, Mapping

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, PerNode, Setting, Settings, Severity, SoftwareFacts
from allready.rules.variables._settings import Same, hit, remedy, versions
from allready.variables import table
from allready.variables.values import is_on, number
from allready.variables.versions import found_of, is_before

_LOGS = ("WARN", "INFO", "TRACE", "VERSION", "ABORT")
_NEEDS = {
    "NCCL_DEBUG_SUBSYS": "NCCL_DEBUG=INFO",
    "NCCL_DEBUG_FILE": "NCCL_DEBUG=INFO",
    "NCCL_DEBUG_TIMESTAMP_FORMAT": "NCCL_DEBUG=WARN",
    "NCCL_INSPECTOR_ENABLE": "NCCL_PROFILER_PLUGIN",
    "NCCL_INSPECTOR_DUMP_DIR": "NCCL_INSPECTOR_ENABLE=1",
    "NCCL_OOB_NET_IFNAME": "NCCL_OOB_NET_ENABLE=1",
}
"""Variable -> what has to be set for it to have an effect."""
_SWITCHED = {"NCCL_P2P_LEVEL": "NCCL_P2P_DISABLE", "NCCL_P2P_READ_ENABLE": "NCCL_P2P_DISABLE"}
"""Variable -> the switch that takes its transport away."""
_DUMPS = {"TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT"}
_BUFFERS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Sizes of the Flight Recorder: 0 before torch 2.9 unless one is set."""
FIRST_WITH_BUFFER, FIRST_FR_NAME = (2, 9), (2, 8)


@Rule(
    code="VAR023",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A setting that needs another one",
    message="{name}={value} has an effect only with {partner}",
    remedy=remedy("set {partner} as well, or remove {name}"),
)
def setting_without_partner(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE without a level in NCCL_DEBUG, the Inspector's variables without the plugin,
    the dump on timeout with a Flight Recorder of no entries, NCCL_OOB_NET_IFNAME without NCCL_OOB_NET_ENABLE, and
    options of InfiniBand beside NCCL_IB_DISABLE=1, and of P2P beside NCCL_P2P_DISABLE=1.
    ## Why it matters
    The log, the dump or the tuning that was asked for does not come.
    ## Check by hand
    `env | grep NAME` in the job itself.
    ## When it is harmless
    When the other one is set elsewhere: in the image, in /etc/nccl.conf, by the scheduler.
    """
    done: set[tuple[str, str]] = set()
    for part in settings.environments() if not settings.is_guide else ():
        for setting in {s.name: s for s in part.settings}.values():
            is_dump = setting.name in _DUMPS
            partner = _buffer(setting, part, versions(software)) if is_dump else _missing(setting, part)
            if partner and (setting.name, setting.place) not in done:
                done.add((setting.name, setting.place))
                yield hit(Same((setting,)), partner=partner, confidence=Confidence.LIKELY)


def _missing(setting: Setting, settings: Settings) -> str:
    """What the setting needs and does not have; "" where nothing is missing, or where a value is not known."""
    if not setting.value or setting.name not in table.load():
        return ""
    is_of_ib = setting.name.startswith("NCCL_IB_") and setting.name != "NCCL_IB_DISABLE"
    if switch := "NCCL_IB_DISABLE" if is_of_ib else _SWITCHED.get(setting.name):
        return f"{switch}=0" if (settings.value(switch) or "").strip() == "1" else ""
    needed = _NEEDS.get(setting.name, "")
    name, _, value = needed.partition("=")
    if not needed:
        return ""
    found = settings.last(name)
    if found is None:
        return needed
    if found.value is None:
        return ""
    fits = found.value.upper() in _LOGS if name == "NCCL_DEBUG" else not value or found.value.strip() != "0"
    return "" if fits else needed


def _buffer(setting: Setting, settings: Settings, have: Mapping[str, str]) -> str:
    """The size that a dump needs: where it is 0, or not set with a torch whose default is 0."""
    if setting.value is None or not is_on(table.load()[setting.name], setting.value):
        return ""
    sizes = [(name, found) for name in _BUFFERS if (found := settings.last(name)) is not None]
    if any(found.value is None for _, found in sizes):
        return ""
    if sizes:
        name, found = sizes[0]
        return f"{name}=2000" if number(found.value or "") == 0 else ""
    torch = found_of("torch", have)
    if not torch or not is_before(torch, FIRST_WITH_BUFFER):
        return ""
    return f"{_BUFFERS[is_before(torch, FIRST_FR_NAME)]}=2000"
