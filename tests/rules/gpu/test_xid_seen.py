from msgspec.structs import replace

from allready.facts.gpu import _xids
from allready.model import FactMissing, GpuFacts, Severity, Xid
from tests.facts.saved_host import SavedHost
from tests.fleets import check, commands, fleet, healthy_node


def xids(*codes: int, age_s: float = 600.0) -> GpuFacts:
    facts = healthy_node(0, 1).gpu
    assert isinstance(facts, GpuFacts)
    bus = facts.gpus[1].pci_bus_id.lower().partition(".")[0]
    return replace(facts, xids=tuple(Xid(pci_bus_id=bus, code=c, age_s=age_s, text=f"NVRM: Xid ({c})") for c in codes))


def test_names_the_node_and_what_is_wrong_there() -> None:
    [hit] = check("GPU012", fleet(2, gpu={1: xids(31, 79)})).hits
    assert hit.culprits.nodes == (1,)
    assert {name: hit.values[name] for name, _ in EXPECTED} == dict(EXPECTED)


EXPECTED = (("gpu", 1), ("xid", 79))


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {"of programs": xids(13, 31, 43, 45), "contained": xids(63, 94), "none": xids()}
    wrong = [name for name, facts in harmless.items() if check("GPU012", fleet(2, gpu={0: facts, 1: facts})).hits]
    assert not wrong


BUS = "0000:3b:00"
SWITCH = "0000:c3:00.0"
CHANGED = "GPU recovery action changed from "
RESET, NONE = f"{CHANGED}0x0 (None) to 0x1 (GPU Reset Required)", f"{CHANGED}0x1 (GPU Reset Required) to 0x0 (None)"


def said(*rows: tuple[str, int, str]) -> GpuFacts:
    """The facts of these lines, as they are read: an address, a code and what follows it."""
    facts = healthy_node(0, 1).gpu
    assert isinstance(facts, GpuFacts)
    first = replace(facts.gpus[0], pci_bus_id="00000000:3B:00.0")
    log = [
        [60.0, f"{'nvidia-nvswitch0: SXid' if code > 9999 else 'NVRM: Xid'} (PCI:{bus}): {code}, {text}"]
        for bus, code, text in rows
    ]
    xids = _xids(SavedHost({"probes": {"kernel_log": log}}))
    assert len(xids) == len(rows)
    return replace(facts, gpus=(first, *facts.gpus[1:]), xids=xids)


def test_says_what_the_driver_says_that_the_gpu_needs() -> None:
    [hit] = check("GPU012", fleet(1, gpu={0: said((BUS, 154, RESET))})).hits
    assert (hit.values["gpu"], hit.values["action"]) == (0, "GPU Reset Required")
    assert commands("GPU012", hit)[0] == "sudo nvidia-smi --gpu-reset -i 0"


def test_after_nothing_is_needed_any_more_earlier_ones_do_not_count() -> None:
    assert check("GPU012", fleet(1, gpu={0: said((BUS, 79, "off the bus"), (BUS, 154, NONE))})).state == "clear"
    assert check("GPU012", fleet(1, gpu={0: said((BUS, 154, NONE), (BUS, 79, "off the bus"))})).hits


def test_links_and_switches_count_where_they_say_that_it_is_fatal() -> None:
    for code, text in ((74, "NVLink: fatal error detected on link 14"), (149, "NETIR_LINK_EVT, Fatal, XC1")):
        assert check("GPU012", fleet(1, gpu={0: said((BUS, code, text))})).hits, text
    for code, text in ((145, "RLW, nonfatal, cross-contain=0"), (74, "NVLink: inactive"), (149, "Non-fatal, Link 3")):
        assert check("GPU012", fleet(1, gpu={0: said((BUS, code, text))})).state == "clear", text
    [hit] = check("GPU012", fleet(1, gpu={0: said((SWITCH, 20034, "Fatal, Link 48 LTSSM Fault Up"))})).hits
    assert (hit.values["gpu"], hit.values["switch"], hit.values["sxid"]) == (None, SWITCH, 20034)
    assert commands("GPU012", hit)[0] == "sudo nvidia-smi --gpu-reset"
    assert check("GPU012", fleet(1, gpu={0: said((SWITCH, 20009, "Non-fatal, Link 28 RX"))})).state == "clear"


def test_healthy_nodes_are_clear() -> None:
    assert check("GPU012", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU012", fleet(2, gpu={1: FactMissing("no /proc")})).unchecked == {1: "no /proc"}


def test_an_old_one_is_information() -> None:
    [hit] = check("GPU012", fleet(1, gpu={0: xids(79, age_s=90_000.0)})).hits
    assert hit.severity is Severity.INFO
