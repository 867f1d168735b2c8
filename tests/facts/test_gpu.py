import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allready.errors import FactUnavailable
from allready.facts import nvml
from allready.facts.gpu import SMI_GPUS, SMI_PROCESSES, _process, collect_gpu, parse_nvml, visible_gpus
from allready.facts.live import LiveHost
from allready.model import Gpu
from allready.report import facts_table
from tests.cases import cases
from tests.clock import Stopwatch, until
from tests.facts.saved_host import SavedHost

GIB = 2**30


def gpu(index: int, uuid: str) -> Gpu:
    return Gpu(
        index=index,
        uuid=uuid,
        name="NVIDIA H200",
        pci_bus_id=f"0000000{index}:00:00.0",
        memory_total_bytes=141 * GIB,
        memory_used_bytes=0,
    )


GPUS = (gpu(0, "GPU-aaaa-1"), gpu(1, "GPU-aabb-2"), gpu(2, "GPU-cccc-3"), gpu(3, "GPU-dddd-4"))
MIG = {"MIG-1111-a": 2, "MIG-1111-b": 2, "MIG-2222-c": 3}


@cases(
    ("value", "left"),
    [
        (None, (0, 1, 2, 3)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0,1", (0, 1)),
        ("3,1", (3, 1)),
        ("0,-1,2", (0,)),  # ends at the first that is no GPU
        ("0,9,2", (0,)),
        ("1,1", ()),  # named twice: nothing at all
        (" 2 , 3", (2, 3)),
        ("2x", (2,)),
        ("GPU-aaaa,GPU-cccc-3", (0, 2)),
        ("gpu-aaaa", ()),  # the prefix is matched as it is written
        ("GPU-aa", ()),  # fits two
        ("GPU-none", ()),
        ("MIG-1111-a", (2,)),
        ("MIG-1111-a,MIG-1111-b,MIG-2222-c", (2, 3)),
        ("MIG-1111-a,MIG-1111-a", ()),
        ("MIG-GPU-cccc-3/1/0", (2,)),
        ("MIG-unknown", ()),
    ],
)
def test_reads_cuda_visible_devices_as_cuda_does(value: str | None, left: tuple[int, ...]) -> None:
    assert visible_gpus(value, GPUS, MIG) == left


def answer(**changes: Any) -> dict[str, Any]:
    return {
        "driver_version": "580.1",
        "cuda_version": "13.0",
        "gpus": [
            {
                "index": 0,
                "uuid": "GPU-a",
                "name": "NVIDIA H200",
                "pci_bus_id": "00000000:01:00.0",
                "memory_total_bytes": 141 * GIB,
                "memory_used_bytes": GIB,
                "mig": [],
                "processes": [
                    {"pid": 71, "used_bytes": GIB},
                    {"pid": 72, "used_bytes": None},
                    {"pid": 73, "used_bytes": 5},
                ],
            }
        ],
        **changes,
    }


PROC = {
    "/proc/71/maps": "7f00 /usr/lib/libcuda.so.1\n", "/proc/71/status": "Name:\tpython\nUid:\t1000\t1000\n",
    "/proc/71/cmdline": "python\0train.py\0--token=abc\0", "/etc/passwd": "ann:x:1000:1000::/:/bin/sh\n",
    "/proc/72/maps": "7f00 /usr/bin/bash\n", "/proc/72/cmdline": "bash\0", "/proc/72/status": "Uid:\t1000\n",
    "/proc/73/cmdline": "", "/proc/73/comm": "kworker\n", "/proc/73/status": "Uid:\t4242\t4242\n",
}  # fmt: skip


def saved(probes: dict[str, Any], commands: dict[str, Any] | None = None, **environ: str) -> SavedHost:
    return SavedHost(
        {
            "dirs": {"/dev": ["null", "nvidiactl"]},
            "files": PROC,
            "probes": probes,
            "commands": commands or {},
            "environ": environ,
        }
    )


def test_asks_no_child_where_there_is_no_driver() -> None:
    facts = collect_gpu(SavedHost({"dirs": {"/dev": ["null"]}, "environ": {"CUDA_VISIBLE_DEVICES": "0"}}), timeout_s=1)
    assert (facts.gpus, facts.driver_version, facts.visible, facts.visible_devices) == ((), None, (), "0")


def test_names_the_processes_that_hold_memory_and_no_innocent_one() -> None:
    [found] = collect_gpu(saved({"gpus": answer()}), timeout_s=1).gpus
    first, second, third = found.processes
    assert (first.user, first.command, first.used_bytes) == ("ann", "python train.py --token=(redacted)", GIB)
    # 72 has not mapped the driver: in this container the number belongs to another process.
    assert (second.pid, second.user, second.command) == (72, None, None)
    assert (third.user, third.command) == ("uid 4242", "[kworker]")


def test_reads_nvml() -> None:
    facts = collect_gpu(saved({"gpus": answer()}, CUDA_VISIBLE_DEVICES="GPU-a"), timeout_s=1)
    assert (facts.driver_version, facts.cuda_version, facts.visible) == ("580.1", "13.0", (0,))
    assert facts.gpus[0].memory_total_bytes == 141 * GIB


SMI_TEXT = (
    "0, GPU-a, NVIDIA H200, 00000000:01:00.0, 143771, 512, 580.1\n"
    "1, GPU-b, NVIDIA H200, 00000000:02:00.0, 143771, 4, 580.1\n"
)


def test_falls_back_to_nvidia_smi() -> None:
    commands = {" ".join(SMI_GPUS): SMI_TEXT, " ".join(SMI_PROCESSES): "GPU-b, 71, 300\nGPU-b, [N/A], [N/A]\n"}
    facts = collect_gpu(saved({"gpus": {"unavailable": "NVML: gone"}}, commands), timeout_s=1)
    assert [g.uuid for g in facts.gpus] == ["GPU-a", "GPU-b"]
    assert facts.gpus[1].memory_used_bytes == 4 * 2**20
    assert [(p.pid, p.used_bytes) for p in facts.gpus[1].processes] == [(71, 300 * 2**20)]
    assert (facts.driver_version, facts.cuda_version, facts.visible) == ("580.1", None, (0, 1))


@cases(
    "broken",
    [{"unavailable": "NVML: Driver/library version mismatch"}, None, [], {"gpus": [{}]}, {"gpus": 3},
     answer(gpus=[{"index": 3, "error": "GPU is lost"}])],
)  # fmt: skip
def test_gives_both_reasons_when_neither_answers(broken: Any) -> None:
    with pytest.raises(FactUnavailable, match="nvidia-smi") as caught:
        collect_gpu(saved({"gpus": broken}), timeout_s=1)
    if isinstance(broken, dict) and "unavailable" in broken:
        assert "version mismatch" in str(caught.value)
    if isinstance(broken, dict) and broken.get("driver_version"):
        assert "GPU 3: GPU is lost" in str(caught.value)


def test_does_not_take_an_error_message_for_a_table() -> None:
    commands = {" ".join(SMI_GPUS): "No devices were found\n"}
    with pytest.raises(FactUnavailable, match="no GPU"):
        collect_gpu(saved({"gpus": {"unavailable": "x"}}, commands), timeout_s=1)


class FakeNvml:
    """The calls of pynvml that the child makes, for two GPUs of which the second is lost."""

    class NVMLError(Exception):
        def __init__(self, text: str, value: int = 3) -> None:
            super().__init__(text)
            self.value = value

    nvmlMemory_v2 = 2  # noqa: N815 - NVML's name
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_NVLINK_MAX_LINKS = 36
    NVML_NVLINK_ERROR_DL_REPLAY, NVML_NVLINK_ERROR_DL_RECOVERY, NVML_NVLINK_ERROR_DL_CRC_FLIT = range(3)
    NVML_NVLINK_ERROR_DL_CRC_DATA = 3
    nvmlClocksThrottleReasonHwSlowdown = 8  # noqa: N815
    nvmlClocksThrottleReasonHwThermalSlowdown = 64  # noqa: N815
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 128  # noqa: N815
    nvmlClocksThrottleReasonSwThermalSlowdown = 32  # noqa: N815

    class c_nvmlGpuFabricInfo_t(ctypes.Structure):  # noqa: N801 - NVML's name
        _fields_ = [("state", ctypes.c_uint)]

    def nvmlDeviceGetGpuFabricInfo(self, handle: int, about: Any) -> None:  # noqa: N802
        ctypes.cast(about, ctypes.POINTER(self.c_nvmlGpuFabricInfo_t)).contents.state = 2

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        if link > 2:
            raise self.NVMLError("Invalid Argument")
        return int(link != 1)

    def nvmlDeviceGetNvLinkErrorCounter(self, handle: int, link: int, kind: int) -> int:  # noqa: N802
        if kind == self.NVML_NVLINK_ERROR_DL_CRC_DATA:
            raise self.NVMLError("Not Supported")
        return {self.NVML_NVLINK_ERROR_DL_REPLAY: 2 + link, self.NVML_NVLINK_ERROR_DL_CRC_FLIT: link // 2}.get(kind, 0)

    def __getattr__(self, name: str) -> Any:
        values: dict[str, Any] = {
            "nvmlDeviceGetMaxPcieLinkGeneration": 4,
            "nvmlDeviceGetGpuMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlSystemGetDriverVersion": b"580.1",
            "nvmlSystemGetCudaDriverVersion_v2": 13010,
            "nvmlDeviceGetCount": 2,
            "nvmlDeviceGetTotalEccErrors": 3,
            "nvmlDeviceGetRemappedRows": (1, 2, 1, 0),
            "nvmlDeviceGetRetiredPagesPendingStatus": 1,
            "nvmlDeviceGetComputeMode": 2,
            "nvmlDeviceGetUUID": "GPU-a",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetMaxMigDeviceCount": 0,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 8 | 32 | 4,
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetMigMode": (1, 1),
        }
        return lambda *_, **__: values[name]

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802 - NVML's name
        if index:
            raise self.NVMLError("GPU is lost", 15)
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return type("Pci", (), {"busId": "00000000:01:00.0"})

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> Any:  # noqa: N802
        return type("Memory", (), {"total": 100, "used": 5 if version else 50})

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return [type("Process", (), {"pid": 7, "usedGpuMemory": None})]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        raise self.NVMLError("Not Supported")


def test_the_child_tells_what_nvml_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert nvml.main() == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["driver_version"], found["cuda_version"]) == ("580.1", "13.1")
    assert found["gpus"][0]["memory_used_bytes"] == 5  # without the driver's reserve
    assert found["gpus"][0]["processes"] == [{"pid": 7, "used_bytes": None}]
    assert found["gpus"][0]["is_retirement_pending"]
    health = {"num_uncorrected": 3, "is_remap_pending": True, "has_remap_failed": False, "compute_mode": "prohibited"}
    assert health.items() <= found["gpus"][0].items()
    links = {"nvlinks": [True, False, True], "pcie_width": 8, "max_pcie_width": 16, "fabric_state": "in_progress"}
    clocks = {"slowdowns": ["hardware slowdown", "too hot (software)"], "is_mig": True, "num_mig": 0}
    links |= {"max_pcie_generation": 4, "own_pcie_generation": 5, "is_persistent": True}
    links |= {"nvlink_errors": {"replay": 2 + 3 + 4, "crc_flit": 1}}
    assert (links | clocks).items() <= found["gpus"][0].items()
    assert found["gpus"][1] == {"index": 1, "error": "GPU is lost", "is_lost": True}


class RegisteredNvml(FakeNvml):
    class c_nvmlGpuFabricInfo_t(ctypes.Structure):  # noqa: N801 - NVML's name
        _fields_ = [("status", ctypes.c_uint), ("state", ctypes.c_uint)]

    def __init__(self, state: int, status: int) -> None:
        self.state, self.status = state, status

    def nvmlDeviceGetGpuFabricInfo(self, handle: int, about: Any) -> None:  # noqa: N802
        found = ctypes.cast(about, ctypes.POINTER(self.c_nvmlGpuFabricInfo_t)).contents
        found.state, found.status = self.state, self.status


def test_the_status_of_the_fabric_counts_only_once_registering_has_ended() -> None:
    rows = {(3, 0): "completed", (3, 13): "failed", (2, 13): "in_progress", (0, 1): "not_supported"}
    for (state, status), word in rows.items():
        assert nvml._gpu(RegisteredNvml(state, status), 0)["fabric_state"] == word


def test_a_gpu_that_is_lost_leaves_the_others() -> None:
    whole = answer()["gpus"][0]
    lost = {"index": 1, "error": "GPU is lost", "is_lost": True}
    denied = {"index": 2, "error": "Insufficient Permissions", "is_lost": False}  # of another container
    facts = collect_gpu(saved({"gpus": answer(gpus=[whole, lost, denied])}), timeout_s=1)
    assert ([gpu.index for gpu in facts.gpus], facts.lost) == ([0], {1: "GPU is lost"})


def test_a_fabric_manager_is_looked_for_where_there_are_switches() -> None:
    dirs = {"/dev": ["nvidiactl"], "/proc/driver/nvidia-nvswitch/devices": ["0000:05:00.0", "0000:06:00.0"]}
    seen = {"/proc/1/comm": "systemd\n", "/proc/2/comm": "kthreadd\n"}
    others = {"/proc/7/comm": "nv-fabricmanage\n", "/proc/8/comm": "python\n"}
    no_kernel = {"/proc/1/comm": "systemd\n"}  # a namespace of processes
    for pids, known, runs in (
        (["7", "8"], seen, True), (["8"], seen, False), (["8"], {}, None), (["8"], no_kernel, None)
    ):  # fmt: skip
        files = known | others
        answers: dict[str, dict[str, Any]] = {
            "dirs": {**dirs, "/proc": pids},
            "files": files,
            "probes": {"gpus": answer()},
        }
        facts = collect_gpu(SavedHost(answers), timeout_s=1)
        assert (facts.num_switches, facts.has_fabric_manager) == (2, runs)
    none = collect_gpu(saved({"gpus": answer()}), timeout_s=1)
    assert (none.num_switches, none.has_fabric_manager) == (0, None)


def stat_of(pid: int, parent: int, session: int) -> str:
    return f"{pid} (python) S {parent} {session} {session} " + "0 " * 40


def test_a_holder_whose_launcher_and_session_are_gone_is_an_orphan() -> None:
    def held(parent: int, session: int, leader: str, init: str = "systemd") -> bool:
        files = {f"/proc/{session}/stat": leader, "/proc/7/stat": stat_of(7, parent, session), "/proc/1/comm": init}
        host = SavedHost({"files": {path: text for path, text in files.items() if text}})
        return _process(host, 7, 100).is_orphan

    assert held(1, 5, "")
    assert not held(4, 5, ""), "its parent lives"
    assert not held(1, 7, ""), "a service that leads its own session"
    assert not held(1, 5, stat_of(5, 1, 5)), "who led its session lives: a shell script of a service"
    assert not held(1, 5, "", init="bash"), "a container whose first process may be the launcher"


class PairedNvml(FakeNvml):
    """Four GPUs, the last one lost: P2P from 0 to 2 is off in one direction, and 1 and 2 do not tell."""

    NVML_NVLINK_MAX_LINKS = 0

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802 - NVML's name
        if index > 2:
            raise self.NVMLError("GPU is lost", 15)
        return index

    def nvmlDeviceGetP2PStatus(self, a: int, b: int, _: int) -> int:  # noqa: N802
        if {a, b} == {1, 2}:
            raise self.NVMLError("Not Supported")
        return 3 if (a, b) == (2, 0) else 0

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:  # noqa: N802
        return 10 if {a, b} == {0, 1} else 50


def test_pairs_of_gpus_have_a_status_and_what_is_between_them() -> None:
    assert nvml._pairs(PairedNvml(), 4) == [
        {"a": 0, "b": 1, "p2p": "ok", "level": "PIX"},
        {"a": 0, "b": 2, "p2p": "topology", "level": "SYS"},
        {"a": 1, "b": 2, "level": "SYS"},
    ]
    pairs = nvml._pairs(PairedNvml(), 3)
    found = collect_gpu(saved({"gpus": {**answer(), "pairs": pairs}}), timeout_s=1).pairs
    assert [(pair.a, pair.b, pair.p2p, pair.level) for pair in found] == [
        (0, 1, "ok", "PIX"),
        (0, 2, "topology", "SYS"),
        (1, 2, None, "SYS"),
    ]


class LinkedNvml(PairedNvml):
    """GPU 0 and 1 of a machine, as `ends` says: for each link the type and bus of its other end, None if it is down."""

    NVML_NVLINK_MAX_LINKS = 18

    def __init__(self, ends: tuple[list[tuple[int, str] | None], ...], *, over_nvlink: int = 0) -> None:
        super().__init__()
        self.ends, self.over_nvlink = ends, over_nvlink

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return type("Pci", (), {"busId": f"00000000:{0x1A + handle:02X}:00.0"})

    def nvmlDeviceGetP2PStatus(self, a: int, b: int, what: int) -> int:  # noqa: N802
        return self.over_nvlink if what == nvml.P2P_NVLINK else 0

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:  # noqa: N802
        return 30

    def _end(self, handle: int, link: int) -> tuple[int, str] | None:
        if link >= len(self.ends[handle]):
            raise self.NVMLError("Invalid Argument")
        return self.ends[handle][link]

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        return self._end(handle, link) is not None

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:  # noqa: N802
        kind, _ = self._end(handle, link) or (255, "")
        return kind

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:  # noqa: N802
        _, bus = self._end(handle, link) or (255, "")
        if not bus:
            raise self.NVMLError("Not Supported")
        return type("Pci", (), {"busId": bus.encode()})


FIRST, SECOND, OTHER = (0, "0000:1a:00.0"), (0, "0000:1b:00.0"), (0, "0000:1c:00.0")
THROUGH_SWITCH = (2, "0000:05:00.0")


@cases(
    "ends, over_nvlink, expected",
    [
        (([THROUGH_SWITCH] * 18, [THROUGH_SWITCH] * 18), 0, 18),
        (([(2, "")] * 18, [(2, "")] * 17 + [None]), 0, 17),  # a container that is not known the switch's address
        (([SECOND] * 4, [FIRST] * 4), 0, 4),
        (([SECOND, SECOND, OTHER, None], [FIRST, FIRST, None, OTHER]), 0, 2),  # a bridge for each pair
        (([OTHER] * 4, [OTHER] * 4), 5, 0),  # both have links, but not to each other
        (([OTHER] * 4, [OTHER] * 4), 0, 0),
        (([THROUGH_SWITCH] * 18, [THROUGH_SWITCH] * 18), 5, 0),  # a fabric that does not let them through
        (([None] * 18, [None] * 18), 0, 0),
        (([], []), 0, 0),
    ],
)  # fmt: skip
def test_pairs_have_the_nvlinks_between_them(ends: Any, over_nvlink: int, expected: int) -> None:
    [pair] = nvml._pairs(LinkedNvml(ends, over_nvlink=over_nvlink), 2)
    assert (pair.get("num_nvlinks", 0), pair["level"], pair["p2p"]) == (expected, "PHB", "ok")
    facts = collect_gpu(saved({"gpus": {**answer(), "pairs": [pair]}}), timeout_s=1)
    shown = [value.text_in("en") for _, value, _ in facts_table._gpu(facts)]
    assert (f"1 × NV{expected} ok" if expected else "1 × PHB ok") in shown


def test_gpus_of_amd_are_counted_and_nvml_is_not_asked() -> None:
    root = "/sys/class/kfd/kfd/topology/nodes"
    simds = {"0": 0, "1": 1216, "2": 1216}
    files = {
        f"{root}/{name}/properties": f"cpu_cores_count 0\nsimd_count {n}\nmem_banks_count 1\n"
        for name, n in simds.items()
    }
    found = collect_gpu(SavedHost({"dirs": {root: list(simds)}, "files": files}), timeout_s=1)
    assert (found.num_amd, found.gpus, found.driver_version) == (2, (), None)


FIRST_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(120,)).start()
print("ends", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_holder_whose_first_thread_has_ended_is_a_zombie() -> None:
    """A real process: its first thread ends, another one runs on."""
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ends\n"
            stat = Path(f"/proc/{process.pid}/stat")
            until(lambda: stat.read_text().rpartition(") ")[2][0] == "Z", 10.0, what=stat.read_text)
            rows = [{**answer()["gpus"][0], "processes": [{"pid": process.pid, "used_bytes": 5}, {"pid": os.getpid()}]}]
            [gpu] = parse_nvml(LiveHost(), {**answer(), "gpus": rows}, None).gpus
            assert [(p.pid, p.is_zombie) for p in gpu.processes] == [(process.pid, True), (os.getpid(), False)]
        finally:
            process.kill()


def test_errors_in_the_kernel_log_count_since_the_driver_was_loaded() -> None:
    log = [
        [900.0, "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."],
        [800.0, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.1"],
        [600.0, "NVRM: Xid (PCI:0000:3b:00): 119, pid=7, name=python, Timeout after 6s of waiting for RPC"],
        [550.0, "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 43, pid=7, name=python, Ch 00000008"],
        [540.0, "nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 48 LTSSM Fault Up"],
        [530.0, "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset)"],
        [500.0, "eth0: NIC Link is Down"],
    ]
    answer = {"driver_version": "580.1", "cuda_version": "13.0", "gpus": []}
    host = SavedHost({"dirs": {"/dev": ["nvidiactl"]}, "probes": {"gpus": answer, "kernel_log": log}})
    assert [(x.pci_bus_id, x.code, x.age_s) for x in collect_gpu(host, timeout_s=1).xids] == [
        ("0000:3b:00", 119, 600.0),
        ("0000:3b:00", 43, 550.0),
        ("0000:c3:00.0", 20034, 540.0),
        ("0000:3b:00", 154, 530.0),
    ]
    host = SavedHost({"dirs": {"/dev": ["nvidiactl"]}, "probes": {"gpus": answer}})
    assert collect_gpu(host, timeout_s=1).xids == (), "a log that may not be read"


def test_the_real_child_ends_and_answers() -> None:
    started = Stopwatch()
    try:
        why, found = "", LiveHost().probe("gpus", timeout_s=30)
    except FactUnavailable as error:
        why, found = str(error), None
    assert (found and found["gpus"]) or "NVML" in why
    assert started.s < 30
