"""`allready bench pairs` and `bisect` on nodes whose links have a rate: slow links, a throttled CPU, a blocked pair."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from allready.lab import Lab
from allready.lab.faults import Fault, OneWayDrop, SlowLink
from tests.clock import until
from tests.lab.checks import Seen, check

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]

RATE_MBIT_PER_S = 80.0
SIZE = ("--max-bytes", "256K", "--backend", "gloo")


def bench(lab: Lab, folder: Path, what: str, num_nodes: int, *faults: Fault, rates: dict[int, float]) -> Seen:
    """What node 0 says in the end; every link has the same rate, less its loss."""
    links = [SlowLink(node=node, rate_mbit_per_s=RATE_MBIT_PER_S * rates.get(node, 1.0)) for node in range(num_nodes)]
    return check(
        lab, folder, [*links, *faults], extra=(*SIZE, what), num_nodes=num_nodes, timeout_s=200.0, command="bench"
    )[0]


@pytest.mark.slow
def test_the_node_behind_a_link_at_half_its_rate_is_named(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    seen = bench(make_lab(4), tmp_path, "pairs", 4, rates={2: 0.5})
    assert (seen.verdict["code"], seen.accused["nodes"]) == ("BEN004", [2]), seen.output
    assert seen.exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize(("share", "node"), [(0.8, 5), (0.5, 3), (0.1, 6)])
@pytest.mark.parametrize(("what", "code"), [("pairs", "BEN004"), ("bisect", "BEN006")])
def test_a_link_that_loses_a_part_of_its_rate_is_named_among_eight(
    make_lab: Callable[..., Lab], tmp_path: Path, what: str, code: str, share: float, node: int
) -> None:
    seen = bench(make_lab(8), tmp_path, what, 8, rates={node: share})
    run = seen.report["collectives"]["runs"][0]
    num_rounds = 1 + max((g["round"] for g in run["groups"]), default=0)
    assert (seen.verdict["code"], seen.accused.get("nodes")) == (code, [node]), seen.output
    assert num_rounds <= 3


@pytest.mark.slow
def test_bisect_finds_two_slow_nodes_at_once(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    seen = bench(make_lab(8), tmp_path, "bisect", 8, rates={1: 0.5, 6: 0.3})
    named = {n for f in seen.report["findings"] if f["code"] == "BEN006" for n in f["culprits"]["nodes"]}
    assert named == {1, 6}, seen.output


@pytest.mark.slow
def test_a_blocked_pair_does_not_stop_the_rest(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    seen = bench(make_lab(4), tmp_path, "pairs", 4, OneWayDrop(source=1, target=3), rates={})
    assert (seen.verdict["code"], seen.accused["links"]) == ("BEN005", [[1, 3]]), seen.output
    pairs = seen.report["collectives"]["runs"][0]["pairs"]
    assert {(p["sender"], p["receiver"]) for p in pairs if p["gb_per_s"] is None} == {(1, 3), (3, 1)}
    assert len([p for p in pairs if p["gb_per_s"]]) == 10


@pytest.mark.slow
def test_a_blocked_group_does_not_stop_a_bisection_and_its_link_is_named(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    seen = bench(make_lab(4), tmp_path, "bisect", 4, OneWayDrop(source=2, target=3), rates={})
    assert (seen.verdict["code"], seen.accused["links"]) == ("BEN005", [[2, 3]]), seen.output
    groups = {tuple(g["members"]): g["gb_per_s"] for g in seen.report["collectives"]["runs"][0]["groups"]}
    assert groups.pop((2, 3)) is None
    assert groups
    assert all(groups.values())
    assert "BEN006" not in {f["code"] for f in seen.report["findings"]}


@contextmanager
def throttled(rank: int, percent: int) -> Iterator[list[int]]:
    """This rank gets so many percent of one CPU, by the quota of a control group of its own; yields its pid."""
    root = Path("/sys/fs/cgroup")
    is_unified = (root / "cgroup.controllers").exists()
    group = (root if is_unified else root / "cpu") / f"allready-test-{os.getpid()}"
    try:
        group.mkdir()
        if is_unified:
            (group / "cpu.max").write_text(f"{percent * 1000} 100000")
        else:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text(str(percent * 1000))
    except OSError as error:
        pytest.skip(f"no control group with a quota can be made here: {error}")
    over = threading.Event()
    moved: list[int] = []

    def catch() -> None:
        while not over.is_set() and not (pid := _pid_of(rank)):
            over.wait(0.05)
        if not over.is_set():
            (group / "cgroup.procs").write_text(str(pid))
            moved.append(pid)

    thread = threading.Thread(target=catch)
    thread.start()
    try:
        yield moved
    finally:
        over.set()
        thread.join()
        until(lambda: not (group / "cgroup.procs").read_text().strip(), 10)
        group.rmdir()


def _pid_of(rank: int) -> int:
    """Among our own descendants: other jobs of this machine have ranks of the same number."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "collectives.rank" in " ".join(process.cmdline()) and process.environ().get("RANK") == str(rank):
                return int(process.pid)
    return 0


@pytest.mark.slow
def test_a_throttled_cpu_is_a_slow_rank_and_no_slow_link(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    if os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        pytest.skip("so much else runs here that no rank gets more than the throttled one")
    with throttled(1, 15) as moved:
        seen = bench(make_lab(4), tmp_path, "pairs", 4, rates={})
    assert moved, "rank 1 was not found"
    codes = {f["code"]: f["culprits"]["ranks"] for f in seen.report["findings"] if f["code"].startswith("BEN")}
    assert codes == {"BEN003": [1]}, seen.output


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("ip") and shutil.which("tc")), reason="needs iproute2")
def test_every_network_between_the_nodes_is_measured_and_the_slow_nic_is_named_with_it(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = make_lab(4)
    for node in range(4):
        rate = "20mbit" if node == 2 else "80mbit"
        for words in (
            "ip link add link eth0 name eth1 type macvlan mode bridge",
            f"ip addr add 10.99.0.{node + 1}/24 dev eth1",
            "ip link set eth1 up",
            f"tc qdisc add dev eth1 root tbf rate {rate} burst 40kb latency 50ms",
        ):
            assert lab.run(node, words.split()).returncode == 0
    seen = check(lab, tmp_path, [], extra=(*SIZE, "pairs"), num_nodes=4, timeout_s=200.0, command="bench")[0]
    assert (seen.verdict["code"], seen.accused["ranks"]) == ("BEN004", [2]), seen.output
    assert "eth1: rank 2" in seen.output
    pairs = seen.report["collectives"]["runs"][0]["pairs"]
    assert {rail: len([p for p in pairs if p["rail"] == rail]) for rail in ("eth0", "eth1")} == {"eth0": 12, "eth1": 12}
