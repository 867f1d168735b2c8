import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from allready.errors import DeadlineExceeded, ExchangeError, UsageError
from allready.launch import file_rendezvous, syncdir
from allready.launch.file_rendezvous import Announcement, Found, folder_name
from allready.launch.syncdir import find_each_other


def node(name: str, number: int, **more: Any) -> Announcement:
    return Announcement(
        **{"host": name, "nproc": 2, "num_nodes": number, "addresses": (f"10.0.0.{len(name)}",), **more}
    )


class Nodes:
    """Several nodes in one event loop, over a real folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: list[str] = []
        self.missing: dict[str, list[tuple[int, list[str]]]] = {}

    async def join(self, own: Announcement, delay_s: float = 0.0, timeout_s: float = 20.0) -> Found:
        def choose() -> int:
            self.ports.append(own.host)
            return 4321

        await asyncio.sleep(delay_s)
        return await find_each_other(
            str(self.folder),
            own,
            timeout_s=timeout_s,
            choose_port=choose,
            on_missing=lambda missing, here: self.missing.setdefault(own.host, []).append((missing, list(here))),
        )

    async def all(self, *owns: Announcement, **more: float) -> list[Found | BaseException]:
        return await asyncio.gather(*(self.join(own, **more) for own in owns), return_exceptions=True)

    def left(self, job: str = "none") -> list[str]:
        folder = self.folder / folder_name(job)
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path / "shared" / "deep")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with shorter waits: these are constants of the folder."""
    for module, name, value in (
        (file_rendezvous, "REFRESH_S", 0.2),
        (file_rendezvous, "STALE_S", 1.5),
        (file_rendezvous, "COMPLAIN_S", 2.0),
        (file_rendezvous, "SETTLE_S", 0.4),
        (file_rendezvous, "NAME_MISSING_S", 0.5),
        (syncdir, "POLL_S", 0.1),
    ):
        monkeypatch.setattr(module, name, value)


async def test_nodes_find_node_0_whoever_comes_first_and_leave_nothing(nodes: Nodes) -> None:
    found = await asyncio.gather(
        nodes.join(node("c", 3, node_rank=0, addresses=("10.9.9.9", "fd00::9")), delay_s=1.5),
        nodes.join(node("a", 3, node_rank=2)),
        nodes.join(node("b", 3, node_rank=1), delay_s=0.7),
    )
    assert [f.node_rank for f in found] == [0, 2, 1]
    assert {f.master_addr for f in found} == {"10.9.9.9"}
    assert {f.addresses for f in found} == {("10.9.9.9", "fd00::9")}
    assert {f.master_port for f in found} == {4321}
    assert {f.names for f in found} == {("c", "b", "a")}
    assert nodes.ports == ["c"]
    assert nodes.left() == []
    assert nodes.folder.exists()


async def test_without_node_ranks_all_agree_on_the_same_order(nodes: Nodes, hasty: None) -> None:
    found = await nodes.all(node("b", 3), node("a", 3), node("c", 3))
    assert [f.node_rank for f in found if isinstance(f, Found)] == [1, 0, 2]
    assert nodes.ports == ["a"]


async def test_separate_processes_find_each_other(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom allready.launch.syncdir import find_each_other\n"
        "from allready.launch.file_rendezvous import Announcement\n"
        "own = Announcement(host=sys.argv[2], nproc=1, num_nodes=2, addresses=('127.0.0.1',))\n"
        "found = asyncio.run(find_each_other(sys.argv[1], own, timeout_s=40, choose_port=lambda: 77))\n"
        "print(found.node_rank, found.master_port)\n"
    )
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(tmp_path), name, stdout=subprocess.PIPE, start_new_session=True
        )
        for name in ("x", "y")
    ]
    try:
        outs = await asyncio.wait_for(asyncio.gather(*(child.communicate() for child in children)), 50)
    finally:
        for child in children:
            if child.returncode is None:
                child.kill()
                await child.wait()
    assert [out.split() for out, _ in outs] == [[b"0", b"77"], [b"1", b"77"]]
    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_who_is_missing_is_said_again_and_again_and_at_the_end(nodes: Nodes, hasty: None) -> None:
    results = await asyncio.gather(
        nodes.join(node("a", 3, node_rank=0), timeout_s=2.5),
        nodes.join(node("c", 3, node_rank=2), timeout_s=4.0),
        return_exceptions=True,
    )
    assert all(isinstance(result, DeadlineExceeded) for result in results)
    assert "node 1 did not come to" in str(results[0])
    assert "2 of 3 are here (a (pid 0), c (pid 0))" in str(results[0])
    assert len(nodes.missing["a"]) >= 3
    assert nodes.missing["a"][-1] == (1, ["a (pid 0)", "c (pid 0)"])
    assert nodes.left() == []


async def test_files_of_an_earlier_run_count_for_nobody(nodes: Nodes, hasty: None) -> None:
    folder = nodes.folder / folder_name("none")
    folder.mkdir(parents=True)
    old = node("old", 2, node_rank=1)
    (folder / f"node-{old.instance}.json").write_text(
        json.dumps({"counter": 40, "node": {f: getattr(old, f) for f in old.__slots__}})
    )
    stale = {
        "master_addr": "6.6.6.6",
        "addresses": [],
        "master_port": 6,
        "node_rank": 0,
        "names": ["old"],
        "instances": [old.instance],
    }
    (folder / f"master-{old.instance}.json").write_text(json.dumps(stale))
    found = await nodes.all(node("a", 2, node_rank=0), node("b", 2, node_rank=1))
    assert {f.master_addr for f in found if isinstance(f, Found)} == {"10.0.0.1"}
    assert len(nodes.left()) == 2  # not ours, and not old enough to be taken away


