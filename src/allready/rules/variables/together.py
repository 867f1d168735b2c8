"""Settings that need or exclude each other."""

from collections.abc import Callable, Iterator, Mapping

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, PerNode, Setting, Settings, Severity, SoftwareFacts
from allready.names import BUFFER_SIZE_VARIABLES
from allready.rules.variables._settings import Same, hit, remedy, versions
from allready.variables import table
from allready.variables.values import is_on, number
from allready.variables.versions import found_of, is_before

MAX_SOCKETS = 64
"""The greatest product of NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD."""


@Rule(
    code="VAR024",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="Settings that contradict each other",
    message="{name}={value} and {other}={other_value} do not go together[[: {counts} is what counts]]",
    remedy=remedy(
        "[[remove one of {name} and {either}|count from 0, so that {name} is less than {least}|make both agree]][[ "
        "(line {other_line} of {other_file})]]"
    ),
)
def settings_contradict(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    An old and a new name of one setting with different values; torch's blocking wait beside its asynchronous error
    handling; NCCL_ALGO=NVLS with NCCL_NVLS_ENABLE=0; NCCL_NET=IB with NCCL_IB_DISABLE=1; a least number of channels or
    CTAs above the greatest; more than 64 sockets per connection; MNNVL without NCCL's cuMem allocation; JAX's fraction
    of memory under two names, or with an allocator that does not use it; a rank that is not below the number of ranks.
    ## Why it matters
    One of the two has no effect, and which one is in the source of the library only. Some pairs end the job at start.
    ## Check by hand
    With NCCL_DEBUG=INFO NCCL prints what it takes from the environment.
    ## When it is harmless
    When the line that does not count is a leftover.
    """
    done: set[tuple[str, str, str]] = set()
    for part in settings.environments() if not settings.is_guide else ():  # each block of a guide stands for itself
        for one, other, counts in _contradictions(part):
            if (one.name, one.place, other.name) in done:
                continue
            done.add((one.name, one.place, other.name))
            yield hit(
                Same((one,)),
                more=[other],
                other=other.name,
                either=None if one.name in _COUNTS else other.name,
                least=other.name if one.name in _COUNTS else None,
                other_value=other.value,
                counts=counts,
                other_file=other.source if other.line is not None else None,
                other_line=other.line,
            )


Contradiction = tuple[Setting, Setting, str | None]


def _contradictions(settings: Settings) -> Iterator[Contradiction]:
    for check in (_pairs, _renamed, _least_and_most, _sockets, _ranks):
        yield from check(settings)


def _renamed(settings: Settings) -> Iterator[Contradiction]:
    """Old and new name with different values, of which the new one counts; JAX raises an error for both together."""
    one, other = settings.last("XLA_PYTHON_CLIENT_MEM_FRACTION"), settings.last("XLA_CLIENT_MEM_FRACTION")
    if one and other:
        yield one, other, None
    for old in {s.name: s for s in settings.settings}.values():
        row = table.load().get(old.name)
        new = settings.last(row.use) if row and row.deprecated and not row.is_folk else None
        if row and new and None not in {old.value, new.value} and not _same(row, old, new):
            yield old, new, f"{new.name}={new.value}"


def _same(row: table.Variable, old: Setting, new: Setting) -> bool:
    if old.value == new.value:
        return True
    if row.type is table.Type.BOOL:
        return is_on(row, old.value or "") == is_on(row, new.value or "")
    return number(old.value or "") is not None and number(old.value or "") == number(new.value or "")


def _is(name: str) -> Callable[[str], bool]:
    return lambda value: is_on(table.load()[name], value)


def _off(value: str) -> bool:
    return value.strip() == "0"


_CONFLICTS: tuple[tuple[str, Callable[[str], bool], str, Callable[[str], bool], str], ...] = (
    (
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", lambda v: v.strip() in {"1", "2", "3"},
        "TORCH_NCCL_BLOCKING_WAIT", _is("TORCH_NCCL_BLOCKING_WAIT"), "TORCH_NCCL_BLOCKING_WAIT",
    ),
    (
        "NCCL_ALGO", lambda v: v.upper() in {"NVLS", "NVLSTREE", "NVLS,NVLSTREE"},
        "NCCL_NVLS_ENABLE", _off, "NCCL_NVLS_ENABLE",
    ),
    ("NCCL_NET", lambda v: v.upper() == "IB", "NCCL_IB_DISABLE", lambda v: v.strip() == "1", "NCCL_IB_DISABLE"),
    ("NCCL_MNNVL_ENABLE", lambda v: v.strip() == "1", "NCCL_CUMEM_ENABLE", _off, "NCCL_CUMEM_ENABLE"),
    (
        "XLA_CLIENT_MEM_FRACTION", bool,
        "XLA_PYTHON_CLIENT_ALLOCATOR", lambda v: v.lower() == "platform", "XLA_PYTHON_CLIENT_ALLOCATOR",
    ),
)  # fmt: skip
"""(name, its value, other name, its value, which one counts)."""


def _pairs(settings: Settings) -> Iterator[Contradiction]:
    for name, fits, other_name, other_fits, counts in _CONFLICTS:
        one, other = _last(settings, name), _last(settings, other_name)
        if one and other and one.value and other.value and fits(one.value) and other_fits(other.value):
            yield one, other, counts


def _last(settings: Settings, name: str) -> Setting | None:
    """The setting under this name, or under an older one."""
    old = (n for n, row in table.load().items() if row.use == name and row.deprecated and not row.is_folk)
    return settings.last(name) or next(filter(None, map(settings.last, old)), None)


def _least_and_most(settings: Settings) -> Iterator[Contradiction]:
    for name in ("NCHANNELS", "CTAS", "P2P_NCHANNELS"):
        one, other = settings.last(f"NCCL_MIN_{name}"), settings.last(f"NCCL_MAX_{name}")
        if one and other:
            least, most = number(one.value or ""), number(other.value or "")
            if least is not None and most is not None and least > most > 0:
                yield one, other, other.name


def _sockets(settings: Settings) -> Iterator[Contradiction]:
    one, other = settings.last("NCCL_SOCKET_NTHREADS"), settings.last("NCCL_NSOCKS_PERTHREAD")
    if one and other:
        threads, sockets = number(one.value or "") or 0, number(other.value or "") or 0
        if threads * sockets > MAX_SOCKETS:
            yield one, other, f"{threads} x {sockets} <= {MAX_SOCKETS}"


_COUNTS = {
    "RANK": "WORLD_SIZE",
    "LOCAL_RANK": "LOCAL_WORLD_SIZE",
    "NODE_RANK": "NNODES",
    "GROUP_RANK": "GROUP_WORLD_SIZE",
}
"""A number that begins with 0 -> how many there are."""


_DIGITS = 10


def _ranks(settings: Settings) -> Iterator[Contradiction]:
    for name, count in _COUNTS.items():
        one, other = settings.last(name), settings.last(count)
        texts = [s.value or "" for s in (one, other) if s]
        if one and other and all(t.isdecimal() and len(t) < _DIGITS for t in texts) and int(texts[0]) >= int(texts[1]):
            yield one, other, None


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
FIRST_WITH_BUFFER, FIRST_FR_NAME = (2, 9), (2, 8)


@Rule(
    code="VAR023",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
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
    sizes = [(name, found) for name in BUFFER_SIZE_VARIABLES if (found := settings.last(name)) is not None]
    if any(found.value is None for _, found in sizes):
        return ""
    if sizes:
        name, found = sizes[0]
        return f"{name}=2000" if number(found.value or "") == 0 else ""
    torch = found_of("torch", have)
    if not torch or not is_before(torch, FIRST_WITH_BUFFER):
        return ""
    return f"{BUFFER_SIZE_VARIABLES[is_before(torch, FIRST_FR_NAME)]}=2000"
