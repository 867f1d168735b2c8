"""A: faults of the start-up."""

import os
from dataclasses import replace

import msgspec

from allready.lab.inject.commands import LabLayout
from fault_suite.machine import OTHER_LIBRARIES
from fault_suite.scenario import PORT, Answer, Expected, Pick, Row, Setup

ABSENT = ("START-ABSENT",)
NAME = ("START-NAME",)
PATH = ("START-PATH",)
MISMATCH = ("ENV-MISMATCH",)


def _setup(layout: LabLayout, *answers: Answer, **rest: object) -> Setup:
    # While a node waits for the others (--wait), what it knows of the fault is its answer already.
    expected = Expected(answers=answers, statuses=("fault", "waiting"))
    return replace(Setup(layout=layout, from_launch=True, limit_s=40, expected=expected), **rest)  # type: ignore[arg-type]


def _everyone(layout: LabLayout) -> tuple[int, ...]:
    return tuple(range(layout.num_nodes))


def _absent(pick: Pick) -> Setup:
    layout = pick.layout(3, 1)
    node = pick.node(layout, but_0=True)
    answer = Answer(classes=ABSENT, nodes=(node,))
    return _setup(layout, answer, faults=(f"do_not_start node={node}",), victim=f"node {node}")


def _absent_jax(pick: Pick) -> Setup:
    return replace(_absent(pick), script="train_jax.py")


def _late(pick: Pick) -> Setup:
    layout = pick.layout(3, 1)
    node = pick.node(layout, but_0=True)
    answer = Answer(classes=ABSENT, nodes=(node,))
    return _setup(layout, answer, faults=(f"start_late node={node} delay_s=30",), victim=f"node {node}")


def _late_jax(pick: Pick) -> Setup:
    return replace(_late(pick), script="train_jax.py")


def _unroutable_master(pick: Pick) -> Setup:
    """One worker has another, unroutable MASTER_ADDR; it must say so itself, and node 0 may only miss it."""
    layout = pick.layout(3, 1)
    node = pick.node(layout, but_0=True)
    answers = (
        Answer(classes=NAME, nodes=(node,)),
        Answer(classes=NAME, variables=("MASTER_ADDR",)),
        Answer(classes=PATH, links=((node, 0),), variables=("MASTER_ADDR",)),
    )
    made = _setup(layout, *answers, node_args={node: ("--master-addr", "10.99.0.1")}, victim=f"node {node}")
    return replace(made, expected=replace(made.expected, nodes=(node,), excused=(node,)))


def _wrong_port(pick: Pick) -> Setup:
    layout = pick.layout(3, 1)
    node = pick.node(layout, but_0=True)
    answer = Answer(classes=PATH, links=((node, 0),))
    made = _setup(layout, answer, node_args={node: ("--master-port", str(PORT + 55))}, victim=f"node {node}")
    return replace(made, expected=replace(made.expected, nodes=(node,), excused=(node,)))


def _filtered_master(pick: Pick) -> Setup:
    layout = pick.layout(2, 1)
    answers = (Answer(classes=PATH, nodes=(0,)), Answer(classes=PATH, links=((1, 0),)))
    made = _setup(layout, *answers, faults=(f"port_dropped node=0 port={PORT}",), victim="port of node 0")
    return replace(made, expected=replace(made.expected, nodes=_everyone(layout)))


_LISTEN = "import socket, time\ns = socket.socket()\ns.setsockopt(1, 2, 1)\ns.bind(('0.0.0.0', {port}))\ns.listen(8)\n"
_LISTEN += "time.sleep(120)\n"


def _taken_port(pick: Pick) -> Setup:
    layout = pick.layout(2, 1)
    answers = (Answer(classes=PATH, nodes=(0,)), Answer(classes=PATH, variables=("MASTER_PORT",)))
    listener = ("python", "-c", _LISTEN.format(port=PORT))
    return _setup(layout, *answers, before=((0, listener),), victim="port of node 0")


def _stale_job(pick: Pick) -> Setup:
    layout = pick.layout(2, 1)
    answers = (
        Answer(classes=("START-ABSENT", "START-PATH"), nodes=(0,)),
        Answer(classes=("START-ABSENT", "START-PATH"), variables=("MASTER_PORT",)),
    )
    store = "import time, torch.distributed as d\n"
    store += f"s = d.TCPStore('0.0.0.0', {PORT}, 4, True, wait_for_workers=False)\ntime.sleep(120)\n"
    return _setup(layout, *answers, before=((0, ("python", "-c", store)),), victim="store of an old job on node 0")


def _world_size_differs(pick: Pick) -> Setup:
    layout = pick.layout(3, 1)
    node = pick.node(layout, but_0=True)
    answer = Answer(classes=MISMATCH, nodes=(node,))
    made = _setup(layout, answer, node_args={node: ("--nnodes", "4")}, victim=f"node {node}")
    return replace(made, expected=replace(made.expected, nodes=_everyone(layout)))


