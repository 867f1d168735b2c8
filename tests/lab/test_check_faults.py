"""Every start-up fault, injected between real namespaces: the right class, the right culprit, within seconds.

The bounds are the product's promises: 5 s, and 10 s for MTU and data ports.
"""

import threading
from pathlib import Path

import pytest

from allready.lab import Lab
from allready.lab.faults import (
    DataPortsDropped,
    DoNotStart,
    HostsLoopback,
    HostsMissing,
    InterfaceMtu,
    LinkDown,
    MtuBlackHole,
    OneWayDrop,
    PortDropped,
    SecondInterface,
    StartLate,
    TinyShm,
)
from tests.lab.checks import Seen, check

pytestmark = pytest.mark.lab

SHORT = ("--wait", "6", "--stages", "roll,facts,reach")
NO_SWEEP = ("--stages", "gloo_barrier,small,reach")


def assert_named(seen: Seen, within_s: float, **accused: object) -> None:
    assert seen.accused == {k.replace("class_", "class"): v for k, v in accused.items()}
    assert (seen.exit_code, seen.status) == (1, "fault")
    assert seen.named_after_s is not None
    assert seen.named_after_s < within_s + seen.paused_s
    assert seen.verdict["detect_s"] < within_s + seen.paused_s
    assert "\x1b" not in seen.output, "a pipe gets plain text"
    assert seen.verdict["code"] in seen.output


def test_healthy_nodes_are_healthy(lab2: Lab, tmp_path: Path) -> None:
    for seen in check(lab2, tmp_path, extra=NO_SWEEP).values():
        assert (seen.exit_code, seen.status, seen.worst) == (0, "healthy", [])
        assert seen.report["verdict"] is None
        assert seen.report["world"]["world_size"] == 2


def test_an_absent_node_is_named(lab2: Lab, tmp_path: Path) -> None:
    [seen] = check(lab2, tmp_path, [DoNotStart(node=1)], extra=SHORT).values()
    assert_named(seen, 5, class_="START-ABSENT", nodes=[1], ranks=[1])


@pytest.mark.slow
def test_an_absent_node_0_is_named_by_the_worker(lab2: Lab, tmp_path: Path) -> None:
    [seen] = check(lab2, tmp_path, [DoNotStart(node=0)], extra=SHORT).values()
    assert_named(seen, 5, class_="START-ABSENT", nodes=[0])


@pytest.mark.slow
def test_a_late_node_is_welcomed_and_the_report_says_how_late(lab2: Lab, tmp_path: Path) -> None:
    seen = check(lab2, tmp_path, [StartLate(node=1, delay_s=12.0)], extra=("--stages", "roll"))
    for node in seen.values():
        assert (node.exit_code, node.status, node.worst) == (0, "healthy", [])
        [late] = [f for f in node.report["findings"] if f["fault_class"] == "START-ABSENT"]
        assert late["culprits"]["nodes"] == [1]
        assert any(f"{late_s} s" in late["message"] for late_s in (12, 13, 14))  # a busy machine starts it later


@pytest.mark.slow
def test_the_wrong_master_port_is_refused(lab2: Lab, tmp_path: Path) -> None:
    seen = check(lab2, tmp_path, extra=SHORT, extra_of={1: ("--master-port", "29555")})
    assert_named(seen[1], 5, class_="START-PATH", links=[[1, 0]], variables=["MASTER_PORT"])
    assert "29500" in seen[1].verdict["sentence"], "the port that node 0 really has"
    assert_named(seen[0], 5, class_="START-ABSENT", nodes=[1], ranks=[1])


