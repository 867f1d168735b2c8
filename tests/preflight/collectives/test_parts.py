"""Small parts: the plan, the checked pattern, the cell, /proc, the texts."""

import re
import string
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allready.errors import UsageError
from allready.model import Interface, LaunchFacts, NetFacts, World, WorldNode
from allready.model.fill import in_english
from allready.model.operations import OPERATIONS, SWEEPS
from allready.preflight.check.request import CheckRequest
from allready.preflight.check.staging import plan, shared_networks
from allready.preflight.collectives import spec
from allready.preflight.collectives.meetings import noise_of, turns, usual, without_reply_s
from allready.preflight.collectives.process import exception_line, main_stack
from allready.preflight.collectives.spec import ALL_STAGES, STAGES, RunSpec, with_needed
from allready.preflight.collectives.sweep import Sweep
from allready.preflight.collectives.wire import POSITION, Rail
from allready.proc.cell import CellReader, CellWriter, anonymous_cell
from allready.text.ui import table
from tests.cases import cases

WORLD = World(
    num_nodes=2,
    world_size=3,
    nodes=(WorldNode(node_rank=0, name="a", ranks=(0,)), WorldNode(node_rank=1, name="b", ranks=(1, 2))),
)
AT = LaunchFacts(num_nodes=2, node_rank=0, nproc_per_node=2, master_addr="a", master_port=0)


def test_ranks_are_numbered_node_by_node_also_when_nodes_differ() -> None:
    spec = plan(CheckRequest(launch=AT, backend="nccl", quick=True), WORLD, {})
    assert spec.ranks_of == {0: (0,), 1: (1, 2)}
    assert (spec.world_size, spec.stages, spec.names) == (3, STAGES["nccl"], {0: "a", 1: "b"})
    assert spec.sizes() == tuple(2**i for i in range(20, 29))
    assert spec.first_ranks(2).nproc == {0: 1, 1: 1}
    assert spec.first_ranks(1).nproc == {0: 1}
    assert spec.up_to("store").stages == ("import", "device", "allocate", "store")


@cases(
    ("given", "sizes"),
    [
        ({"min_bytes": 8, "max_bytes": 40}, (8, 16, 32)),
        ({"min_bytes": 2**30}, (2**30,)),
        ({"max_bytes": 100}, (100,)),
        ({"min_bytes": 10, "max_bytes": 10}, (8,)),
    ],
)
def test_sizes_double_and_are_whole_elements(given: dict[str, int], sizes: tuple[int, ...]) -> None:
    assert plan(CheckRequest(launch=AT, backend="gloo", **given), WORLD, {}).sizes() == sizes  # type: ignore[arg-type]


def test_stages_bring_those_they_stand_on() -> None:
    assert with_needed("nccl", ("nccl_small",)) == (
        "import",
        "device",
        "store",
        "gloo_barrier",
        "nccl_init",
        "nccl_small",
    )
    assert with_needed("gloo", ("sweep",)) == ("import", "device", "allocate", "store", "gloo_barrier", "sweep")
    assert with_needed("jax", ("jax_psum",)) == STAGES["jax"]
    assert "nccl_init" in with_needed("nccl", ("sweep",))


