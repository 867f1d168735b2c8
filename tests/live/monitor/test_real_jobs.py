"""Real Gloo jobs of four processes on two made-up nodes, with beacons and observers, and one fault at step 150.

Every verdict must name the right class and exactly the right ranks.  Times are bounds that hold on a busy machine.
"""

import signal
import time
from pathlib import Path

import pytest

from allready.model import Report, Status
from tests.live.monitor.jobs import HEAD, job

pytestmark = [pytest.mark.torch, pytest.mark.newest, pytest.mark.jobs]

LOOP = """
x = torch.ones(1000)
for step in range(100000):
    work()
    dist.all_reduce(x)
    x.fill_(1)
    if step == 150 and rank == 2:
        {fault}
    dist.broadcast(x, 0)
"""
MUTEX = (
    "mutex, libc = ctypes.create_string_buffer(64), ctypes.PyDLL(None); "
    "libc.pthread_mutex_lock(mutex); libc.pthread_mutex_lock(mutex)"
)

FAULTS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", "DEAD", (2,)),
    "segfault": ("ctypes.string_at(0)", "DEAD", (2,)),
    "exit code": ("os._exit(3)", "DEAD", (2,)),
    "terminated": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", "DEAD", (2,)),
    "early exit": ("sys.exit(0)", "DESYNC-FLOW", (2,)),
    "skip": ("continue", "DESYNC-FLOW", (2,)),
    "extra": ("dist.all_reduce(x)", "DESYNC-FLOW", (2,)),
    "order": ("dist.broadcast(x, 0); dist.all_reduce(x); continue", "DESYNC-FLOW", (2,)),
    "dtype": ("dist.broadcast(torch.ones(1000, dtype=torch.int32), 0); continue", "DESYNC-ARGS", (2,)),
    "root": ("dist.broadcast(x, 2); continue", "DESYNC-ARGS", (2,)),
    "recv": ("dist.recv(x, src=1)", "DESYNC-ARGS", (2,)),
    "lock": ("lock = threading.Lock(); lock.acquire(); lock.acquire()", "CPU-STUCK", (2,)),
    "gil": (MUTEX, "CPU-STUCK", (2,)),
}
"""Name -> what rank 2 does, class, culprits."""


def accused(report: Report) -> tuple[str, str, tuple[int, ...]]:
    assert report.verdict is not None
    return report.status.value, report.verdict.fault_class.value, report.verdict.culprits.ranks


@pytest.mark.slow
def test_a_stopped_rank_is_named_and_the_job_is_healthy_again_when_it_goes_on(tmp_path: Path) -> None:
    with job(tmp_path, LOOP.format(fault="pass")) as run:
        run.until_operations(60)
        run.kill(3, signal.SIGSTOP)
        report = run.until_fault()
        assert accused(report) == ("fault", "CPU-STUCK", (3,))
        assert report.verdict is not None
        assert report.verdict.sentence.startswith("rank 3 (gpu1, pid ")
        run.kill(3, signal.SIGCONT)
        again = run.drive(lambda r: r is not None and r.status is Status.HEALTHY, most_s=20)
        assert again is not None
        assert (again.status, again.verdict) == (Status.HEALTHY, None)
        assert any("rank 3" in note for note in again.notes)