@pytest.mark.parametrize(
    "how",
    [
        "reject with tcp reset",
        pytest.param("reject", marks=pytest.mark.slow),
        pytest.param("reject with icmpx type admin-prohibited", marks=pytest.mark.slow),
    ],
)
def test_a_rejecting_firewall_is_told_from_a_node_0_that_does_not_run(lab2: Lab, tmp_path: Path, how: str) -> None:
    table = "add table inet fw; add chain inet fw in { type filter hook input priority 0; }; "
    done = lab2.run(0, ["nft", table + f"add rule inet fw in tcp dport 29500 {how}"])
    assert done.returncode == 0, done.stderr
    for node, seen in check(lab2, tmp_path, extra=SHORT).items():
        filtering = {"nodes": [0]} if node == 0 else {}  # only node 0 can read its rules
        assert_named(seen, 5, class_="START-PATH", links=[[1, 0]], **filtering)
        assert seen.verdict["code"] == "PRT010"
        assert "reject" in seen.verdict["sentence"]


@pytest.mark.slow
def test_a_firewall_that_rejects_everything_is_not_a_node_0_that_does_not_run(lab2: Lab, tmp_path: Path) -> None:
    table = "add table inet fw; add chain inet fw in { type filter hook input priority 0; }; "
    rules = ("ct state established,related accept", "iif lo accept", "reject with icmpx type admin-prohibited")
    done = lab2.run(0, ["nft", table + "; ".join(f"add rule inet fw in {rule}" for rule in rules)])
    assert done.returncode == 0, done.stderr
    seen = check(lab2, tmp_path, extra=SHORT)
    assert_named(seen[0], 5, class_="START-PATH", nodes=[0], links=[[1, 0]])
    assert_named(seen[1], 5, class_="START-PATH", links=[[1, 0]])
    assert seen[1].verdict["code"] == "PRT010"


@pytest.mark.slow
def test_a_port_filtered_on_the_way_is_named_by_node_0_before_the_wait_is_over(lab2: Lab, tmp_path: Path) -> None:
    table = "add table inet fw; add chain inet fw out { type filter hook output priority 0; }; "
    done = lab2.run(1, ["nft", table + "add rule inet fw out tcp dport 29500 drop"])
    assert done.returncode == 0, done.stderr
    seen = check(lab2, tmp_path, extra=SHORT)
    assert_named(seen[0], 5, class_="START-PATH", links=[[1, 0]])
    assert seen[0].verdict["confidence"] == "certain"
    assert_named(seen[1], 5, class_="START-PATH", nodes=[1], links=[[1, 0]])  # it can read its own filter


@pytest.mark.slow
def test_a_node_0_that_drops_its_own_answers_is_told_which_rule_and_what_to_type(lab2: Lab, tmp_path: Path) -> None:
    table = "add table inet fw; add chain inet fw out { type filter hook output priority 0; }; "
    done = lab2.run(0, ["nft", table + "add rule inet fw out tcp sport 29500 drop"])
    assert done.returncode == 0, done.stderr
    [seen, _] = check(lab2, tmp_path, extra=SHORT).values()
    assert_named(seen, 5, class_="START-PATH", nodes=[0], links=[[0, 1]])
    command = "nft insert rule inet fw out tcp sport 29500 accept"
    assert command in seen.verdict["remedy"]
    assert lab2.run(0, command.split()).returncode == 0
    for healed in check(lab2, tmp_path / "healed", extra=SHORT).values():
        assert (healed.exit_code, healed.status) == (0, "healthy")


def test_a_second_network_that_only_nccl_would_use_is_no_fault_of_a_gloo_job(lab2: Lab, tmp_path: Path) -> None:
    for node in (0, 1):
        commands = (
            "link add eth1 type veth peer name peer1",
            f"addr add 192.168.{node}.7/24 dev eth1",
            "link set eth1 up",
            "link set peer1 up",
        )
        for command in commands:
            done = lab2.run(node, ["ip", *command.split()])
            assert done.returncode == 0, done.stderr
    for seen in check(lab2, tmp_path, extra=SHORT).values():
        assert (seen.exit_code, seen.status) == (0, "healthy")


