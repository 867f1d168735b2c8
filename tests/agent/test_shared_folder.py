"""Nodes that know only a folder find node 0 in it; who is missing or wrong is found out at the roll call then."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from allready.agent import shared_folder
from allready.agent.shared_folder import FolderEntry, FoundNode0, Master, Node, SharedFolder, folder_name
from allready.errors import DeadlineExceeded, ExchangeError, UsageError
from allready.report.json_report import write_atomic
from tests.agent.jobs import PRINT_WHO, Job, lines

pytestmark = pytest.mark.jobs


def node(host: str, num_nodes: int, **more: Any) -> Node:
    return Node(host=host, num_nodes=num_nodes, **({"address": f"10.0.0.{ord(host[0])}"} | more))


class Nodes:
    """Several nodes in one event loop, over a real folder; each stays until all have found node 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: list[str] = []
        self.missing: dict[str, list[tuple[int, list[str]]]] = {}
        self.num_found = 0
        self.met = asyncio.Event()

    async def join(
        self, own: Node, *, job_id: str = "none", delay_s: float = 0.0, timeout_s: float = 20.0
    ) -> FoundNode0:
        """One node's whole way; as an agent does, it leaves the folder when the job begins."""

        def choose() -> int:
            self.ports.append(own.host)
            return 4321

        def missing(number: int, here: Any) -> None:
            self.missing.setdefault(own.host, []).append((number, list(here)))

        await asyncio.sleep(delay_s)
        async with SharedFolder(str(self.folder), job_id, own, on_missing=missing) as folder:
            found = await folder.find_node_0(timeout_s=timeout_s, choose_port=choose)
            self.num_found += 1
            await asyncio.wait_for(self.met.wait(), 20.0)
            return found

    async def all(self, *joins: Awaitable[FoundNode0]) -> list[FoundNode0]:
        """All of them, until each has found node 0."""
        tasks = [asyncio.ensure_future(one) for one in joins]
        await until(lambda: self.num_found == len(tasks) or any(task.done() for task in tasks))
        self.met.set()
        return list(await asyncio.gather(*tasks))

    def left(self, job: str = "none") -> list[str]:
        folder = self.folder / folder_name(job)
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
async def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path / "shared" / "deep")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with shorter waits."""
    for name, value in (
        ("REFRESH_S", 0.2),
        ("STALE_S", 1.5),
        ("SETTLE_S", 0.4),
        ("NAME_MISSING_S", 0.5),
        ("POLL_S", 0.1),
    ):
        monkeypatch.setattr(shared_folder, name, value)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(25.0):
        while not condition():  # noqa: ASYNC110 - a file tells no event
            await asyncio.sleep(0.05)


async def test_nodes_find_the_one_with_rank_0_whoever_comes_first_and_leave_nothing(nodes: Nodes) -> None:
    found = await nodes.all(
        nodes.join(node("c", 3, node_rank=0, address="fd00::9"), delay_s=1.0),
        nodes.join(node("a", 3, node_rank=2)),
        nodes.join(node("b", 3, node_rank=1), delay_s=0.5),
    )
    assert [f.node_rank for f in found] == [0, 2, 1]
    assert {(f.address, f.port) for f in found} == {("fd00::9", 4321)}
    assert nodes.ports == ["c"]
    assert nodes.left() == []
    assert nodes.folder.exists()


async def test_node_0_with_a_rank_waits_for_nobody_here(nodes: Nodes, hasty: None) -> None:
    [found] = await nodes.all(nodes.join(node("a", 8, node_rank=0)))
    assert found.node_rank == 0


async def test_without_node_ranks_all_agree_on_the_order_of_their_names(nodes: Nodes, hasty: None) -> None:
    found = await nodes.all(*(nodes.join(node(name, 3), delay_s=0.2 * i) for i, name in enumerate("bac")))
    assert [f.node_rank for f in found] == [1, 0, 2]
    assert nodes.ports == ["a"]


async def test_separate_processes_find_each_other(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom allready.agent.shared_folder import Node, SharedFolder\n"
        "async def main():\n"
        "    own = Node(host=sys.argv[2], num_nodes=2, address='127.0.0.1')\n"
        "    async with SharedFolder(sys.argv[1], 'none', own) as folder:\n"
        "        found = await folder.find_node_0(timeout_s=40, choose_port=lambda: 77)\n"
        "        await asyncio.sleep(4)\n"
        "        print(found.node_rank, found.port)\n"
        "asyncio.run(main())\n"
    )
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(tmp_path), name, stdout=subprocess.PIPE, start_new_session=True
        )
        for name in ("x", "y")
    ]
    try:
        outs = await asyncio.wait_for(asyncio.gather(*(child.communicate() for child in children)), 60)
    finally:
        for child in children:
            if child.returncode is None:
                child.kill()
                await child.wait()
    assert [out.split() for out, _ in outs] == [[b"0", b"77"], [b"1", b"77"]]
    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_who_is_missing_is_said_again_and_again_and_at_the_end(
    nodes: Nodes, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_folder, "STALE_S", 30.0)
    other = asyncio.ensure_future(nodes.join(node("c", 3), timeout_s=60.0))
    with pytest.raises(DeadlineExceeded) as caught:
        await nodes.join(node("a", 3), timeout_s=5.0)
    assert not other.done()
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert "node 0 did not come to" in str(caught.value)
    assert "2 of 3 nodes are here (a (pid 0), c (pid 0))" in str(caught.value)
    assert len(nodes.missing["a"]) >= 2
    assert nodes.missing["a"][-1] == (1, ["a (pid 0)", "c (pid 0)"])
    assert nodes.left() == []


async def test_files_of_an_earlier_run_count_for_nobody(nodes: Nodes, hasty: None) -> None:
    folder = nodes.folder / folder_name("none")
    folder.mkdir(parents=True)
    old = node("0ld", 2, node_rank=0)
    entry = FolderEntry(node=old, counter=40, master=Master(address="6.6.6.6", port=6))
    (folder / f"node-{old.instance}.json").write_bytes(msgspec.json.encode(entry))
    found = await nodes.all(nodes.join(node("a", 2, node_rank=0)), nodes.join(node("b", 2, node_rank=1)))
    assert {f.address for f in found} == {"10.0.0.97"}
    assert len(nodes.left()) == 1  # not ours, and not old enough to be removed


def _killed(*_: object) -> NoReturn:
    raise KeyboardInterrupt


async def test_what_dead_runs_left_is_removed_after_an_hour(nodes: Nodes, hasty: None) -> None:
    folder = nodes.folder / folder_name("none")
    folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", _killed)
        patch.setattr(os, "unlink", _killed)  # nothing is cleaned up
        with pytest.raises(KeyboardInterrupt):
            write_atomic(folder / "node-00000000000000aa.json", b"{")
    [draft] = [path.name for path in folder.iterdir()]
    for name, age_s in (
        ("node-00000000000000aa.json", 7200), ("node-00000000000000bb.json", 100), ("notes.txt", 9e6), (draft, 7200)
    ):  # fmt: skip
        (folder / name).write_text("{}")
        os.utime(folder / name, (time.time() - age_s,) * 2)
    await nodes.all(nodes.join(node("a", 1)))
    assert nodes.left() == ["node-00000000000000bb.json", "notes.txt"]


async def test_a_node_that_was_restarted_joins_and_gets_its_rank_from_node_0(nodes: Nodes, hasty: None) -> None:
    """It dies in the worst moment: counted, and before it has met node 0."""
    crashed = SharedFolder(str(nodes.folder), "none", node("b", 2))
    await crashed.__aenter__()
    first = asyncio.ensure_future(nodes.join(node("a", 2)))
    await until(lambda: nodes.ports == ["a"])
    assert crashed._heartbeat is not None
    crashed._heartbeat.cancel()  # its file is gone, or stays: a killed one's stays, which changes nothing
    second = asyncio.ensure_future(nodes.join(node("b", 2)))
    await asyncio.sleep(1.0)
    nodes.met.set()
    assert (await first).node_rank == 0
    assert (await second).node_rank is None
    assert (await second).address == (await first).address


async def test_two_jobs_in_one_folder_do_not_see_each_other(nodes: Nodes, hasty: None) -> None:
    found = await nodes.all(
        *(
            nodes.join(node(name, 2, address=job), job_id=job)
            for job in ("x", "y/../z")
            for name in (f"a{job}", f"b{job}")
        )
    )
    assert [f.address for f in found] == ["x", "x", "y/../z", "y/../z"]
    assert sorted(nodes.ports) == ["ax", "ay/../z"]


async def test_nodes_that_expect_other_numbers_meet_as_well_so_that_the_roll_call_names_them(
    nodes: Nodes, hasty: None
) -> None:
    found = await nodes.all(nodes.join(node("a", 3)), nodes.join(node("b", 2)))
    assert [f.node_rank for f in found] == [0, 1]


async def test_of_two_nodes_with_rank_0_one_is_asked_by_the_other_so_that_the_roll_call_names_them(
    nodes: Nodes, hasty: None
) -> None:
    found = await nodes.all(nodes.join(node("a", 2, node_rank=0)), nodes.join(node("b", 2, node_rank=0), delay_s=1.5))
    assert [f.node_rank for f in found] == [0, 0]
    assert {f.address for f in found} == {"10.0.0.97"}


async def test_garbage_in_the_folder_hurts_nobody(nodes: Nodes, hasty: None) -> None:
    folder = nodes.folder / folder_name("none")
    folder.mkdir(parents=True)
    for i, text in enumerate(
        (b"", b"{", b"[1]", b'{"counter": 1}', b'{"counter": "x", "node": {}}', b"\xff", b"{}" * 200_000)
    ):
        (folder / f"node-{i:016x}.json").write_bytes(text)
    (folder / f"node-{99:016x}.json").mkdir()
    found = await nodes.all(nodes.join(node("a", 2)), nodes.join(node("b", 2)))
    assert [f.node_rank for f in found] == [0, 1]


async def test_a_folder_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--sync-dir"):
        await Nodes(tmp_path / "file").join(node("a", 1))


async def test_a_file_that_another_program_removes_is_an_error_that_says_so(nodes: Nodes, hasty: None) -> None:
    own = node("a", 2)
    task = asyncio.ensure_future(nodes.join(own))
    path = nodes.folder / folder_name("none") / f"node-{own.instance}.json"
    await until(path.exists)
    path.unlink()
    with pytest.raises(ExchangeError, match="was removed"):
        await task


async def test_a_file_system_that_hangs_ends_in_an_error(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "IO_S", 0.3)
    monkeypatch.setattr(SharedFolder, "_read", lambda _self: time.sleep(1.0))
    with pytest.raises(ExchangeError, match="hangs"):
        await nodes.join(node("a", 2))


async def test_cancelled_it_leaves_nothing(nodes: Nodes, hasty: None) -> None:
    task = asyncio.ensure_future(nodes.join(node("a", 2)))
    await until(lambda: bool(nodes.left()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert nodes.left() == []


def test_a_job_runs_whose_nodes_know_only_the_folder(job: Job) -> None:
    script, folder = job.script(PRINT_WHO), str(job.folder / "meet")
    common = ("--nnodes", "2", "--sync-dir", folder, "--nproc-per-node", "1", "--framework", "jax", script)
    started = [job.start(*common) for _ in (0, 1)]
    assert [one.wait() for one in started] == [0, 0], started[0].err + started[1].err
    assert lines(started[0].out + started[1].out) == [
        "[node0 rank0] rank 0 of 2 local 0",
        "[node1 rank1] rank 1 of 2 local 0",
    ]
    assert os.listdir(folder) == []  # noqa: PTH208


def test_nodes_that_expect_other_numbers_are_named_by_the_roll_call(job: Job) -> None:
    script, folder = job.script(PRINT_WHO), str(job.folder / "meet")
    started = [
        job.start("--nnodes", str(number), "--sync-dir", folder, "--nproc-per-node", "1", "--wait", "20", script)
        for number in (2, 3)
    ]
    assert [one.wait() for one in started] == [1, 1]
    for one in started:
        assert one.report()["verdict"]["fault_class"] == "ENV-MISMATCH", one.err


async def test_what_others_lay_into_the_folder_is_passed_over(tmp_path: Path) -> None:
    """A pipe in place of a node's file kept the first node 30 s, and the file system was blamed."""
    folder = tmp_path / folder_name("none")
    folder.mkdir()
    os.mkfifo(folder / "node-00000000000000aa.json")
    (folder / "node-00000000000000bb.json").symlink_to("/dev/zero")
    (folder / "node-00000000000000cc.json").mkdir()
    nodes = Nodes(tmp_path)
    found = await nodes.all(nodes.join(node("a", 2)), nodes.join(node("b", 2)))
    assert [one.address for one in found] == [found[0].address] * 2