async def test_what_dead_runs_left_is_taken_away_after_an_hour(nodes: Nodes, hasty: None) -> None:
    folder = nodes.folder / folder_name("none")
    folder.mkdir(parents=True)
    for name, age_s in (
        ("node-00000000000000aa.json", 7200),
        ("master-00000000000000bb.json", 100),
        ("notes.txt", 9e6),
    ):
        (folder / name).write_text("{}")
        os.utime(folder / name, (time.time() - age_s,) * 2)
    await nodes.all(node("a", 1))
    assert nodes.left() == ["master-00000000000000bb.json", "notes.txt"]


async def test_a_node_that_is_killed_and_started_again_takes_part_once(nodes: Nodes, hasty: None) -> None:
    """It dies in the worst moment: seen by all, counted, and before it agrees."""
    crashed = file_rendezvous.Meeting(
        nodes.folder / folder_name("none"), node("b", 3, node_rank=1), lambda _m, _h: None
    )
    crashed.open()
    others = [node("a", 3, node_rank=0), node("c", 3, node_rank=2)]
    waiting = asyncio.ensure_future(nodes.all(*others))
    proposal = nodes.folder / folder_name("none") / f"master-{others[0].instance}.json"
    deadline = time.monotonic() + 10
    while not proposal.exists():
        assert time.monotonic() < deadline
        crashed.refresh()
        await asyncio.sleep(0.1)
    second = await nodes.join(node("b", 3, node_rank=1))
    found = [f for f in await waiting if isinstance(f, Found)]
    assert [f.node_rank for f in (*found, second)] == [0, 2, 1]
    assert found[0].master_addr == second.master_addr
    assert len(nodes.left()) == 1  # of the one that was killed


async def test_two_jobs_in_one_folder_do_not_see_each_other(nodes: Nodes, hasty: None) -> None:
    found = await nodes.all(
        *(node(f"{name}{job}", 2, job_id=job, addresses=(f"{job}",)) for job in ("x", "y/../z") for name in "ab")
    )
    assert [f.master_addr for f in found if isinstance(f, Found)] == ["x", "x", "y/../z", "y/../z"]
    assert sorted(nodes.ports) == ["ax", "ay/../z"]


@pytest.mark.parametrize(
    ("owns", "words"),
    [
        pytest.param([node("a", 2), node("b", 2), node("c", 2)], "3 nodes came to", marks=pytest.mark.slow),
        pytest.param([node("a", 2), node("b", 3)], "give the same --nnodes", marks=pytest.mark.slow),
        pytest.param(
            [node("a", 2, node_rank=0), node("b", 2, node_rank=0)], "both have --node-rank 0", marks=pytest.mark.slow
        ),
        pytest.param([node("a", 2, node_rank=0), node("b", 2)], "gives none", marks=pytest.mark.slow),
        ([node("a", 2, start_rank=0), node("b", 2, start_rank=1)], "ranks overlap"),
    ],
)
async def test_nodes_that_do_not_fit_are_told_when_it_lasts(
    nodes: Nodes, hasty: None, monkeypatch: pytest.MonkeyPatch, owns: list[Announcement], words: str
) -> None:
    monkeypatch.setattr(file_rendezvous, "SETTLE_S", 1.5)
    start = time.monotonic()
    results = await nodes.all(*owns, timeout_s=15.0)
    assert all(isinstance(result, UsageError) and words in str(result) for result in results)
    assert 2.0 < time.monotonic() - start < 10.0
    assert nodes.left() == []


async def test_garbage_in_the_folder_hurts_nobody(nodes: Nodes, hasty: None) -> None:
    folder = nodes.folder / folder_name("none")
    folder.mkdir(parents=True)
    for i, text in enumerate(
        (b"", b"{", b"[1]", b'{"counter": 1}', b'{"counter": "x", "node": {}}', b"\xff", b"{}" * 200_000)
    ):
        (folder / f"node-{i:016x}.json").write_bytes(text)
        (folder / f"master-{i:016x}.json").write_bytes(text)
    (folder / f"node-{99:016x}.json").mkdir()
    found = await nodes.all(node("a", 2), node("b", 2))
    assert [f.node_rank for f in found if isinstance(f, Found)] == [0, 1]


async def test_a_folder_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--sync-dir"):
        await find_each_other(str(tmp_path / "file"), node("a", 1), timeout_s=5, choose_port=lambda: 1)


async def test_a_file_that_somebody_else_removes_is_an_error_that_says_so(nodes: Nodes, hasty: None) -> None:
    own = node("a", 2)
    task = asyncio.ensure_future(nodes.join(own))
    path = nodes.folder / folder_name("none") / f"node-{own.instance}.json"
    deadline = time.monotonic() + 5
    while not path.exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    path.unlink()
    with pytest.raises(ExchangeError, match="was taken away"):
        await task


async def test_a_file_system_that_hangs_ends_in_an_error(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncdir, "_IO_S", 0.3)
    monkeypatch.setattr(file_rendezvous.Meeting, "look", lambda _self: time.sleep(1.0))
    with pytest.raises(ExchangeError, match="does not answer"):
        await nodes.join(node("a", 2))


async def test_cancelled_it_leaves_nothing(nodes: Nodes, hasty: None) -> None:
    task = asyncio.ensure_future(nodes.join(node("a", 2)))
    deadline = time.monotonic() + 5
    while not nodes.left():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert nodes.left() == []


async def test_the_users_port_is_published_as_it_is(nodes: Nodes, hasty: None) -> None:
    found = await find_each_other(
        str(nodes.folder), node("a", 1), timeout_s=5, choose_port=lambda: pytest.fail("asked"), port=29500
    )
    assert (found.master_port, found.node_rank) == (29500, 0)