@cases(
    ("given", "words"),
    [
        ({"backend": "mpi"}, "valid are gloo, nccl, jax"),
        ({"stages": ("nccl_init",)}, "valid are import, device"),
        ({"nproc": {}}, "--nproc-per-node"),
        ({"nproc": {0: 0}}, "--nproc-per-node"),
        ({"min_bytes": 8, "max_bytes": 4}, "--min-bytes <= --max-bytes"),
        ({"iters": 0}, "--iters"),
    ],
)
def test_an_impossible_plan_is_refused_with_what_is_valid(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        RunSpec(**{"backend": "gloo", "nproc": {0: 1}, "master_addr": "a", "stages": ("import",), **given})


@pytest.mark.parametrize("world_size", [1, 3, 12, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.torch
def test_the_pattern_is_exact_and_shows_a_missing_or_doubled_rank(world_size: int) -> None:
    torch = pytest.importorskip("torch")
    from allready.preflight.collectives.operations import Pattern

    shares = []
    for rank in range(world_size):
        shares.append(torch.zeros(3_000_001))
        Pattern(torch, rank, world_size, "cpu").fill(shares[-1])
    total = torch.stack(shares).sum(dim=0) if world_size < 64 else sum(shares[1:], start=shares[0].clone())
    judge = Pattern(torch, 0, world_size, "cpu")
    assert judge.check(total) == (0, "")
    assert judge.check(total - shares[-1])[0] == total.numel()
    spoiled = total.clone()
    spoiled[2_500_000] += 1
    num_errors, words = judge.check(spoiled)
    assert num_errors == 1
    assert "first wrong element 2500000" in in_english(words)
    if world_size > 1:
        assert judge.check(total - shares[0] + shares[1])[0] == total.numel()


@pytest.mark.parametrize("world_size", [2, 4096, 65536])
@pytest.mark.torch
def test_the_pattern_stays_below_what_float32_counts_exactly(world_size: int) -> None:
    torch = pytest.importorskip("torch")
    from allready.preflight.collectives.operations import Pattern

    pattern = Pattern(torch, world_size - 1, world_size, "cpu")
    assert float(pattern._base.max()) * pattern.sum < 2**24
    assert float(pattern._base.max()) >= 2


@pytest.mark.jobs
def test_a_slow_very_first_operation_is_no_measurement_of_its_size() -> None:
    """It connects the ranks; on an H200 it took 0.3 s where the next ones took 45 us, and no size was measured."""
    for first_s, later_s, expected in ((0.25, 0.001, 4), (0.25, 0.25, 1)):
        times, sent = iter([first_s]), list[tuple[str, Any]]()
        operation: Any = SimpleNamespace(
            operation=OPERATIONS["all_reduce"],
            fill=lambda: None,
            check=lambda: (0, ""),
            settle=lambda: None,
            bind=lambda _size, times=times, later_s=later_s: lambda: time.sleep(next(times, later_s)),
        )
        orders = SimpleNamespace(
            world_size=2,
            dtype="float32",
            sizes=(4, 8),
            is_bench=True,
            is_graph=False,
            path="torch",
            iters=4,
            warmup=0,
            size_budget_s=9.0,
        )
        side: Any = SimpleNamespace(
            orders=orders, mark=lambda *_: None, send=lambda event, sent=sent, **fields: sent.append((event, fields))
        )
        Sweep(side, "sweep", operation, list).run(4.0)
        assert [event for event, _ in sent] == ["point", "point"]
        assert [fields["iterations"] for _, fields in sent] == [expected, expected]


@pytest.mark.parametrize(
    ("one_s", "num_marks", "entered"), [(1e-6, 0, [2, 3, 12]), (1e-2, 1, [2, 3, 8, 12]), (1.0, 9, list(range(2, 13)))]
)
@pytest.mark.torch
def test_nothing_comes_between_the_clock_and_the_operations_that_it_times(
    one_s: float, num_marks: int, entered: list[int]
) -> None:
    torch = pytest.importorskip("torch")
    from allready.preflight.collectives.operations import Buffers, Pattern, RankOperation

    log: list[str] = []

    class Event:
        """Reached when the operations before it were enqueued, as on an infinitely fast GPU."""

        def __init__(self, enable_timing: bool = False) -> None:
            self.name = "clock" if enable_timing else "mark"
            self.at = 0.0

        def record(self) -> None:
            log.append(self.name)
            self.at = log.count("op") * 2.0

        def query(self) -> bool:
            return True

        def elapsed_time(self, end: "Event") -> float:
            return end.at - self.at

    written: list[tuple[int, int, int]] = []

    fake: Any = SimpleNamespace(Event=Event)
    dist: Any = SimpleNamespace(all_reduce=lambda view, group: log.append("op"))
    orders = SimpleNamespace(rank=0, world_size=2, dtype="float32", sizes=(4,), is_bench=False, path="torch")
    side: Any = SimpleNamespace(orders=orders, mark=lambda *position: written.append(position))
    cpu = torch.device("cpu")
    buffers = Buffers(torch, cpu, "float32", 4, needs_two=False)
    one = RankOperation("all_reduce", dist, None, Pattern(torch, 0, 2, cpu), 0, 2, buffers)
    sweep = Sweep(side, "sweep", one, list, fake)
    sweep._start = one.bind(4)
    assert sweep._timed_on_gpu(4, 1, 1, 10, one_s) == pytest.approx(2e-3)
    *_, begin, end = (i for i, name in enumerate(log) if name == "clock")
    assert log[:begin] == ["op", "clock", "clock"]  # CUDA makes an event at its first use: before
    assert log[begin + 1] == "op"
    assert log[begin:end].count("op") == 10
    assert log.count("mark") == num_marks
    assert list(dict.fromkeys(where for _, where, _ in written)) == entered
    assert (written[0], written[-1]) == ((4, 2, 1), (4, 12, 12))
    assert all(before[2] <= after[2] <= after[1] for before, after in pairwise(written))


def test_a_cell_shows_the_last_thing_written() -> None:
    fd = anonymous_cell("test")
    reader = CellReader(fd)
    assert reader.read() is None
    writer = CellWriter(fd)
    assert reader.read() == b""
    for position in ((6, 2**40, 3, -1), (0, 0, -1, -1)):
        writer.write(POSITION.pack(*position))
        assert POSITION.unpack(reader.read() or b"") == position
    reader.close()
    writer.close()


DUMP = """Thread 0x00007f0000000002 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 10 in wait

Current thread 0x00007f0000000001 (most recent call first):
  File "/a b/x".py", line 7 in inner
  File "/y.py", line 3 in <module>
"""


def test_the_main_threads_stack_is_read_innermost_first() -> None:
    assert main_stack(DUMP.encode()) == ('/a b/x".py:7 inner', "/y.py:3 <module>")
    assert main_stack(b"") == ()


@cases(
    ("printed", "line"),
    [
        ("Traceback\n  File x\nValueError: no\n\ncleaning up\n", "ValueError: no"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory\n", "torch.cuda.OutOfMemoryError: CUDA out of memory"),
        ("terminate called\n  what():  [Rank 1] NCCL\n", "what():  [Rank 1] NCCL"),
        ("Killed\n", "Killed"),
        ("", None),
    ],
)
def test_the_exception_is_found_in_what_a_process_printed(printed: str, line: str | None) -> None:
    assert exception_line(printed) == line


def test_every_text_that_is_used_exists_in_both_languages_with_the_same_placeholders() -> None:
    english, chinese = table("en", "collectives"), table("zh", "collectives")
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert _placeholders(text) == _placeholders(chinese[key]), key
    package = Path(spec.__file__).parent
    sources = "".join(p.read_text() for p in package.glob("*.py") if p.name != "wire.py")  # there they are messages
    used = set(re.findall(r'"collectives\.([a-z_]+)"', sources))
    used |= {f"waiting_{s}" for stages in ALL_STAGES.values() for s in stages if s not in SWEEPS or s == "sweep"}
    used |= {"failed", "hung", "wrong", "failed_nobody", "hung_nobody", "wrong_nobody"}
    assert used == english.keys()


def _placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_a_latency_that_other_work_drove_up_makes_no_rate_without_bound() -> None:
    assert without_reply_s(0.010, 0.002) == pytest.approx(0.008)
    assert without_reply_s(0.010, 0.025) == pytest.approx(0.005)


def test_networks_of_all_nodes_are_rails_and_docker0_is_none() -> None:
    def net(node: int) -> NetFacts:
        def one(name: str, address: str) -> Interface:
            return Interface(name=name, is_up=True, is_loopback=name == "lo", mtu_bytes=1500, addresses=(address,))

        return NetFacts(
            interfaces=(
                one("lo", "127.0.0.1/8"),
                one("eth0", f"10.0.0.{node + 1}/24"),
                one("eth1" if node else "ens1", f"10.1.0.{node + 1}/24"),
                one("docker0", "172.17.0.1/16"),
                *((one("eth2", "10.2.0.1/24"),) if node else ()),
            )
        )

    assert shared_networks({n: net(n) for n in range(3)}) == {
        "eth0": {0: "10.0.0.1", 1: "10.0.0.2", 2: "10.0.0.3"},
        "10.1.0.0/24": {0: "10.1.0.1", 1: "10.1.0.2", 2: "10.1.0.3"},
    }


def test_rails_without_a_common_rank_are_measured_at_the_same_time() -> None:
    columns = [Rail(members=(0, 2), name="local rank 0"), Rail(members=(1, 3), name="local rank 1")]
    assert turns(columns) == [columns]
    networks = [Rail(members=(0, 1), name="eth0"), Rail(members=(0, 1), name="eth1")]
    assert turns(networks) == [[networks[0]], [networks[1]]]


def test_a_rate_is_that_of_the_lower_quartile_and_its_noise_that_below_the_median() -> None:
    times = [0.010] * 10 + [0.030] * 5
    assert usual(times) == pytest.approx(0.010)
    assert noise_of(times) == 0.0
    assert noise_of([0.010, 0.020] * 10) > 0.3


@pytest.mark.torch
def test_one_rank_alone_sends_to_itself_without_gloo() -> None:
    torch = pytest.importorskip("torch")
    from allready.preflight.collectives.operations import Buffers, Pattern, RankOperation

    cpu = torch.device("cpu")
    buffers = Buffers(torch, cpu, "float32", 4096, needs_two=True)
    dist = None  # nothing of it is used
    one = RankOperation("sendrecv", dist, None, Pattern(torch, 0, 1, cpu), 0, 1, buffers)
    start = one.bind(1024)
    one.fill()
    assert one.check()[0] == 256
    start()
    assert one.check() == (0, "")
