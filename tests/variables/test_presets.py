from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from allready.errors import UsageError
from allready.judging.engine import judge
from allready.judging.loading import load
from allready.model import GpuFacts, NetFacts, RdmaFacts, Severity
from allready.text.ui import ui
from allready.variables import table
from allready.variables.here import Here
from allready.variables.presets import NAMES, Preset, preset
from allready.variables.versions import Standing, nccl_backend, standing
from tests.cases import cases
from tests.fleets import fleet, healthy_node
from tests.rules.variables.made import here as environment
from tests.rules.variables.made import interface, net, rdma, software

NODE = healthy_node(0, 2)
assert isinstance(NODE.gpu, GpuFacts)
assert isinstance(NODE.net, NetFacts)
VERSIONS = [
    {"torch": "2.4.1", "nccl": "2.20.5"},
    {"torch": "2.8.0", "nccl": "2.27.3"},
    {"torch": "2.15.0+cu130", "nccl": "2.30.7"},
    {},
]
MACHINE = Here(
    net=NetFacts(
        interfaces=(interface("lo", "127.0.0.1/8"), interface("eth0", "10.0.0.1/24", speed_mbit_per_s=200_000))
    ),
    rdma=RdmaFacts(
        ports=(*rdma("mlx5_0", "mlx5_1", rate_gbit_per_s=400.0).ports, *rdma("mlx5_2", rate_gbit_per_s=25.0).ports)
    ),
    gpu=NODE.gpu,
    num_cpus=64,
    shm_bytes=64 << 30,
    interface="eth0",
    peers=("10.0.0.2",),
)
ROCE = rdma("mlx5_0", link_layer="Ethernet", gids=("3 RoCE v2 0000:0000:0000:0000:0000:ffff:0a00:0001",))
PURPOSE = {"VAR021", "VAR022"}
"""What presets for narrowing down are for: transports that are off, and settings for debugging."""


def machine_for(name: str, versions: Mapping[str, str]) -> Here:
    return replace(MACHINE, versions=versions, rdma=ROCE if name == "roce" else MACHINE.rdma)


def made(name: str, **versions: str) -> Preset:
    return preset(name, machine_for(name, versions))


@cases("name, versions", [(name, versions) for name in NAMES for versions in VERSIONS])
def test_no_line_is_one_that_nothing_reads(name: str, versions: dict[str, str]) -> None:
    for line in preset(name, machine_for(name, versions)).lines:
        row = table.load()[line.name]
        assert not row.is_folk
        assert standing(row, versions, nccl_backend(versions, None)) in {Standing.READ, Standing.DEPRECATED}


@cases("name, versions", [(name, versions) for name in NAMES for versions in VERSIONS])
def test_lint_finds_nothing_but_what_the_preset_is_for(name: str, versions: dict[str, str]) -> None:
    here = machine_for(name, versions)
    found = preset(name, here)
    facts = {"net": {0: here.net}, "rdma": {0: here.rdma}, "gpu": {0: here.gpu}, "software": {0: software(**versions)}}
    checked = fleet(1, settings=environment(**found.values), **facts)
    findings, _ = judge(checked, [rule for rule in load().values() if rule.area == "variables"])
    allowed = PURPOSE if name in {"conservative", "ethernet", "debug-start", "debug-hang"} else set()
    serious = [f for f in findings if f.severity is not Severity.INFO and f.code not in allowed]
    assert [f.message for f in serious] == []


@cases("name", NAMES)
def test_every_reason_and_note_has_a_text(name: str) -> None:
    found = made(name)
    for language in ("en", "zh"):
        for line in (*found.lines, *found.loader):
            assert ui(f"env.why_{line.reason}", language, **line.values)
        for note in found.notes:
            assert ui(f"env.note_{note.key}", language, **note.values)
        for kind in ("what", "folk"):
            assert ui(f"env.preset_{name.replace('-', '_')}_{kind}", language)


