"""NCCL's INFO lines of all versions."""

import pytest

from allready.evidence.log.nccl import choice_of, class_of, version_of
from allready.model import ProcessRecord, Transport
from tests.cases import cases
from tests.evidence.log.reading import read


def process(*messages: str) -> ProcessRecord:
    """The one process that says this, INFO by INFO."""
    reading = read("\n".join(f"vm:10:10 [0] NCCL INFO {message}" for message in messages))
    assert len(reading.processes) == 1
    assert reading.source.num_unknown == 0, reading.source.unknown_examples
    return reading.processes[0]


DEVICE = "cudaDev 3 nvmlDev 3 busId 1a000 commId 0xabc"
INIT_LINES = {
    "2.8": "comm 0x7f rank 3 nranks 8 cudaDev 3 busId 1a000 - Init COMPLETE",
    "2.16": "comm 0x7f rank 3 nranks 8 cudaDev 3 busId 1a000 commId 0xabc - Init COMPLETE",
    "2.18.3": "comm 0x7f rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1a000 commId 0xabc - Init COMPLETE",
    "2.21": f"ncclCommInitRank comm 0x7f rank 3 nranks 8 {DEVICE} - Init COMPLETE",
    "2.28": f"ncclCommInitRankConfig comm 0x7f rank 3 nranks 8 {DEVICE} - Init COMPLETE",
    "2.29": f"[Rank 3] ncclCommInitRank comm 0x7f rank 3 nranks 8 {DEVICE} - Init COMPLETE",
    "RCCL": "comm 0x7f rank 3 nranks 8 cudaDev 3 busId 1a000 commId 0xabc localSize 232 used 268 bytes - Init COMPLETE",
}  # fmt: skip


@cases("version", INIT_LINES)
def test_init_complete_of_every_version(version: str) -> None:
    found = process(INIT_LINES[version])
    comm = found.comms[0]
    assert (comm.comm, comm.rank, comm.nranks) == ("0x7f", 3, 8)
    assert (comm.init_started, comm.init_completed, comm.destroyed) == (True, True, False)
    assert comm.comm_id == (None if version == "2.8" else "0xabc")
    assert (found.rank, found.cuda_dev, found.bus_id) == (3, 3, "1a000")


def test_a_start_without_its_end_waits() -> None:
    comm = process(
        "ncclCommInitRank comm 0x7f rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1 commId 0xa - Init START"
    ).comms[0]
    assert (comm.init_started, comm.init_completed) == (True, False)


CHILD = "rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1 parent 0x7"
CHILDREN = {
    "2.21": f"ncclCommSplit comm 0x8 {CHILD} color 0 key 1 commId 0xc - Init START",
    "2.23": f"ncclCommSplit comm 0x8 {CHILD} color 0 key 1- Init START",
    "2.24": f"ncclCommSplit comm 0x8 {CHILD} splitCount 4 color 0 key 1- Init START",
    "2.29": f"ncclCommShrink comm 0x8 {CHILD} childCount 4 color 0 key -1- Init START",
}  # fmt: skip


@cases("version", CHILDREN)
def test_children_of_a_split_know_their_parent_and_give_no_rank(version: str) -> None:
    found = process(
        "comm 0x7 rank 5 nranks 8 cudaDev 0 busId 1 - Init COMPLETE",
        CHILDREN[version],
        CHILDREN[version].replace("- Init START", " - Init COMPLETE"),
    )
    child = found.comms[1]
    assert (child.parent, child.color, child.rank, child.nranks) == ("0x7", "0", 1, 2)
    assert child.split_count == (4 if version in {"2.24", "2.29"} else None)
    assert child.init_completed
    assert found.rank == 5


def test_a_child_alone_gives_no_rank() -> None:
    assert process(CHILDREN["2.24"]).rank is None


def test_the_rank_is_that_in_the_largest_communicator() -> None:
    lines = [
        f"comm 0x{n} rank {rank} nranks {size} cudaDev 0 busId 1 - Init COMPLETE"
        for n, rank, size in [(1, 0, 2), (2, 5, 8), (3, 1, 4)]
    ]
    assert process(*lines).rank == 5