@pytest.mark.slow
def test_the_first_exception_is_named_with_its_line(tmp_path: Path) -> None:
    with job(tmp_path, LOOP.format(fault="raise ValueError('bad sample in shard 17')")) as run:
        report = run.until_fault()
        assert accused(report) == ("fault", "DEAD", (2,))
        assert report.verdict is not None
        assert "ValueError: bad sample in shard 17" in report.verdict.sentence
        assert "train.py:" in report.verdict.sentence


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FAULTS))
def test_class_and_culprit_are_right(name: str, tmp_path: Path) -> None:
    fault, fault_class, ranks = FAULTS[name]
    with job(tmp_path, LOOP.format(fault=fault)) as run:
        report = run.until_fault()
        assert accused(report) == ("fault", fault_class, ranks), run.output(2)[-500:]
        run.drive(lambda _: False, most_s=4)
        assert run.judge.last is not None
        told = [f.message for f in run.judge.last.findings] + [run.output(2)[-800:]]
        assert accused(run.judge.last) == ("fault", fault_class, ranks), told
        assert run.slowest_judge_s < 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "fault_class"),
    [("sum(range(20_000))", "CPU-BUSY"), ("time.sleep(0.5)", "CPU-STUCK"),
     ("open('big', 'wb').write(os.urandom(1 << 20))", "CPU-BUSY")],
)  # fmt: skip
def test_long_work_of_one_rank_is_waited_for_and_is_no_fault(work: str, fault_class: str, tmp_path: Path) -> None:
    one = (
        "time.sleep(9)"
        if fault_class == "CPU-STUCK"
        else f"\n        until = time.time() + 9\n        while time.time() < until: {work}"
    )
    with job(tmp_path, f"os.chdir({str(tmp_path)!r})\n" + LOOP.format(fault=one)) as run:

        def told(report: Report | None) -> bool:
            found = report.verdict if report is not None and report.status is Status.WAITING else None
            return found is not None and found.fault_class.value == fault_class

        waiting = run.drive(told, most_s=40)
        assert waiting is not None
        assert accused(waiting) == ("waiting", fault_class, (2,))
        after = run.drive(lambda r: r is not None and r.status is Status.HEALTHY, most_s=30)
        assert after is not None
        assert after.status is Status.HEALTHY
        assert all(r.status is not Status.FAULT for r in run.reports)


@pytest.mark.slow
def test_a_slow_first_step_and_an_evaluation_are_no_faults(tmp_path: Path) -> None:
    script = """
x = torch.ones(1000)
for step in range(400):
    work()
    if step in (0, 200):
        until = time.time() + 5 + 0.2 * rank
        while time.time() < until:
            sum(range(10_000)); time.sleep(0.01)
    dist.all_reduce(x); x.fill_(1)
"""
    with job(tmp_path, script) as run:
        run.drive(lambda _: all(p.poll() is not None for p in run.processes.values()), most_s=70)
        assert all(p.poll() == 0 for p in run.processes.values())
        report = run.judge.finish(time.monotonic(), time.time())
        assert (report.status, report.verdict) == (Status.HEALTHY, None)
        assert all(r.status is not Status.FAULT for r in run.reports)


PAIRS = """
x = torch.ones(1000)
for step in range(100000):
    work()
    dist.all_reduce(x)
    x.fill_(1)
    {body}
"""


SPLITS = (
    "parts = [100, 300, 300, 300] if (rank, step) == (2, 150) else [250] * 4; "
    "dist.all_to_all_single(torch.ones(1000), torch.ones(1000), parts, [250] * 4)"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "fault_class", "ranks"),
    [
        ("dist.send(x, 1, tag=5) if rank == 0 else dist.recv(x, 0, tag=5 + (step == 150)) if rank == 1 else None",
         "DESYNC-ARGS", (0, 1)),
        (SPLITS, "DESYNC-ARGS", (2,)),
        ("(dist.destroy_process_group(), time.sleep(60)) if (rank, step) == (2, 150) else None", "DESYNC-FLOW", (2,)),
    ],
    ids=["tag", "splits", "destroyed"],
)  # fmt: skip
def test_exchanges_and_groups_that_do_not_match(
    body: str, fault_class: str, ranks: tuple[int, ...], tmp_path: Path
) -> None:
    with job(tmp_path, PAIRS.format(body=body)) as run:
        assert accused(run.until_fault()) == ("fault", fault_class, ranks)


MESH = """
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
x = torch.ones(1000)
for step in range(100000):
    work()
    for call in range(2):
        dist.all_reduce(x, group=mesh.get_group("tp"))
    if (rank, step) != {left_out}:
        dist.all_reduce(x, group=mesh.get_group("dp"))
    x.fill_(1)
"""


@pytest.mark.slow
def test_a_call_that_is_left_out_without_a_hang_is_named_and_no_rank_is_called_slow(tmp_path: Path) -> None:
    """Of a mesh: the next iteration's call has the same kind and size, and takes its place."""
    with job(tmp_path, MESH.format(left_out=(3, 20))) as run:
        assert accused(run.until_fault()) == ("fault", "DESYNC-FLOW", (3,))
        assert not any(f.code.startswith("SLW0") and f.culprits.ranks for r in run.reports for f in r.findings)