def _duplicate_rank(pick: Pick) -> Setup:
    layout = pick.layout(3, 1)
    answer = Answer(classes=MISMATCH, nodes=(1,))
    made = _setup(layout, answer, node_args={2: ("--node-rank", "1")}, victim="node rank 1, twice")
    return replace(made, expected=replace(made.expected, nodes=(0, 1), excused=(1, 2)))


def _loopback_name(pick: Pick) -> Setup:
    layout = pick.layout(2, 1)
    node = pick.node(layout, but_0=True)
    answer = Answer(classes=NAME, nodes=(node,))
    made = _setup(layout, answer, faults=(f"hosts_loopback node={node}",), victim=f"node {node}")
    return replace(made, expected=replace(made.expected, in_findings=True, may_run=True))


def _by_name(layout: LabLayout) -> LabLayout:
    return msgspec.structs.replace(layout, master_addr="node0")


def _name_differs(pick: Pick) -> Setup:
    layout = _by_name(pick.layout(3, 1))
    node = pick.node(layout, but_0=True)
    answers = (Answer(classes=(*NAME, *PATH), nodes=(node,)), Answer(classes=(*NAME, *PATH), links=((node, 0),)))
    made = _setup(
        layout, *answers, faults=(f"hosts_entry node={node} name=node0 address=10.77.0.77",), victim=f"node {node}"
    )
    return replace(made, expected=replace(made.expected, nodes=(node,), excused=(node,)))


def _name_missing(pick: Pick) -> Setup:
    layout = _by_name(pick.layout(3, 1))
    node = pick.node(layout, but_0=True)
    answer = Answer(classes=NAME, nodes=(node,))
    made = _setup(layout, answer, faults=(f"hosts_missing node={node} name=node0",), victim=f"node {node}")
    return replace(made, expected=replace(made.expected, nodes=(node,), excused=(node,)))


def _same_docker_address(pick: Pick) -> Setup:
    """Every node chooses an interface that has the same address on all: no rank of them is the odd one."""
    layout = pick.layout(2, 1)
    env = {"GLOO_SOCKET_IFNAME": "docker0", "NCCL_SOCKET_IFNAME": "docker0"}
    answers = tuple(
        Answer(classes=(*NAME, *PATH), **rest)
        for rest in ({"nodes": (0, 1)}, {"variables": ("GLOO_SOCKET_IFNAME",)}, {"links": ((0, 1), (1, 0))})
    )
    return _setup(
        layout,
        *answers,
        faults=("second_interface nodes=0,1",),
        node_env={0: env, 1: env},
        victim="docker0 of all",
        by_ranks=True,
    )


def _missing_interface(pick: Pick) -> Setup:
    layout = pick.layout(2, 1)
    node = pick.node(layout)
    answer = Answer(classes=("START-NAME", "ENV-MISMATCH", "ENV-LIMIT"), nodes=(node,))
    return _setup(
        layout, answer, node_env={node: {"GLOO_SOCKET_IFNAME": "ens99"}}, victim=f"node {node}", by_ranks=True
    )


def _filtered_data_ports(pick: Pick) -> Setup:
    layout = pick.layout(3, 1)
    node = pick.node(layout)
    others = [n for n in _everyone(layout) if n != node]
    answers = (
        Answer(classes=PATH, nodes=(node,)),
        Answer(classes=PATH, nodes=(node,), links_among=tuple((other, node) for other in others)),
        Answer(classes=PATH, links_among=tuple((other, node) for other in others)),
    )
    keep = f"{PORT},{PORT + 1}"
    made = _setup(
        layout, *answers, faults=(f"data_ports_dropped node={node} keep={keep}",), victim=f"node {node}", by_ranks=True
    )
    # Of two ranks the one with the higher address connects: behind the last one nothing new comes in.
    return replace(made, expected=replace(made.expected, may_run=node == max(_everyone(layout))))


def _one_way(pick: Pick) -> Setup:
    layout = pick.layout(3, 1)
    source = pick.node(layout, but_0=True)
    target = 3 - source
    answer = Answer(classes=PATH, links=((source, target),))
    fault = f"one_way_drop source={source} target={target}"
    return _setup(layout, answer, faults=(fault,), victim=f"{source} -> {target}", by_ranks=True)


def _no_ipv4(pick: Pick) -> Setup:
    """One node has only IPv6, and the master's address is one of IPv4."""
    layout = pick.layout(2, 1)
    answers = (Answer(classes=(*NAME, *PATH), nodes=(1,)), Answer(classes=(*NAME, *PATH), links=((1, 0),)))
    flush = ("sh", "-c", 'ip -4 address flush dev eth0 && exec "$@"', "sh")
    made = _setup(layout, *answers, node_prefix={1: flush}, victim="node 1")
    return replace(made, expected=replace(made.expected, nodes=(1,), excused=(1,)))


def _mtu_black_hole(pick: Pick) -> Setup:
    layout = pick.layout(3, 1)
    node = pick.node(layout)
    around = tuple(link for other in _everyone(layout) if other != node for link in ((other, node), (node, other)))
    answers = (Answer(classes=PATH, nodes=(node,)), Answer(classes=PATH, links_among=around))
    return _setup(
        layout, *answers, faults=(f"mtu_black_hole node={node} limit_bytes=1400",), victim=f"node {node}", by_ranks=True
    )