@cases(
    ("line", "destroyed", "aborted"),
    [
        ("comm 0x7 rank 0 nranks 2 cudaDev 0 busId 60 - Destroy COMPLETE", True, False),
        ("comm 0x7 rank 0 nranks 2 cudaDev 0 busId 60 - Abort COMPLETE", False, True),
        ("comm 0x7 rank 0 nRanks 2 cudaDev 0 busId 60 - Abort START", False, True),
        ("comm 0x7 rank 0 nranks 2 cudaDev 0 busId 60 - Revoke START", False, True),
    ],
)
def test_communicators_end_in_two_ways(line: str, destroyed: bool, aborted: bool) -> None:
    comm = process("comm 0x7 rank 0 nranks 2 cudaDev 0 busId 60 - Init COMPLETE", line).comms[0]
    assert (comm.destroyed, comm.aborted) == (destroyed, aborted)


def test_a_pointer_that_is_used_again_is_another_communicator() -> None:
    init = "comm 0x7 rank 0 nranks 2 cudaDev 0 busId 60 commId 0x{} - Init {}"
    found = process(
        init.format("a", "START"),
        init.format("a", "COMPLETE"),
        "comm 0x7 rank 0 nranks 2 cudaDev 0 busId 60 - Destroy COMPLETE",
        init.format("b", "START"),
    )
    assert [(c.comm_id, c.init_completed, c.destroyed) for c in found.comms] == [
        ("0xa", True, True),
        ("0xb", False, False),
    ]


def test_the_layout_of_the_largest_communicator_counts() -> None:
    found = process(
        "comm 0x7 rank 9 nRanks 16 nNodes 2 localRanks 8 localRank 1 MNNVL 0",
        "comm 0x8 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0",
    )
    assert (found.rank, found.num_nodes, found.num_local_ranks, found.local_rank) == (9, 2, 8, 1)


@cases(
    ("line", "found"),
    [
        ("Channel 00 : 0[1a000] -> 1[3d000] via P2P/IPC", Transport(src=0, dst=1, how="P2P/IPC")),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", Transport(src=0, dst=1, how="P2P/CUMEM/read")),
        ("Channel 00 : 0[1a000] -> 1[3d000] via direct shared memory",
         Transport(src=0, dst=1, how="direct shared memory")),
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", Transport(src=0, dst=1, how="SHM/direct/direct")),
        ("Channel 01/0 : 0[0] -> 1[1] via P2P/direct pointer", Transport(src=0, dst=1, how="P2P/direct pointer")),
        ("Channel 02/1 : 7[7] -> 8[0] [send] via NET/IB/0(4)/GDRDMA",
         Transport(src=7, dst=8, how="NET/IB/0(4)/GDRDMA", direction="send")),
        ("Channel 02/0 : 15[7] -> 0[0] [receive] via NET/AWS Libfabric/3/GDRDMA(PCI)/Shared",
         Transport(src=15, dst=0, how="NET/AWS Libfabric/3/GDRDMA(PCI)/Shared", direction="receive")),
        ("Channel 00 : 0[c1000] -> 1[c6000] via P2P/IPC comm 0x7f nRanks 08",
         Transport(src=0, dst=1, how="P2P/IPC", comm="0x7f")),
    ],
)  # fmt: skip
def test_channel_lines_of_every_version(line: str, found: Transport) -> None:
    assert process(line).transports == (found,)


def test_channels_to_a_neighbour_are_counted() -> None:
    lines = [f"Channel {n:02}/0 : 0[0] -> 1[1] via P2P/CUMEM" for n in range(24)]
    found = process(*lines, "Channel 00/02 : 0 1 2 3", *lines)
    assert found.transports == (Transport(src=0, dst=1, how="P2P/CUMEM", num_channels=24),)


def test_connections_made_inside_an_init_are_its_communicators() -> None:
    found = process(
        "comm 0x7 rank 0 nranks 4 cudaDev 0 busId 60 commId 0xa - Init START",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "comm 0x7 rank 0 nranks 4 cudaDev 0 busId 60 commId 0xa - Init COMPLETE",
        "comm 0x8 rank 0 nranks 2 cudaDev 0 busId 60 commId 0xb - Init COMPLETE",
        "Channel 00/0 : 1[2] -> 0[0] [receive] via NET/Socket/0",
    )
    assert [(t.src, t.comm) for t in found.transports] == [(0, "0x7"), (1, None)]