def test_names_follow_the_version() -> None:
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" in made("debug-hang", torch="2.6.0").values
    newest = made("debug-hang", torch="2.15.0").values
    assert {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_TEMP_FILE"} <= set(newest)
    assert not {"TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DESYNC_DEBUG"} & set(newest)


def test_infiniband_takes_the_fastest_ports() -> None:
    found = made("infiniband")
    assert found.values["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1"
    assert found.values["NCCL_NET"] == "IB"
    with pytest.raises(UsageError, match="no InfiniBand port is ACTIVE"):
        preset("infiniband", replace(MACHINE, rdma=RdmaFacts(ports=())))


def test_roce_has_an_index_only_where_nccl_needs_it() -> None:
    assert made("roce", nccl="2.20.5").values["NCCL_IB_GID_INDEX"] == "3"
    assert "NCCL_IB_GID_INDEX" not in made("roce", nccl="2.27.3").values
    with pytest.raises(UsageError, match="no RoCE port is ACTIVE"):
        preset("roce", MACHINE)


def test_ethernet_switches_off_only_what_is_there() -> None:
    assert made("ethernet").values["NCCL_IB_DISABLE"] == "1"
    assert "NCCL_IB_DISABLE" not in preset("ethernet", replace(MACHINE, rdma=RdmaFacts(ports=()))).values
    assert made("ethernet").values["NCCL_SOCKET_NTHREADS"] == "4"
    assert "NCCL_SOCKET_NTHREADS" not in preset("ethernet", replace(MACHINE, net=net("eth0"))).values


def test_the_interface_is_that_towards_the_peers() -> None:
    assert made("basic").values["NCCL_SOCKET_IFNAME"] == "=eth0"
    for peers, note in (((), "no_peers"), (("localhost",), "peers_here")):
        without = preset("basic", replace(MACHINE, interface=None, peers=peers))
        assert "NCCL_SOCKET_IFNAME" not in without.values
        assert note in {one.key for one in without.notes}


def test_threads_are_shared() -> None:
    assert preset("basic", replace(MACHINE, nproc=8)).values["OMP_NUM_THREADS"] == "8"
    assert "OMP_NUM_THREADS" not in preset("basic", replace(MACHINE, nproc=1)).values


def test_loaders() -> None:
    loader = {line.name: line.value for line in preset("prefetch", replace(MACHINE, nproc=8)).loader}
    assert loader == {"num_workers": "7", "prefetch_factor": "4", "pin_memory": "True", "persistent_workers": "True"}
    assert {line.name: line.value for line in made("gpu_cache").loader} == {"num_workers": "0", "pin_memory": "False"}


@cases("name", NAMES)
def test_what_is_written_for_another_machine_has_nothing_of_this_one(name: str) -> None:
    """A login node without GPU and InfiniBand writes the job script of a node that has both."""
    bare = replace(MACHINE, gpu=GpuFacts(gpus=()), rdma=RdmaFacts(ports=()), nproc=8, versions={"torch": "2.13.0"})
    for machine in (bare, replace(MACHINE, nproc=8, versions=bare.versions)):
        found = preset(name, machine.elsewhere())
        assert not {"OMP_NUM_THREADS", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"} & set(found.values)
        assert found.values.get("NCCL_SOCKET_IFNAME", "lo") == "lo"
        assert not {"num_workers"} & {line.name for line in found.loader if line.value != "0"}
        notes = {note.key for note in found.notes}
        assert name == "single-node" or name == "debug-hang" or "of_machine" in notes
        for note in found.notes:
            assert ui(f"env.note_{note.key}", "zh", **note.values)
        for line in (*found.lines, *found.loader):
            assert ui(f"env.why_{line.reason}", "zh", **line.values)
    assert preset("conservative", bare.elsewhere()).values["NCCL_P2P_DISABLE"] == "1"
    assert preset("ethernet", bare.elsewhere()).values["NCCL_IB_DISABLE"] == "1"
    assert preset("infiniband", bare.elsewhere()).values["NCCL_NET"] == "IB"


def test_an_unknown_preset() -> None:
    with pytest.raises(UsageError, match="valid: basic"):
        preset("fast", MACHINE)


def test_nothing_needs_facts() -> None:
    for name in NAMES:
        assert preset(name, Here()).name == name