def test_a_filtered_master_port_is_told_from_an_absent_node_on_both_sides(lab2: Lab, tmp_path: Path) -> None:
    seen = check(lab2, tmp_path, [PortDropped(node=0, port=29500)], extra=SHORT)
    assert_named(seen[0], 5, class_="START-PATH", nodes=[0], links=[[1, 0]])
    assert_named(seen[1], 5, class_="START-PATH", links=[[1, 0]])
    assert "nft insert rule" in seen[0].verdict["remedy"]


@pytest.mark.slow
def test_packets_lost_from_node_0_to_node_1_are_told_as_one_way(lab2: Lab, tmp_path: Path) -> None:
    seen = check(lab2, tmp_path, [OneWayDrop(source=0, target=1)], extra=SHORT)
    assert_named(seen[0], 5, class_="START-PATH", links=[[0, 1]])
    assert seen[0].verdict["confidence"] == "certain"


@pytest.mark.slow
def test_packets_lost_from_node_1_to_node_0_never_accuse_the_other_direction(lab2: Lab, tmp_path: Path) -> None:
    seen = check(lab2, tmp_path, [OneWayDrop(source=1, target=0)], extra=SHORT)
    assert_named(seen[1], 5, class_="START-PATH", links=[[1, 0]])
    assert [0, 1] not in seen[0].verdict["culprits"]["links"]


def test_one_way_loss_between_two_workers_is_found_by_the_matrix(lab3: Lab, tmp_path: Path) -> None:
    seen = check(lab3, tmp_path, [OneWayDrop(source=1, target=2)], extra=SHORT, num_nodes=3)
    for node in seen.values():
        assert_named(node, 5, class_="START-PATH", links=[[1, 2]])