@cases(
    ("line", "interfaces", "oob", "hcas"),
    [
        ("NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:10.1.0.1<0>",
         (("eth0", "10.0.0.1"), ("eth1", "10.1.0.1")), None, ()),
        ("NET/Socket : Using [0]ib0:fe80::ae1f:6bff:fe12:3456%ib0<0>",
         (("ib0", "fe80::ae1f:6bff:fe12:3456%ib0"),), None, ()),
        ("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
         (), ("eth0", "10.0.0.1"), ("mlx5_0:1/IB", "mlx5_1:1/RoCE")),
        ("NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>", (), ("eth0", "10.0.0.1"), ("mlx5_0:1/IB",)),
        ("NET/IB : Using [0]mlx5_bond_0:1/RoCE [RO]; OOB bond0:10.0.0.1<0>",
         (), ("bond0", "10.0.0.1"), ("mlx5_bond_0:1/RoCE",)),
        ("NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} [RO]; OOB eth0:10.0.0.1<0>",
         (), ("eth0", "10.0.0.1"), ("mlx5_0:1/IB", "mlx5_1:1/IB")),
        ("NET/IB : Using [RO]; OOB eth9:10.77.0.1<0>", (), ("eth9", "10.77.0.1"), ()),
        ("Bootstrap : Using eth0:10.0.0.1<0>", (), ("eth0", "10.0.0.1"), ()),
        ("Bootstrap: Using eth0:10.0.0.1<0>", (), ("eth0", "10.0.0.1"), ()),
    ],
)  # fmt: skip
def test_interfaces_and_ports_that_were_chosen(
    line: str, interfaces: tuple[tuple[str, str], ...], oob: tuple[str, str] | None, hcas: tuple[str, ...]
) -> None:
    found = process(line)
    assert (found.interfaces, found.oob, found.hcas) == (interfaces, oob, hcas)


def test_what_was_available_and_not_chosen_is_kept() -> None:
    found = process(
        "NET/Socket : Using [0]eth0:10.0.0.1<0>",
        "ncclTopoPopulateNics : Filled eth0 in topo with pciPath=(null) keep=1 coll=(null)",
        "ncclTopoPopulateNics : Filled ib0 in topo with pciPath=(null) keep=1 coll=(null)",
    )
    assert found.available == ("ib0",)


@cases(
    ("line", "network"),
    [
        ("Using network Socket", "Socket"),
        ("Using network AWS Libfabric", "AWS Libfabric"),
        ("Initialized NET plugin IB", "IB"),
        ("Assigned NET plugin Socket to comm", "Socket"),
    ],
)
def test_the_network_in_use(line: str, network: str) -> None:
    assert process(line).network == network


@cases(
    ("line", "plugins"),
    [
        ("NET/Plugin: Loaded net plugin Libfabric (v9)", ("NET Libfabric v9",)),
        ("NET/Plugin : Loaded net plugin NCCL RDMA Plugin (v5)", ("NET NCCL RDMA Plugin v5",)),
        ("Successfully loaded external network plugin libnccl-net-ofi.so", ("NET libnccl-net-ofi.so",)),
        ("TUNER/Plugin: Using nccl_ofi_tuner (v3)", ("TUNER nccl_ofi_tuner v3",)),
        ("PROFILER/Plugin: Loaded Inspector (v5)", ("PROFILER Inspector v5",)),
        ("NET/OFI Selected Provider is efa (found 4 nics)", ("NET OFI efa",)),
        ("NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.", ()),
        ("NET/Plugin: Using internal network plugin.", ()),
        ("NET/Plugin : No plugin found (libnccl-net.so), using internal implementation", ()),
        ("NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.", ()),
    ],
)
def test_plugins_that_were_loaded(line: str, plugins: tuple[str, ...]) -> None:
    assert process(line).plugins == plugins


