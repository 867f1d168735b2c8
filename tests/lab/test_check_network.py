"""`allready check` where the network is bad: slow, lossy, too small packets, or dying in the middle of the sweep."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from allready.lab import Lab
from allready.lab.faults import Fault, LinkDown, MtuBlackHole, RandomLoss, SlowLink
from tests.lab.checks import Seen, check

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]

REACH = ("--stages", "reach")
SWEEP = ("--stages", "gloo_barrier,small,sweep", "--backend", "gloo")
LONG = (*SWEEP, "--min-bytes", "1048576", "--iters", "100000")


def run(lab: Lab, folder: Path, *faults: Fault, extra: tuple[str, ...] = REACH) -> Seen:
    """What node 0 says in the end."""
    return check(lab, folder, faults, extra=extra, num_nodes=3, timeout_s=200.0)[0]


@contextmanager
def once_connected(lab: Lab, fault: Fault, *, after_s: float) -> Iterator[None]:
    """Apply a fault some time after the ranks are connected with each other."""
    over = threading.Event()

    def wait() -> None:
        while not over.is_set() and not any(map(_is_connected_rank, Path("/proc").iterdir())):
            over.wait(0.1)
        if not over.wait(after_s):
            lab.apply(fault)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _is_connected_rank(process: Path) -> bool:
    """Gloo has made its connections: the store's and those to two others."""
    try:
        is_rank = b"collectives.rank" in (process / "cmdline").read_bytes()
        sockets = [f for f in (process / "fd").iterdir() if str(f.readlink()).startswith("socket:")] if is_rank else []
    except OSError:
        return False
    return len(sockets) >= 4


@pytest.mark.parametrize("node", [1, pytest.param(0, marks=pytest.mark.slow)], ids=["a worker", "node 0"])
def test_a_slow_link_is_named_with_the_bandwidth_of_every_node(lab3: Lab, tmp_path: Path, node: int) -> None:
    seen = run(lab3, tmp_path, SlowLink(node=node, rate_mbit_per_s=4))
    assert (seen.verdict["code"], seen.accused["class"], seen.accused["nodes"]) == ("NET017", "SLOW-COMM", [node])
    shown = [e for f in seen.report["findings"] for e in f["evidence"] if e["source"].startswith("bandwidth")]
    assert {e["node"] if "node" in e else e["node_rank"] for e in shown} == {0, 1, 2}
    assert "Mbit/s" in seen.verdict["sentence"]
    assert "dev eth0" in seen.verdict["remedy"]


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_link_that_is_slow_one_way_is_named(lab3: Lab, tmp_path: Path, direction: str) -> None:
    seen = run(lab3, tmp_path, SlowLink(node=1, rate_mbit_per_s=4, direction=direction))  # type: ignore[arg-type]
    assert seen.accused["nodes"] == [1]
    ways = [[0, 1], [2, 1]] if direction == "in" else [[1, 0], [1, 2]]
    assert seen.accused["links"] == ways


@pytest.mark.slow
def test_two_slow_links_of_three_accuse_nobody(lab3: Lab, tmp_path: Path) -> None:
    seen = run(lab3, tmp_path, *(SlowLink(node=n, rate_mbit_per_s=4) for n in (0, 1)))
    assert (seen.status, seen.report["verdict"]) == ("healthy", None)


@pytest.mark.slow
def test_a_network_that_is_slow_everywhere_is_healthy_and_says_what_was_not_measured(lab3: Lab, tmp_path: Path) -> None:
    extra = ("--backend", "gloo")
    seen = run(lab3, tmp_path, *(SlowLink(node=n, rate_mbit_per_s=10) for n in range(3)), extra=extra)
    assert (seen.status, seen.exit_code, seen.report["verdict"]) == ("healthy", 0, None)
    assert [f["code"] for f in seen.report["findings"] if f["severity"] not in {"info", "warning"}] == []
    [left] = [item for item in seen.report["not_checked"] if item["code"] == "sweep"]
    assert left["kind"] == "sizes_left"
    [run_] = seen.report["collectives"]["runs"]
    assert run_["points"], "the sizes that fit were measured"
    assert run_["sizes_left"][-1] == 16 * 2**20
    sweep = next(s for s in run_["stages"] if s["name"] == "sweep")
    assert (sweep["outcome"], sweep["duration_s"] < sweep["deadline_s"]) == ("ok", True)
    assert "busbw 0.00" not in seen.errors


@pytest.mark.parametrize(
    ("percent", "direction"),
    [(15, "both"), pytest.param(5, "in", marks=pytest.mark.slow), pytest.param(15, "out", marks=pytest.mark.slow)],
)
def test_random_loss_is_named(lab3: Lab, tmp_path: Path, percent: float, direction: str) -> None:
    seen = run(lab3, tmp_path, RandomLoss(node=1, percent=percent, direction=direction))  # type: ignore[arg-type]
    assert (seen.verdict["code"], seen.accused["class"], seen.accused["nodes"]) == ("NET019", "SLOW-COMM", [1])


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["both", "in"])
@pytest.mark.parametrize("num_nodes", [2, 3])
def test_a_path_that_loses_half_of_all_packets_is_told_as_that_and_nobody_has_died(
    make_lab: Callable[..., Lab], tmp_path: Path, num_nodes: int, direction: Literal["both", "in"]
) -> None:
    """Connections to node 0 are made with luck and break; no process has ended, and no filter drops anything."""
    lab = make_lab(num_nodes)
    fault = RandomLoss(node=1, percent=50, direction=direction)
    seen = check(lab, tmp_path, [fault], extra=("--backend", "gloo"), num_nodes=num_nodes, timeout_s=200.0)[0]
    assert seen.accused["class"] in {"SLOW-COMM", "NET-BROKEN"}
    if seen.verdict["confidence"] != "possible":
        links = seen.accused.get("links", [])
        assert links, "the path is named"
        assert all(1 in link for link in links)


@pytest.mark.slow
def test_a_link_that_becomes_slow_in_the_middle_of_the_sweep_is_named(lab3: Lab, tmp_path: Path) -> None:
    with once_connected(lab3, SlowLink(node=1, rate_mbit_per_s=4), after_s=2.0):
        seen = run(lab3, tmp_path, extra=LONG)
    assert (seen.verdict["code"], seen.accused["class"], seen.accused["nodes"]) == ("SLW007", "SLOW-COMM", [1])


@pytest.mark.parametrize("node", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_link_that_dies_in_the_middle_of_the_sweep_is_named(lab3: Lab, tmp_path: Path, node: int) -> None:
    with once_connected(lab3, LinkDown(node=node), after_s=2.0):
        seen = run(lab3, tmp_path, extra=LONG)
    assert (seen.accused["class"], seen.accused["nodes"]) == ("NET-BROKEN", [node])


@pytest.mark.slow
def test_long_packets_that_get_lost_in_the_middle_of_the_sweep_are_named_with_the_interface(
    lab3: Lab, tmp_path: Path
) -> None:
    with once_connected(lab3, MtuBlackHole(node=1, limit_bytes=1400), after_s=2.0):
        seen = run(lab3, tmp_path, extra=LONG)
    assert (seen.verdict["code"], seen.accused["class"], seen.accused["nodes"]) == ("LNK008", "START-PATH", [1])
    assert "ip link set dev eth0 mtu 1400" in seen.verdict["remedy"]


@pytest.mark.slow
def test_a_healthy_sweep_is_healthy(lab3: Lab, tmp_path: Path) -> None:
    seen = run(lab3, tmp_path, extra=("--backend", "gloo"))
    assert (seen.status, seen.exit_code) == ("healthy", 0)