@pytest.mark.parametrize("node", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_filtered_data_ports_are_named_with_the_node_behind_the_firewall(lab2: Lab, tmp_path: Path, node: int) -> None:
    for seen in check(lab2, tmp_path, [DataPortsDropped(node=node)], extra=SHORT).values():
        assert_named(seen, 10, class_="START-PATH", nodes=[node], links=[[1 - node, node]])
        assert "nft insert rule" in seen.verdict["remedy"]
        assert "NET001" not in seen.errors, "nothing comes after it: it is told once, as the verdict"


def test_an_mtu_black_hole_is_named_with_the_size_that_passes(lab2: Lab, tmp_path: Path) -> None:
    for seen in check(lab2, tmp_path, [MtuBlackHole(node=1, limit_bytes=1400)], extra=SHORT).values():
        assert_named(seen, 10, class_="START-PATH", links=[[0, 1], [1, 0]])
        assert "1400" in seen.verdict["sentence"]
        assert "mtu 1400" in seen.verdict["remedy"]


@pytest.mark.slow
def test_a_black_hole_behind_one_of_three_nodes_is_blamed_on_that_node(lab3: Lab, tmp_path: Path) -> None:
    for seen in check(lab3, tmp_path, [MtuBlackHole(node=2, limit_bytes=1400)], extra=SHORT, num_nodes=3).values():
        assert seen.accused["nodes"] == [2]
        assert seen.accused["class"] == "START-PATH"


@pytest.mark.slow
def test_a_master_name_that_is_loopback_on_the_worker(lab2: Lab, tmp_path: Path) -> None:
    seen = check(lab2, tmp_path, [HostsLoopback(node=1, name="node0")], extra=SHORT, master="node0")
    assert_named(seen[1], 5, class_="START-NAME", nodes=[1])
    assert "127.0.1.1" in seen[1].verdict["sentence"]


def test_a_master_name_that_is_loopback_on_node_0_alone_is_debians_habit_and_harmless(
    lab2: Lab, tmp_path: Path
) -> None:
    env = {"GLOO_SOCKET_IFNAME": "eth0"}
    extra = ("--stages", "roll,facts")
    seen = check(lab2, tmp_path, [HostsLoopback(node=0)], extra=extra, env_of={0: env, 1: env}, master="node0")
    assert [node.exit_code for node in seen.values()] == [0, 0], seen[0].output


def test_an_own_name_that_is_loopback_breaks_gloo_and_is_named_before_it_does(lab2: Lab, tmp_path: Path) -> None:
    for seen in check(lab2, tmp_path, [HostsLoopback(node=1)], extra=("--backend", "gloo")).values():
        assert seen.accused["class"] == "START-NAME"
        assert seen.accused["nodes"] == [1]
        assert "GLOO_SOCKET_IFNAME=eth0" in seen.verdict["remedy"]


@pytest.mark.slow
def test_a_master_name_that_resolves_late_is_waited_for(lab2: Lab, tmp_path: Path) -> None:
    """As of a pod whose name is published after its peers have started."""
    fault = lab2.apply(HostsMissing(node=1, name="node0"))
    later = threading.Timer(6.0, fault.undo)
    later.start()
    try:
        seen = check(lab2, tmp_path, extra=("--stages", "roll,facts", "--wait", "60"), master="node0")
    finally:
        later.cancel()
        later.join(10)
    assert [node.exit_code for node in seen.values()] == [0, 0], seen[1].output


def test_a_master_name_that_does_not_resolve(lab2: Lab, tmp_path: Path) -> None:
    seen = check(lab2, tmp_path, [HostsMissing(node=1, name="node0")], extra=SHORT, master="node0")
    assert_named(seen[1], 5, class_="START-NAME", nodes=[1])


@pytest.mark.slow
def test_a_cable_that_is_out_is_no_loop_of_retries_without_a_word(lab2: Lab, tmp_path: Path) -> None:
    seen = check(lab2, tmp_path, [LinkDown(node=1)], extra=SHORT)
    assert_named(seen[0], 5, class_="START-ABSENT", nodes=[1], ranks=[1])
    assert seen[1].exit_code == 1


def test_two_nodes_with_one_rank_are_both_named(lab3: Lab, tmp_path: Path) -> None:
    seen = check(lab3, tmp_path, extra=SHORT, extra_of={2: ("--node-rank", "1")}, num_nodes=3)
    for node in seen.values():
        assert_named(node, 5, class_="ENV-MISMATCH", nodes=[1])
    assert "10.77.0.2" in seen[0].verdict["sentence"]
    assert "10.77.0.3" in seen[0].verdict["sentence"]


@pytest.mark.slow
def test_two_nodes_that_both_think_they_are_node_0(lab2: Lab, tmp_path: Path) -> None:
    seen = check(lab2, tmp_path, extra=SHORT, extra_of={1: ("--node-rank", "0")})
    for node in seen.values():
        assert_named(node, 5, class_="ENV-MISMATCH", nodes=[0])
        assert "from  (" not in node.output, "where the other one is, or nothing"


@pytest.mark.slow
def test_a_world_size_clash_of_two_is_a_tie_that_blames_nobody(lab2: Lab, tmp_path: Path) -> None:
    seen = check(lab2, tmp_path, extra=SHORT, extra_of={1: ("--nnodes", "3")})
    for node in seen.values():
        assert_named(node, 5, class_="ENV-MISMATCH", variables=["nnodes"])


def test_a_world_size_clash_names_the_minority(lab3: Lab, tmp_path: Path) -> None:
    seen = check(lab3, tmp_path, extra=SHORT, extra_of={2: ("--nnodes", "4")}, num_nodes=3)
    for node in seen.values():
        assert_named(node, 5, class_="ENV-MISMATCH", nodes=[2], variables=["nnodes"])


@pytest.mark.slow
def test_another_jobs_node_is_named_with_both_ids(lab2: Lab, tmp_path: Path) -> None:
    extra_of = {0: ("--job-id", "alpha"), 1: ("--job-id", "beta")}
    seen = check(lab2, tmp_path, extra=SHORT, extra_of=extra_of)
    for node in seen.values():
        assert node.exit_code == 1
        assert "alpha" in node.output
        assert "beta" in node.output


def test_a_differing_variable_is_named(lab3: Lab, tmp_path: Path) -> None:
    seen = check(lab3, tmp_path, extra=SHORT, env_of={2: {"NCCL_ALGO": "Ring"}}, num_nodes=3)
    for node in seen.values():
        assert_named(node, 5, class_="ENV-MISMATCH", nodes=[2], variables=["NCCL_ALGO"])


def test_a_differing_version_and_a_differing_script_are_named(lab3: Lab, tmp_path: Path) -> None:
    other = tmp_path / "site" / "jax"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    (other / "version.py").write_text('__version__ = "0.0.1"\n')
    env_of = {2: {"PYTHONPATH": str(other.parent)}}
    scripts = []
    for node, text in enumerate(("print(1)\n", "print(1)\n", "print(2)\n")):
        path = tmp_path / f"copy{node}" / "train.py"
        path.parent.mkdir()
        path.write_text(text)
        scripts.append(str(path))
    extra_of = {node: ("--", path) for node, path in enumerate(scripts)}
    extra = (*SHORT, "--framework", "jax")
    for seen in check(lab3, tmp_path, extra=extra, env_of=env_of, extra_of=extra_of, num_nodes=3).values():
        assert (seen.exit_code, seen.accused["class"], seen.accused["nodes"]) == (1, "ENV-MISMATCH", [2])
        told = {f["code"]: f for f in seen.report["findings"] if f["fault_class"] == "ENV-MISMATCH"}
        assert told["ENV001"]["culprits"] == {"nodes": [2], "ranks": [], "links": [], "variables": ["jax"]}
        assert told["ENV003"]["culprits"] == {"nodes": [2], "ranks": [], "links": [], "variables": []}
        assert "train.py" in told["ENV003"]["message"]


def test_a_tiny_dev_shm_is_named(lab2: Lab, tmp_path: Path) -> None:
    extra = ("--stages", "roll,facts", "--nproc-per-node", "2")
    for seen in check(lab2, tmp_path, [TinyShm(node=1)], extra=extra).values():
        [finding] = [f for f in seen.report["findings"] if f["fault_class"] == "ENV-LIMIT"]
        assert finding["culprits"]["nodes"] == [1]


def test_a_missing_interface_in_a_variable_is_named(lab2: Lab, tmp_path: Path) -> None:
    env_of = {1: {"GLOO_SOCKET_IFNAME": "ens99"}}
    for seen in check(lab2, tmp_path, extra=("--backend", "gloo"), env_of=env_of).values():
        assert seen.accused["nodes"] == [1]
        assert "GLOO_SOCKET_IFNAME" in seen.accused["variables"]
        assert "eth0" in seen.verdict["remedy"]


def test_the_same_docker_address_on_both_nodes_is_named_when_it_is_chosen(lab2: Lab, tmp_path: Path) -> None:
    env = {"GLOO_SOCKET_IFNAME": "docker0", "NCCL_SOCKET_IFNAME": "docker0"}
    faults = [SecondInterface(nodes=(0, 1))]
    for seen in check(lab2, tmp_path, faults, extra=("--backend", "gloo"), env_of={0: env, 1: env}).values():
        assert seen.exit_code == 1
        assert "docker0" in seen.verdict["sentence"] or "172.17.0.1" in seen.verdict["sentence"]


def test_an_mtu_that_differs_is_no_more_than_a_warning_while_packets_pass(lab3: Lab, tmp_path: Path) -> None:
    for seen in check(lab3, tmp_path, [InterfaceMtu(node=2, mtu_bytes=1300)], extra=SHORT, num_nodes=3).values():
        [finding] = [f for f in seen.report["findings"] if f["severity"] != "info"]
        assert (finding["severity"], finding["culprits"]["nodes"]) == ("warning", [2])
        assert seen.exit_code == 0