@cases(
    ("line", "env"),
    [
        ("NCCL_SOCKET_IFNAME set by environment to ib0", {"NCCL_SOCKET_IFNAME": "ib0"}),
        ("NCCL_SOCKET_IFNAME set to ib0", {"NCCL_SOCKET_IFNAME": "ib0"}),
        ("NCCL_P2P_DISABLE set by environment to 1.", {"NCCL_P2P_DISABLE": "1"}),
        ("NCCL_IB_HCA set to =mlx5_0:1,mlx5_1", {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1"}),
        ("NET/Plugin: Plugin name set by env to none", {}),
    ],
)
def test_the_environment_that_nccl_echoes(line: str, env: dict[str, str]) -> None:
    assert process(line).env == env


def test_the_host_id_names_the_node() -> None:
    assert process("NCCL_HOSTID set by environment to rack3-7").node == "rack3-7"


def test_gpu_direct_by_device() -> None:
    found = process(
        "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'", "NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1'"
    )
    assert found.gdr == {"mlx5_0": True, "mlx5_1": False}


@pytest.mark.parametrize(
    ("line", "channels"),
    [
        ("2 coll channels, 2 p2p channels, 1 p2p channels per peer", {"coll": 2, "p2p": 2, "p2p per peer": 1}),
        ("24 coll channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer",
         {"coll": 24, "nvls": 16, "p2p": 32, "p2p per peer": 32}),
        ("2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer",
         {"coll": 2, "collnet": 2, "nvls": 0, "p2p": 2, "p2p per peer": 2}),
    ],
)  # fmt: skip
def test_numbers_of_channels(line: str, channels: dict[str, int]) -> None:
    assert process(line).num_channels == channels


def test_algorithms_are_counted() -> None:
    new = "AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}"
    found = process(new, new, "1048576 Bytes -> Algo 1 proto 2 time 123.4")
    assert found.algorithms == {"AllReduce RING/SIMPLE": 2, "RING/SIMPLE": 1}


def test_timings_are_those_of_the_largest_communicator() -> None:
    found = process(
        "Init timings - ncclCommInitRank: rank 0 nranks 2 total 0.10 (kernels 0.05, bootstrap 0.05)",
        "Init timings - ncclCommInitRank: rank 0 nranks 8 total 9.50 (kernels 0.20, bootstrap 9.00, rest 0.30)",
        "Init timings: rank 0 nranks 2 total 0.70 (kernels 0.20, bootstrap 0.50)",
        "Bootstrap timings total 9.010000 (create 0.000100, send 0.1, recv 8.9, ring 0.001, delay 0.0)",
    )
    assert found.phases_s["init total"] == 9.5
    assert found.phases_s["init bootstrap"] == 9.0
    assert found.phases_s["bootstrap total"] == 9.01
    assert found.phases_s["bootstrap recv"] == 8.9


@cases(
    ("text", "versions"),
    [
        ("NCCL version 2.28.9+cuda13.0", {"nccl": "2.28.9", "cuda": "13.0"}),
        ("NCCL version 2.10.3+cuda10.2", {"nccl": "2.10.3", "cuda": "10.2"}),
        ("NCCL version 2.21.5", {"nccl": "2.21.5"}),
        ("RCCL version 2.18.3+hip6.0 HEAD:2f6d59e", {"rccl": "2.18.3", "hip": "6.0"}),
        ("RCCL version : 2.20.5-HEAD:d380693", {"rccl": "2.20.5"}),
        ("HIP version  : 6.2.41133-dd7f95766", {"hip": "6.2.41133"}),
        ("ROCm version : 6.2.0.0-66-dd7f95766", {"rocm": "6.2.0.0"}),
        ("the conversion of versions", {}),
    ],
)
def test_versions(text: str, versions: dict[str, str]) -> None:
    assert version_of(text) == versions


def test_a_bare_version_line_belongs_to_the_only_process() -> None:
    reading = read("NCCL version 2.19.3+cuda12.2\nvm:1:1 [0] NCCL INFO Using network IB")
    assert reading.processes[0].versions == {"nccl": "2.19.3", "cuda": "12.2"}
    two = read(
        "NCCL version 2.19.3+cuda12.2\nvm:1:1 [0] NCCL INFO Using network IB\nvm:2:2 [1] NCCL INFO Using network IB"
    )
    assert [p.versions for p in two.processes] == [{}, {}]


@cases(
    ("text", "level", "kind"),
    [
        ("AllReduce: opCount 3 sendbuff 0x7 recvbuff 0x7 count 1", "INFO", "operation"),
        ("ncclCommInitRank comm 0x7 rank 0 nranks 2 cudaDev 0 busId 1 commId 0xa - Init START", "INFO", "init"),
        ("Bootstrap : Using eth0:10.0.0.1<0>", "INFO", "init"),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "INFO", "connect"),
        ("Connected all rings, use ring PXN 0 GDR 0", "INFO", "connect"),
        ("proxy.cc:1367 -> 2", "INFO", "error"),
        ("Bootstrap : no socket interface found", "WARN", "error"),
        ("comm 0x7 rank 0 nranks 2 cudaDev 0 busId 1 - Destroy COMPLETE", "INFO", "teardown"),
        ("[Service thread] Connection closed by localRank 1", "INFO", "teardown"),
        ("something new", "INFO", "other"),
    ],
)
def test_what_a_process_did_last(text: str, level: str, kind: str) -> None:
    assert class_of(text, level) == kind


def test_lines_that_nobody_knows_are_counted_and_shown() -> None:
    source = read("vm:1:1 [0] NCCL INFO Quantum entanglement established\nvm:1:1 [0] NCCL INFO Using network IB").source
    assert (source.num_understood, source.num_unknown) == (1, 1)
    assert source.unknown_examples == ("vm:1:1 [0] NCCL INFO Quantum entanglement established",)


def test_two_writers_in_one_line_give_two_processes() -> None:
    reading = read("vm:1:1 [0] NCCL INFO Using network IB vm:2:2 [1] NCCL INFO Using network Socket")
    assert [(p.pid, p.network) for p in reading.processes] == [(1, "IB"), (2, "Socket")]


def test_half_a_line_of_a_neighbour_is_no_host() -> None:
    reading = read(
        """
vm:7:7 [0] NCCL INFO Using network IB
iterationvm:7:8 [0] NCCL INFO Connected all trees
vm:7:7 [0] NCCL INFO Connected all rings
"""
    )
    assert [(p.host, p.pid) for p in reading.processes] == [("vm", 7)]


def test_a_process_that_never_came_to_a_communicator_has_no_rank() -> None:
    found = process("NCCL_SOCKET_IFNAME set by environment to ib0")
    assert (found.rank, found.comms, found.host, found.pid) == (None, (), "vm", 10)


@cases(
    "text, said",
    [  # forms of NCCL's versions; with the expected time the size is of all ranks' parts
        ("1048576 Bytes -> Algo 1 proto 1 time 51.603912", ("", 1048576, True, "RING", "LL128")),
        ("AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.2", ("AllGather", 37756928, True, "RING", "SIMPLE")),
        ("AllReduce: 4096 Bytes -> Algo 0 proto 0 channel{Lo..Hi}={0..1}", ("AllReduce", 4096, False, "TREE", "LL")),
        (
            "AllReduce: 268435456 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}",
            ("AllReduce", 268435456, False, "NVLS", "SIMPLE"),
        ),
        (
            "ReduceScatter: 8192 Bytes -> Algo PAT proto SIMPLE channel{Lo..Hi}={0..0}",
            ("ReduceScatter", 8192, False, "PAT", "SIMPLE"),
        ),
        (
            "AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0} cgaClusterSize 4",
            ("AllReduce", 1024, False, "RING", "LL"),
        ),
    ],
)
def test_which_algorithm_nccl_takes_is_read_in_every_form(text: str, said: tuple[str, int, bool, str, str]) -> None:
    choice = choice_of(f"gpu01:4242:4242 [0] NCCL INFO {text}")
    assert choice is not None
    assert (choice.operation, choice.size_bytes, choice.is_whole, choice.algorithm, choice.protocol) == said