def _variable_differs(pick: Pick) -> Setup:
    layout = pick.layout(3, 1)
    node = pick.node(layout)
    answer = Answer(classes=MISMATCH, nodes=(node,), variables=("NCCL_ALGO",))
    made = _setup(layout, answer, node_env={node: {"NCCL_ALGO": "Ring"}}, victim=f"node {node}")
    return replace(made, expected=replace(made.expected, in_findings=True))


def _version_differs(pick: Pick) -> Setup:
    """One node finds another version first; whether the job runs all the same is the library's affair."""
    layout = pick.layout(3, 1)
    node = pick.node(layout)
    made = _setup(layout, Answer(classes=("ENV-MISMATCH",), nodes=(node,)), victim=f"node {node}")
    env = {node: {"PYTHONPATH": os.environ.get(OTHER_LIBRARIES, "")}}
    return replace(made, node_env=env, expected=replace(made.expected, in_findings=True))


def _version_differs_jax(pick: Pick) -> Setup:
    return replace(_version_differs(pick), script="train_jax.py")


def _limits(pick: Pick) -> Setup:
    layout = pick.layout(2, 2)
    node, dose = pick.node(layout), pick.dose(("shm", "nofile"))
    answer = Answer(classes=("ENV-LIMIT",), nodes=(node,))
    made = _setup(layout, answer, victim=f"node {node}", dose=dose)
    if dose == "shm":
        made = replace(made, faults=(f"tiny_shm node={node} size_bytes=64M",))
    else:
        made = replace(made, node_prefix={node: ("prlimit", "--nofile=256:256")})
    return replace(made, expected=replace(made.expected, in_findings=True))


def _dies_at_import(pick: Pick) -> Setup:
    layout = pick.layout(2, 1)
    return Setup(
        layout=layout,
        faults=("exception rank=0 step=import message=no_such_module",),
        expected=Expected(answers=(Answer(classes=("DEAD",), ranks=(0,)),)),
        victim="rank 0",
    )


def _dies_at_import_jax(pick: Pick) -> Setup:
    fault = "exception rank=0 step=import module=jax message=no_such_module"
    return replace(_dies_at_import(pick), script="train_jax.py", faults=(fault,))


ROWS = (
    Row(id="A01", title="missing node", make=_absent, core=True),
    Row(id="A01J", title="missing process, JAX", make=_absent_jax, framework="jax", needs=("jax",)),
    Row(id="A02", title="late node", make=_late),
    Row(id="A02J", title="late process, JAX", make=_late_jax, framework="jax", needs=("jax",)),
    Row(id="A03", title="MASTER_ADDR unroutable on one node", make=_unroutable_master, core=True),
    Row(id="A04", title="wrong port on one node", make=_wrong_port),
    Row(id="A05", title="master port dropped by a firewall", make=_filtered_master, core=True, needs=("filters",)),
    Row(id="A06", title="master port taken by another service", make=_taken_port),
    Row(id="A07", title="an old job's store on the port", make=_stale_job),
    Row(id="A08", title="nnodes differs", make=_world_size_differs),
    Row(id="A09", title="two nodes with one rank", make=_duplicate_rank, standard=False),
    Row(id="A10", title="own name is 127.0.1.1", make=_loopback_name, core=True),
    Row(id="A11", title="a name resolves differently on one node", make=_name_differs, standard=False),
    Row(id="A12", title="a name does not resolve on one node", make=_name_missing, standard=False),
    Row(id="A13", title="the same docker0 address on every node is chosen", make=_same_docker_address, core=True),
    Row(id="A14", title="IFNAME names a missing interface", make=_missing_interface, standard=False),
    Row(id="A15", title="data ports filtered", make=_filtered_data_ports, core=True, needs=("filters",)),
    Row(id="A16", title="one-way path between two nodes", make=_one_way, core=True, needs=("filters",)),
    Row(id="A17", title="one node has IPv6 only", make=_no_ipv4, standard=False, needs=("ip",)),
    Row(id="A18", title="MTU black hole", make=_mtu_black_hole, core=True, needs=("filters",)),
    Row(id="A19", title="a library's version differs", make=_version_differs, standard=False, needs=("other torch",)),
    Row(
        id="A19J",
        title="a library's version differs, JAX",
        make=_version_differs_jax,
        standard=False,
        framework="jax",
        needs=("jax", "other jax"),
    ),
    Row(id="A20", title="a variable differs on one node", make=_variable_differs),
    Row(id="A21", title="small /dev/shm or few file descriptors on one node", make=_limits, needs=("prlimit",)),
    Row(id="A22", title="rank 0 dies at an import", make=_dies_at_import),
    Row(id="A22J", title="process 0 dies at an import, JAX", make=_dies_at_import_jax, framework="jax", needs=("jax",)),
)