STAGES = """
x = torch.ones(100)
for step in range(100000):
    work()
    for part in range(4):
        if rank:
            dist.recv(x, rank - 1)
        if rank < 3 and (rank, step, part) != (2, 2, 1):
            dist.send(x, rank + 1)
    dist.all_reduce(x)
    x.fill_(1)
"""


@pytest.mark.slow
def test_a_send_that_is_left_out_in_the_first_steps_names_its_stage(tmp_path: Path) -> None:
    with job(tmp_path, STAGES) as run:
        assert accused(run.until_fault()) == ("fault", "DESYNC-FLOW", (2,))


@pytest.mark.slow
def test_of_two_groups_in_opposite_order_who_leaves_the_order_of_the_loop_is_named(tmp_path: Path) -> None:
    script = """
a, b, x = dist.new_group([0, 1]), dist.new_group([0, 1]), torch.ones(10)
for step in range(100000):
    work(); dist.all_reduce(x)
    if rank < 2:
        for group in ((b, a) if step == 100 and rank == 1 else (a, b)):
            dist.all_reduce(x, group=group)
    x.fill_(1)
"""
    with job(tmp_path, script) as run:
        assert accused(run.until_fault()) == ("fault", "DESYNC-FLOW", (1,))


@pytest.mark.slow
def test_a_group_that_only_one_rank_builds_is_another_flow(tmp_path: Path) -> None:
    script = """
x = torch.ones(10)
for step in range(100000):
    work(); dist.all_reduce(x); x.fill_(1)
    if step == 100 and rank == 1:
        dist.new_group([0, 1])
"""
    with job(tmp_path, script) as run:
        assert accused(run.until_fault()) == ("fault", "DESYNC-FLOW", (1,))


@pytest.mark.slow
def test_a_stopped_loader_is_named_with_its_rank(tmp_path: Path) -> None:
    script = """
import torch.utils.data as data
class Shard(data.Dataset):
    def __len__(self): return 100000
    def __getitem__(self, i):
        if rank == 2 and i == 400: os.kill(os.getpid(), signal.SIGSTOP)
        return torch.ones(10)
x = torch.ones(10)
for batch in data.DataLoader(Shard(), batch_size=4, num_workers=1):
    work(); dist.all_reduce(x); x.fill_(1)
"""
    with job(tmp_path, script) as run:
        report = run.until_fault()
        assert accused(report) == ("fault", "CPU-STUCK", (2,))
        assert report.verdict is not None
        assert "loader" in report.verdict.sentence


@pytest.mark.slow
def test_a_rank_that_never_joins_is_named_while_the_others_wait(tmp_path: Path) -> None:
    head = HEAD.replace("dist.init_process_group", "time.sleep(90) if rank == 1 else None\ndist.init_process_group")
    with job(tmp_path, "", head=head, hang_after_s=4.0) as run:
        report = run.until_fault()
        assert accused(report) == ("fault", "START-ABSENT", (1,))


JAX = """
import os, signal, sys, time
import jax, numpy as np
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.distributed.initialize(f'{os.environ["MASTER_ADDR"]}:{os.environ["MASTER_PORT"]}', size, rank)
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("x",))
total = jax.jit(jax.shard_map(lambda a: jax.lax.psum(a, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
def step():
    whole = jax.make_array_from_process_local_data(NamedSharding(mesh, P("x")), np.ones((1, 1000), np.float32))
    return float(np.asarray(total(whole).addressable_data(0))[0, 0])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "fault_class"),
    [("os.kill(os.getpid(), signal.SIGSTOP)", "CPU-STUCK"), ("os.kill(os.getpid(), signal.SIGKILL)", "DEAD"),
     ("raise ValueError('bad')", "DEAD"), ("sys.exit(0)", "DESYNC-FLOW")],
)  # fmt: skip
def test_jax_without_any_recorder(fault: str, fault_class: str, tmp_path: Path) -> None:
    script = (
        f"for i in range(100000):\n    time.sleep(0.05)\n    if i == 60 and rank == 1:\n        {fault}\n    step()\n"
    )
    with job(tmp_path, script, head=JAX, nodes=3, per_node=1) as run:
        assert accused(run.until_fault()) == ("fault", fault_class, (1,))
