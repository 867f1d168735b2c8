"""The smaller collectors: machine, names, limits, software, script, RDMA."""

import hashlib
import importlib.util
import resource
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from allready.errors import FactUnavailable
from allready.facts.collect import collect, collect_names
from allready.facts.limits import collect_limits, parse_limits, place_of_cores
from allready.facts.live import LiveHost
from allready.facts.order import Also
from allready.facts.processes import command_of, started_at
from allready.facts.rdma import collect_rdma, parse_rate
from allready.facts.software import collect_script, collect_software, literals, soname_version
from allready.facts.system import collect_host, container, usable_cpus, usable_memory_bytes
from allready.model import RdmaFacts, StackLimit
from allready.preflight.doctor.request import alone
from tests.cases import cases
from tests.facts.saved_host import SavedHost

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            1024                 1048576              files
Max locked memory         65536                unlimited            bytes
"""


def files(more: dict[str, str], **environ: str) -> SavedHost:
    return SavedHost({"files": {"/proc/sys/kernel/hostname": "gpu01\n", **more}, "environ": environ})


def test_reads_limits() -> None:
    host = SavedHost(
        {"files": {"/proc/self/limits": LIMITS}, "probes": {"statvfs:/dev/shm": {"total_bytes": 64, "free_bytes": 5}}}
    )
    found = collect_limits(host)
    assert (found.memlock_bytes, found.nofile_soft, found.nofile_hard) == (65536, 1024, 1048576)
    assert (found.shm_total_bytes, found.shm_free_bytes) == (64, 5)
    assert collect_limits(SavedHost({"files": {"/proc/self/limits": LIMITS}})).shm_total_bytes is None
    assert parse_limits(LIMITS)["Max cpu time"] == (None, None)


def test_says_which_limit_is_missing() -> None:
    with pytest.raises(FactUnavailable, match="locked"):
        collect_limits(SavedHost({"files": {"/proc/self/limits": "Limit\n"}}))


def test_limits_of_this_process_agree_with_the_system_call() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = collect_limits(LiveHost())
    assert (found.nofile_soft, found.nofile_hard) == (soft, hard)


def test_both_names_are_resolved_and_say_why_not() -> None:
    host = SavedHost(
        {
            "files": {"/proc/sys/kernel/hostname": "gpu01\n"},
            "names": {"gpu01": ["127.0.1.1"], "head": {"unavailable": "Name or service not known"}},
        }
    )
    found = collect_names(host, "head", timeout_s=1)
    assert (found.own_name, found.own_addresses, found.own_error) == ("gpu01", ("127.0.1.1",), None)
    assert (found.master_addresses, found.master_error) == ((), "Name or service not known")
    assert found.own_lines == ()


def test_says_in_which_order_and_of_whom_the_resolver_asks() -> None:
    files = {
        "/proc/sys/kernel/hostname": "gpu1\n",
        "/etc/hosts": "127.0.0.1 localhost\n10.0.0.1 head.cluster head # node 0\n10.0.0.9 HEAD\n",
        "/etc/nsswitch.conf": "passwd: files\nhosts:  files mdns4_minimal [NOTFOUND=return] dns # myhostname\n",
        "/etc/resolv.conf": "domain old\nsearch a.svc b\nnameserver 10.0.0.53\n;x\n"
        "nameserver fd00::53\noptions ndots:5\n",
    }
    found = collect_names(SavedHost({"files": files}), "head", timeout_s=1)
    assert [(one.line, one.address) for one in found.master_lines] == [(2, "10.0.0.1"), (3, "10.0.0.9")]
    assert found.order == ("files", "mdns4_minimal", "dns")
    assert (found.servers, found.search, found.num_dots) == (("10.0.0.53", "fd00::53"), ("a.svc", "b"), 5)
    for odd in ("", "hosts:", "hosts", ":", "nameserver", "options ndots:", "search"):
        bare = {"/proc/sys/kernel/hostname": "gpu1", "/etc/nsswitch.conf": odd, "/etc/resolv.conf": odd}
        assert collect_names(SavedHost({"files": bare}), "head", timeout_s=1).order == (), odd


def test_says_which_line_of_hosts_names_this_node() -> None:
    hosts = "::1 gpu011\n\n127.0.1.1 gpu01.example.org GPU01 # gpu02\n#10.0.0.1 gpu01\n10.0.0.7\tgpu01\n"
    host = files({"/etc/hosts": hosts})
    found = [(one.line, one.address) for one in collect_names(host, "head", timeout_s=1).own_lines]
    assert found == [(3, "127.0.1.1"), (5, "10.0.0.7")]


@cases(
    ("more", "environ", "kind"),
    [
        ({}, {}, None),
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "kubernetes"),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "apptainer"),
        ({}, {"ENROOT_ROOTFS": "/x"}, "enroot"),
        ({}, {"container": "systemd-nspawn"}, "systemd-nspawn"),
        ({"/proc/1/cgroup": "0::/kubepods.slice/pod7\n"}, {}, "kubernetes"),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, None),
    ],
)
def test_recognises_containers(more: dict[str, str], environ: dict[str, str], kind: str | None) -> None:
    assert container(files(more, **environ)) == kind


@cases(
    ("more", "count"),
    [
        ({}, None),
        ({"/proc/self/status": "Cpus_allowed_list:\t0-7,16-23\n"}, 16),
        ({"/proc/self/status": "Cpus_allowed_list:\t3\n"}, 1),
        ({"/proc/self/status": "Cpus_allowed_list:\t0-63\n", "/proc/self/cgroup": "0::/a/b\n",
          "/sys/fs/cgroup/a/cpu.max": "400000 100000\n", "/sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, 4),
        ({"/proc/self/status": "Cpus_allowed_list:\t0-63\n", "/proc/self/cgroup": "0::/\n",
          "/sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"/proc/self/status": "Cpus_allowed_list:\t0-63\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "800000",
          "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"/proc/self/status": "Cpus_allowed_list:\t0-63\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, 64),
    ],
)  # fmt: skip
def test_counts_the_cpus_that_may_be_used(more: dict[str, str], count: int | None) -> None:
    assert usable_cpus(files(more)) == count


def test_memory_is_cut_by_the_tightest_group() -> None:
    more = {
        "/proc/meminfo": "MemTotal:       1000000 kB\n",
        "/proc/self/cgroup": "0::/a/b\n",
        "/sys/fs/cgroup/a/memory.max": "500000\n",
        "/sys/fs/cgroup/a/b/memory.max": "max\n",
    }
    assert usable_memory_bytes(files(more)) == 500000
    assert usable_memory_bytes(files({"/proc/meminfo": "MemTotal: 1000 kB\n"})) == 1024000
    assert usable_memory_bytes(files({})) is None


def test_describes_this_machine() -> None:
    found = collect_host(LiveHost())
    assert found.hostname
    assert found.kernel[0].isdigit()
    assert found.num_cpus
    assert found.memory_bytes
    assert found.memory_bytes > 2**28


def test_needs_a_host_name() -> None:
    with pytest.raises(FactUnavailable):
        collect_host(SavedHost({}))


def python(path: list[str], modules: dict[str, str]) -> dict[str, Any]:
    return {"python": {"version": "3.12.3", "prefix": "/venv", "path": path, "modules": modules}}


SITE = "/venv/lib/python3.12/site-packages"


def test_reads_versions_from_disk() -> None:
    host = SavedHost(
        {
            "probes": python([SITE], {"torch": f"{SITE}/torch", "numpy": f"{SITE}/numpy", "jax": f"{SITE}/jax"}),
            "dirs": {
                SITE: [
                    "jax-0.4.30.dist-info",
                    "numpy-2.2.0.dist-info",
                    "nvidia_nccl_cu12-2.27.3.dist-info",
                    "nvidia_nccl_cu13-2.28.9.dist-info",
                    "torch",
                    "torchvision-0.1.dist-info",
                ]
            },
            "files": {
                f"{SITE}/torch/version.py": "__version__ = '2.13.0+cu130'\n"
                "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
            },
        }
    )
    found = collect_software(host).versions
    assert found.pop("allready")
    assert found == {
        "python": "3.12.3",
        "torch": "2.13.0+cu130",
        "torch-cuda": "13.0",
        "nccl": "2.28.9",
        "numpy": "2.2.0",
        "jax": "0.4.30",
    }


def test_finds_nccl_as_a_library_where_there_is_no_wheel() -> None:
    host = SavedHost(
        {
            "probes": python([SITE], {}),
            "environ": {"LD_LIBRARY_PATH": "relative:/opt/nccl/lib"},
            "dirs": {
                "/opt/nccl/lib": ["libnccl.so", "libnccl.so.2", "libnccl.so.2.9.6", "libnccl.so.2.21.5"],
                "/usr/lib64": ["libnccl.so.2.18.1"],
            },
        }
    )
    assert collect_software(host).versions["nccl"] == "2.21.5"
    assert soname_version(["libnccl.so.2"], "libnccl") is None


def test_takes_the_codes_word_where_nothing_was_installed() -> None:
    host = SavedHost(
        {
            "probes": python([], {"numpy": "/src/numpy", "torch": "/src/torch"}),
            "files": {
                "/src/numpy/version.py": "version = '2.0.dev0'\n",
                "/src/torch/version.py": "__version__ = broken(",
            },
        }
    )
    found = collect_software(host).versions
    assert found["numpy"] == "2.0.dev0"
    assert "torch" not in found


def test_never_runs_what_it_reads() -> None:
    assert literals("import os\nos.abort()\n__version__ = '1'\n__version__ += f'{os.abort()}'\na = b = 'c'") == {
        "__version__": "1",
        "a": "c",
        "b": "c",
    }


def test_agrees_with_importlib_about_this_environment() -> None:
    found = collect_software(LiveHost()).versions
    for name in ("torch", "jax", "jaxlib", "numpy"):
        if importlib.util.find_spec(name):
            assert found[name] == version(name)
        else:
            assert name not in found


def test_says_when_python_does_not_answer() -> None:
    answers: tuple[Any, ...] = (None, [], {"version": "3"}, {"version": "3", "prefix": "", "path": 3, "modules": {}})
    for answer in answers:
        with pytest.raises(FactUnavailable):
            collect_software(SavedHost({"probes": {"python": answer}}))


def test_hashes_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(b"print(1)\n")
    found = collect_script(LiveHost(), str(script), timeout_s=10)
    assert (found.path, found.size_bytes) == (str(script), 9)
    assert found.sha256 == hashlib.sha256(b"print(1)\n").hexdigest()
    for path, words in ((str(tmp_path), "a directory"), (f"{tmp_path}/x", "No such file")):
        with pytest.raises(FactUnavailable, match=words):
            collect_script(LiveHost(), path, timeout_s=10)


IB = "/sys/class/infiniband"
PORT = f"{IB}/mlx5_0/ports/1"


def test_reads_infiniband_and_roce_ports() -> None:
    host = SavedHost(
        {
            "dirs": {IB: ["mlx5_0"], f"{IB}/mlx5_0/ports": ["1"], f"{PORT}/gids": ["0", "1", "2", "10"]},
            "files": {
                f"{PORT}/state": "4: ACTIVE\n",
                f"{PORT}/phys_state": "5: LinkUp\n",
                f"{PORT}/link_layer": "Ethernet\n",
                f"{PORT}/rate": "400 Gb/sec (4X NDR)\n",
                f"{PORT}/gids/0": "fe80:0000:0000:0000:0000:0000:0000:0001\n",
                f"{PORT}/gids/1": "0000:0000:0000:0000:0000:0000:0000:0000\n",
                f"{PORT}/gids/10": "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
                f"{PORT}/gid_attrs/types/0": "IB/RoCE v1\n",
                f"{PORT}/gid_attrs/types/10": "RoCE v2\n",
                f"{PORT}/gid_attrs/ndevs/0": "eth2\n",
            },
        }
    )
    [port] = collect_rdma(host).ports
    assert (port.device, port.port, port.state, port.physical_state) == ("mlx5_0", 1, "ACTIVE", "LinkUp")
    assert (port.link_layer, port.rate_gbit_per_s, port.netdev) == ("Ethernet", 400.0, "eth2")
    assert port.gids == (
        "0 IB/RoCE v1 fe80:0000:0000:0000:0000:0000:0000:0001",
        "10 RoCE v2 0000:0000:0000:0000:0000:ffff:0a00:0001",
    )


class Counting(SavedHost):
    """Its files named here hold another text from the second reading on; one of None is there only once."""

    def __init__(self, answers: dict[str, Any], later: dict[str, str]) -> None:
        super().__init__(answers)
        self.later, self.seen = later, set[str]()

    def read(self, path: str) -> str:
        if path in self.seen and path in self.later:
            return self.later[path]
        self.seen.add(path)
        return super().read(path)


def test_firmware_lanes_and_errors_that_grow_meanwhile() -> None:
    first = {
        "counters/symbol_error": "7\n", "counters/link_downed": "2\n", "counters/port_rcv_errors": "90\n",
        "counters/link_error_recovery": "0\n", "hw_counters/out_of_sequence": "10\n",
        "hw_counters/rnr_nak_retry_err": "not available\n", "rate": "25 Gb/sec (1X EDR)\n",
    }  # fmt: skip
    later = {"counters/symbol_error": "12\n", "counters/port_rcv_errors": "1\n", "hw_counters/out_of_sequence": "11\n"}
    answers: dict[str, Any] = {
        "dirs": {IB: ["mlx5_0"], f"{IB}/mlx5_0/ports": ["1"]},
        "files": {f"{IB}/mlx5_0/fw_ver": "28.39.1002\n", **{f"{PORT}/{name}": text for name, text in first.items()}},
    }
    found = collect_rdma(Counting(answers, {f"{PORT}/{name}": text for name, text in later.items()}), watch_s=0.05)
    [port] = found.ports
    assert (port.firmware, port.num_lanes, port.rate_gbit_per_s) == ("28.39.1002", 1, 25.0)
    assert port.growth == {"symbol_error": 5, "out_of_sequence": 1}  # port_rcv_errors was set back
    assert port.counts == {"symbol_error": 12, "link_downed": 2, "port_rcv_errors": 1, "out_of_sequence": 11}
    assert found.watched_s is not None
    assert found.watched_s >= 0.05
    unwatched = collect_rdma(SavedHost(answers))
    assert (unwatched.watched_s, unwatched.ports[0].counts, unwatched.ports[0].growth) == (None, {}, {})


def test_providers_by_their_devices_and_fabrics_of_other_classes() -> None:
    dirs = {IB: ["rdmap0s6"], f"{IB}/rdmap0s6/ports": ["1"], "/sys/class/cxi": ["cxi0", "cxi1"]}
    files = {
        f"{IB}/rdmap0s6/device/uevent": "DRIVER=efa\nPCI_CLASS=20000\n",
        f"{IB}/rdmap0s6/ports/1/state": "4: ACTIVE\n",
        f"{IB}/rdmap0s6/ports/1/link_layer": "Unspecified\n",
    }
    found = collect_rdma(SavedHost({"dirs": dirs, "files": files}))
    assert (found.ports[0].provider, found.ports[0].link_layer) == ("efa", "Unspecified")
    assert found.others == ("cxi0", "cxi1")
    assert collect_rdma(SavedHost({"dirs": {"/sys/class/cxi": ["cxi0"]}, "files": {}})).others == ("cxi0",)


def test_only_doctor_takes_the_time_to_watch_errors() -> None:
    dirs = {IB: ["mlx5_0"], f"{IB}/mlx5_0/ports": ["1"]}
    host = SavedHost({"dirs": dirs, "files": {f"{PORT}/counters/symbol_error": "7\n"}})
    watched = {}
    for also in (None, Also(imports=False)):
        rdma = collect(host, alone(), script=None, deadline_s=3.0, also=also).rdma
        assert isinstance(rdma, RdmaFacts)
        watched[also is not None] = rdma.watched_s is not None
    assert watched == {False: False, True: True}


def test_the_bond_of_a_card_and_the_states_of_its_interfaces() -> None:
    net = "/sys/class/net"
    dirs = {
        IB: ["mlx5_bond_0", "mlx5_2"], f"{IB}/mlx5_bond_0/ports": ["1"], f"{IB}/mlx5_2/ports": ["1"],
        f"{IB}/mlx5_bond_0/device/net": ["ens1f0", "ens1f1"], f"{IB}/mlx5_2/device/net": ["ens2"],
        f"{net}/ens1f0/bonding_slave": ["state"], f"{net}/ens1f1/bonding_slave": ["state"],
    }  # fmt: skip
    files = {
        f"{net}/ens1f0/master/uevent": "DEVTYPE=bond\nINTERFACE=bond0\nIFINDEX=7\n",
        f"{net}/ens1f1/master/uevent": "DEVTYPE=bond\nINTERFACE=bond0\nIFINDEX=7\n",
        f"{net}/ens1f0/operstate": "up\n",
        f"{net}/ens1f1/operstate": "down\n",
        f"{net}/ens2/master/uevent": "DEVTYPE=bridge\nINTERFACE=br0\n",  # in a bridge, which is no bond
    }
    bonded, alone = collect_rdma(SavedHost({"dirs": dirs, "files": files})).ports
    assert (bonded.bond, bonded.bonded) == ("bond0", {"ens1f0": "up", "ens1f1": "down"})
    assert (alone.bond, alone.bonded) == (None, {})
    # The card of port 0 lists its own interface only; the bond knows the other.
    dirs[f"{IB}/mlx5_bond_0/device/net"] = ["ens1f0"]
    links = "".join(
        f"\nSlave Interface: {name}\nMII Status: {s}\n" for name, s in (("ens1f0", "up"), ("ens1f1", "down"))
    )
    files["/proc/net/bonding/bond0"] = f"Bonding Mode: load balancing (xor)\nMII Status: up\n{links}"
    bonded, _ = collect_rdma(SavedHost({"dirs": dirs, "files": files})).ports
    assert (bonded.bond, bonded.bonded) == ("bond0", {"ens1f0": "up", "ens1f1": "down"})


def test_a_machine_without_infiniband_has_no_ports() -> None:
    assert collect_rdma(SavedHost({"dirs": {"/sys/class": ["net"]}})).ports == ()


def test_says_when_the_devices_are_hidden() -> None:
    with pytest.raises(FactUnavailable):
        collect_rdma(SavedHost({"dirs": {"/sys/class": ["infiniband", "net"]}}))


@cases(("text", "rate"), [("2.5 Gb/sec (1X SDR)", 2.5), ("100 Gb/sec", 100.0), ("", None), ("x", None)])
def test_reads_a_rate(text: str, rate: float | None) -> None:
    assert parse_rate(text) == rate


def test_describes_a_process() -> None:
    host = SavedHost(
        {
            "files": {
                "/proc/7/cmdline": "python\0-u\0a b.py\0",
                "/proc/stat": "cpu 1\nbtime 1700000000\n",
                "/proc/7/stat": "7 (a) b) S " + " ".join(["0"] * 18) + " 12345 0 0",
            }
        }
    )
    assert command_of(host, 7) == "python -u a b.py"
    assert started_at(host, 7) == "2023-11-14T22:15:23+00:00"
    assert command_of(host, 8) is None
    assert started_at(host, 8) is None


def test_reads_what_limits_tasks_and_stacks() -> None:
    files = {
        "/proc/self/limits": LIMITS_TEXT,
        "/proc/self/cgroup": "0::/kubepods/pod1\n",
        "/sys/fs/cgroup/kubepods/pod1/pids.max": "max\n",
        "/sys/fs/cgroup/kubepods/pod1/pids.current": "90\n",
        "/sys/fs/cgroup/kubepods/pids.max": "1024\n",
        "/sys/fs/cgroup/kubepods/pids.current": "1000\n",
        "/proc/sys/kernel/yama/ptrace_scope": "2\n",
        "/proc/self/status": "Name:\tx\nCapEff:\t00000000a80c25fb\n",
    }
    found = collect_limits(SavedHost({"files": files}))
    assert (found.num_tasks, found.max_tasks) == (1000, 1024)
    assert (found.ptrace_scope, found.can_ptrace) == (2, True)
    bare = collect_limits(SavedHost({"files": {"/proc/self/limits": LIMITS_TEXT}}))
    assert (bare.num_tasks, bare.max_tasks, bare.ptrace_scope, bare.can_ptrace) == (None, None, None, None)


LIMITS_TEXT = (
    "Limit                     Soft Limit           Hard Limit           Units\n"
    "Max locked memory         unlimited            unlimited            bytes\n"
    "Max open files            1024                 4096                 files\n"
)


def test_says_where_a_core_dump_would_land_and_how_large_a_stack_may_grow() -> None:
    rows = "Max stack size            8388608              unlimited            bytes\n"
    unlimited, off = "unlimited            unlimited", "0                    unlimited"
    kernel = "/proc/sys/kernel/core_pattern"

    def found(pattern: str, limit: str, **more: str) -> Any:
        text = f"{LIMITS_TEXT}{rows}Max core file size        {limit}            bytes\n"
        return collect_limits(SavedHost({"files": {"/proc/self/limits": text, kernel: pattern, **more}}))

    handler = "|/usr/lib/systemd/systemd-coredump %P %u\n"
    expected = {
        (handler, unlimited): ("program", "/usr/lib/systemd/systemd-coredump"),
        (handler, off): ("program", "/usr/lib/systemd/systemd-coredump"),  # the kernel does not look at the limit
        (handler, off.replace("0 ", "1 ", 1)): ("nowhere", ""),
        ("@/run/cores.socket\n", off): ("socket", "/run/cores.socket"),
        ("core\n", off): ("nowhere", ""),
        ("core\n", unlimited): ("working_folder", ""),
        ("/var/cores/core.%e\n", unlimited): ("folder", "/var/cores"),
        ("/core\n", unlimited): ("folder", "/"),
        ("\n", unlimited): ("nowhere", ""),
    }
    wrong = {
        case: cores
        for case, place in expected.items()
        if ((cores := found(*case).cores).place, cores.target) != place or cores.limit_bytes not in {None, 0, 1}
    }
    assert not wrong
    assert found("core\n", off).stack == StackLimit(soft_bytes=8388608, hard_bytes=None)
    bare = collect_limits(SavedHost({"files": {"/proc/self/limits": LIMITS_TEXT}}))
    assert (bare.stack, bare.cores) == (None, None)


@pytest.mark.parametrize("limit", ["0", "unlimited"])
def test_a_real_crash_leaves_its_core_where_the_facts_say(tmp_path: Path, limit: str) -> None:
    cores = collect_limits(LiveHost()).cores
    assert cores is not None
    if cores.pattern.startswith(("|", "@", "/")) or not cores.pattern:
        pytest.skip("the kernel hands core dumps to a program, or writes them elsewhere")
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
        pytest.skip("core dumps are forbidden here")
    place, _ = place_of_cores(cores.pattern, 0 if limit == "0" else None)
    subprocess.run(["bash", "-c", f"ulimit -c {limit} && kill -SEGV $$"], cwd=tmp_path, check=False, timeout=30)
    assert [place] * any(tmp_path.iterdir()) == ([] if limit == "0" else ["working_folder"])


def test_swap_is_read() -> None:
    more = {"/proc/meminfo": "MemTotal: 9 kB\nSwapTotal:       2000 kB\nSwapFree:  500 kB\n"}
    found = collect_host(files(more))
    assert (found.swap_total_bytes, found.swap_free_bytes) == (2048000, 512000)
    assert collect_host(files({})).swap_total_bytes is None


def test_what_is_needed_to_use_rdma_is_looked_for_where_the_loader_looks() -> None:
    root = "/sys/class/infiniband"
    dirs = {root: ["mlx5_0"], f"{root}/mlx5_0/ports": ["1"], "/dev": ["null"], "/usr/lib64": ["libc.so.6"]}

    def found(files: dict[str, str] | None = None, more: dict[str, list[str]] | None = None, **environ: str) -> Any:
        host = SavedHost({"dirs": {**dirs, **(more or {})}, "files": files or {}, "environ": environ})
        facts = collect_rdma(host)
        return facts.has_library, facts.has_device_files

    cache = {"/etc/ld.so.cache": "glibc-ld.so.cache1.1 libibverbs.so.1 /usr/lib64/libibverbs.so.1"}
    assert found() == (False, False)
    assert found(cache, {"/dev/infiniband": ["rdma_cm", "uverbs0"]}) == (True, True)
    assert found(more={"/usr/lib64": ["libibverbs.so.1.14.50.0"]}) == (True, False)
    assert found(more={"/opt/ofed": ["libibverbs.so.1"]}, LD_LIBRARY_PATH=":/opt/ofed") == (True, False)
    assert found(more={"/conda/lib": ["libibverbs.so.1"]}, CONDA_PREFIX="/conda") == (True, False)
    with_cm = {"/etc/ld.so.cache": "libibverbs.so.1 librdmacm.so.1"}
    for files, expected in ((cache, False), (with_cm, True)):
        assert collect_rdma(SavedHost({"dirs": dirs, "files": files})).has_cm_library is expected
    blind = SavedHost({"dirs": {root: ["mlx5_0"], f"{root}/mlx5_0/ports": ["1"]}})
    assert (collect_rdma(blind).has_library, collect_rdma(blind).has_device_files) == (None, None)
    assert collect_rdma(SavedHost({})).has_library is None


def test_a_plugin_for_efa_is_looked_for_where_there_is_efa() -> None:
    device = "rdmap0s29"
    dirs = {IB: [device], f"{IB}/{device}/ports": ["1"], "/usr/lib64": ["libibverbs.so.1"]}
    files = {
        f"{IB}/{device}/ports/1/state": "4: ACTIVE\n",
        f"{IB}/{device}/ports/1/phys_state": "5: LinkUp\n",
        f"{IB}/{device}/ports/1/link_layer": "Unspecified\n",
        f"{IB}/{device}/device/uevent": "DRIVER=efa\n",
    }
    ofi = "/opt/amazon/ofi-nccl/lib"
    for more, environ, found in (
        ({}, {}, False),
        ({ofi: ["libnccl-net.so"]}, {}, False),  # there, and not where the loader looks
        ({ofi: ["libnccl-net.so"]}, {"LD_LIBRARY_PATH": ofi}, True),
        ({}, {"NCCL_NET_PLUGIN": "ofi"}, None),
    ):
        host = SavedHost({"dirs": {**dirs, **more}, "files": files, "environ": environ})
        assert collect_rdma(host).has_net_plugin is found, (more, environ)
    files[f"{IB}/{device}/device/uevent"] = "DRIVER=mlx5_core\n"
    assert collect_rdma(SavedHost({"dirs": dirs, "files": files})).has_net_plugin is None
