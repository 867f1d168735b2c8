"""The cell: what one side writes the other reads, and nothing that lies there can hurt the reader."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allready.live.beacon import payload as payloads
from allready.live.beacon.cell import BeaconCell
from allready.live.beacon.group import GroupCounters
from allready.live.beacon.payload import compressed, encode
from allready.live.beacon.state import decode, expand
from allready.live.node.cell import BeaconCellReader
from allready.proc import cell
from tests.cases import cases
from tests.live.beacon.helpers import PATIENCE_S, until


def payload(
    *groups: GroupCounters,
    at_s: float = 1000.0,
    site: str = "train.py:3 step",
    problems: tuple[str, ...] = (),
    room: int = cell.PAYLOAD_BYTES,
    formed: tuple[int, tuple[int, ...]] = (0, ()),
) -> bytes:
    return encode(
        at_s=at_s,
        phase="computing",
        site=site,
        site_since_s=990.0,
        visit_since_s=980.0,
        stack_id=7,
        framework="torch",
        ring_s=None,
        problems=problems,
        groups=groups,
        formed=formed,
        most_bytes=room,
    )


def group(
    name: str, enqueued: int = 0, completed: int | None = 0, members: str = "0-3", pending_s: float | None = None
) -> GroupCounters:
    made = GroupCounters(name)
    made.enqueued, made.completed, made.members, made.pending_s, made.label = (
        enqueued,
        completed,
        members,
        pending_s,
        "TP",
    )
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cell"


def test_what_is_written_is_read(path: Path) -> None:
    writer = BeaconCell(str(path))
    reader = BeaconCellReader(path)
    writer.write(payload(group("0", 12, 11, pending_s=998.5), problems=('a "quoted" problem', "café\udc80")))
    state = reader.state()
    assert state is not None
    assert (state.pid, state.phase, state.site) == (os.getpid(), "computing", "train.py:3 step")
    assert (state.site_since_s, state.visit_since_s) == (990.0, 980.0)
    assert (state.stack_id, state.framework, state.ring_s) == (7, "torch", None)
    (mark,) = state.groups
    assert (mark.group, mark.label, mark.members, mark.enqueued, mark.completed) == ("0", "TP", (0, 1, 2, 3), 12, 11)
    assert (mark.started, mark.waiting_s, mark.moved_s) == (None, 1.5, None)
    assert state.problems == ('a "quoted" problem', "café?")
    assert state.heartbeat_age_s < PATIENCE_S
    assert reader.problem is None
    reader.close()
    writer.close()


def test_a_cell_without_a_payload_still_has_its_beat(path: Path) -> None:
    writer = BeaconCell(str(path))
    state = BeaconCellReader(path).state()
    assert state is not None
    assert (state.pid, state.is_whole, state.phase) == (os.getpid(), False, "unknown")
    writer.close()


def test_a_rank_stopped_in_the_middle_of_a_payload_keeps_its_beat_and_its_last_words(path: Path) -> None:
    writer = BeaconCell(str(path))
    reader = BeaconCellReader(path)
    writer.write(payload(group("0", 5)))
    assert reader.state() is not None
    writer._words[cell._SEQUENCE] = 3  # as in the middle of a write
    writer._bytes[cell.HEADER_BYTES : cell.HEADER_BYTES + 10] = b"x" * 10
    writer.heartbeat()
    state = reader.state()
    assert state is not None
    assert state.is_whole
    assert state.groups[0].enqueued == 5
    assert state.heartbeat_age_s < PATIENCE_S
    fresh = BeaconCellReader(path).state()
    assert fresh is not None
    assert not fresh.is_whole


def test_a_reader_never_sees_half_a_payload(path: Path) -> None:
    """The writer is another process that writes all the time; every payload has its number in all of its parts."""
    program = textwrap.dedent("""
        import sys
        from allready.live.beacon.cell import BeaconCell
        from allready.live.beacon.payload import encode
        from allready.live.beacon.group import GroupCounters
        writer, number = BeaconCell(sys.argv[1]), 0
        while True:
            number += 1
            groups = [GroupCounters(str(i)) for i in range(1 + number % 60)]
            for group in groups:
                group.enqueued = number
            writer.heartbeat()
            writer.write(encode(at_s=float(number), phase="computing", site="s" * (number % 90), site_since_s=0.0,
                visit_since_s=0.0, stack_id=number, framework="", ring_s=None, problems=(), groups=groups,
                most_bytes=7900))
    """)
    process = subprocess.Popen([sys.executable, "-c", program, str(path)])
    try:
        reader = BeaconCellReader(path)
        until(lambda: reader.state() is not None)
        seen: set[int] = set()
        give_up_s = time.monotonic() + PATIENCE_S
        for _ in itertools.takewhile(lambda n: n < 3000 or len(seen) <= 20, itertools.count()):
            assert time.monotonic() < give_up_s, seen
            state = reader.state()
            assert state is not None
            if state.is_whole:
                number = state.stack_id
                assert number is not None
                assert len(state.groups) == 1 + number % 60
                assert {mark.enqueued for mark in state.groups} == {number}
                assert len(state.site) == number % 90
                seen.add(number)
        assert len(seen) > 20
    finally:
        process.kill()
        process.wait()


def test_of_too_many_groups_those_that_wait_and_the_busiest_stay(path: Path) -> None:
    groups = [group(str(i), enqueued=i, completed=i, members=f"{i}-{i + 7}") for i in range(1000)]
    groups[3].pending_s = 999.0
    text = payload(*groups)
    assert len(text) <= cell.PAYLOAD_BYTES
    state = decode(text, pid=1, heartbeat_age_s=0.0)
    assert state.is_whole
    assert len(state.groups) + state.num_left_out == 1000
    assert len(state.groups) > 60
    assert state.groups[0].group == "3"
    busiest = [int(m.group) for m in state.groups[1:]]
    assert busiest[:60] == list(range(999, 939, -1))
    assert busiest == sorted(busiest, reverse=True)


@cases(
    "members, label, told",
    [
        ("0-3", "default_pg", (0, 2, 3)),  # formed in place: torch still names those of the group before it
        ("0-2", "default_pg", (0, 2, 3)),
        ("1-2", "", (2, 3)),
        ("1,3", "", ()),  # from earlier, and gone
    ],
)
def test_members_are_told_by_their_numbers_at_the_start_of_the_job(
    members: str, label: str, told: tuple[int, ...]
) -> None:
    one = group("1", enqueued=4, completed=4, members=members)
    one.label = label
    state = decode(payload(one, formed=(2, (0, 2, 3))), pid=1, heartbeat_age_s=0.0)
    assert (state.epoch, state.groups[0].members) == (2, told)
    without = decode(payload(one), pid=1, heartbeat_age_s=0.0)
    assert (without.epoch, without.groups[0].members) == (0, expand(members))


COUNTS = st.integers(0, 10**15)


@pytest.mark.thorough
@given(
    st.lists(st.builds(group, st.text(max_size=500), COUNTS, st.none() | COUNTS), max_size=200),
    st.text(max_size=3000),
    st.lists(st.text(max_size=1000), max_size=9),
    st.integers(1000, cell.PAYLOAD_BYTES),
)
@settings(max_examples=150, deadline=None)
def test_every_payload_fits_and_is_understood(
    groups: list[GroupCounters], site: str, problems: list[str], room: int
) -> None:
    text = payload(*groups, site=site, problems=tuple(problems), room=room)
    assert len(text) <= room
    state = decode(text, pid=1, heartbeat_age_s=0.0)
    assert state.is_whole
    assert len(state.groups) + state.num_left_out <= len(groups)


@given(st.text())
def test_strings_are_json_with_and_without_the_accelerator(text: str) -> None:
    import json

    slow = '"' + "".join(c if 31 < ord(c) < 127 and c not in '"\\' else _slow(c) for c in text) + '"'
    assert json.loads(payloads.quoted(text)) == text == json.loads(slow)


def _slow(char: str) -> str:
    return payloads._escaped(char)


@given(
    st.lists(st.integers(0, 9_000), max_size=60)
    | st.builds(lambda a, n, s: list(range(a, a + n * s, s)), st.integers(0, 99), st.integers(0, 99), st.integers(1, 9))
)
def test_members_come_back_in_their_order(ranks: list[int]) -> None:
    assert expand(compressed(ranks)) == tuple(ranks)


def test_members_of_large_groups_are_short() -> None:
    assert compressed(range(4096)) == "0-4095"
    assert compressed(range(3, 4096, 8)) == "3-4091:8"


@cases("text", ["x", "1-", "-3", "5-1", "1-9:0", "0-99999999", "0-9999999", "1,,2", "١", "0-9:-1"])
def test_members_that_are_none_are_not_believed(text: str) -> None:
    assert expand(text) == ()


@cases(
    "data",
    [b"", b"x", b"allready", bytes(8192), b"\xff" * 8192, b"allready" * 1024, b"allready\1" + bytes(8183), bytes(9000)],
)
def test_garbage_is_no_cell(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    reader = BeaconCellReader(path)
    assert reader.state() is None
    assert reader.problem
    reader.request("ring", "dump")
    reader.is_answered(1, "ring")
    reader.close()


@pytest.mark.thorough
@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_cell_never_raises(data: st.DataObject, path: Path) -> None:
    writer = BeaconCell(str(path))
    writer.write(payload(group("0", 3)))
    writer.close()
    image = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, 399))
        image[at : at + 8] = data.draw(st.binary(min_size=1, max_size=8))
    path.write_bytes(bytes(image[: data.draw(st.sampled_from([8192, 8192, 8192, 300, 4096]))]))
    reader = BeaconCellReader(path)
    state = reader.state()
    assert (state is None) == (reader.problem is not None)
    number = reader.request("ring", "dump")
    if number is not None:
        assert not reader.is_answered(number, "ring")
    reader.close()


@given(st.binary(max_size=400) | st.text(max_size=400).map(str.encode) | st.just(b"[" * 8000))
@settings(max_examples=200, deadline=None)
def test_a_hostile_payload_is_not_believed(text: bytes) -> None:
    assert not decode(text, pid=1, heartbeat_age_s=0.0).is_whole or text.lstrip().startswith(b"{")


@pytest.mark.parametrize(
    "text", [b"{}", b'{"phase":"dancing","groups":{"0":{"e":-4}},"left_out":-1,"framework":"mxnet"}']
)
def test_a_payload_of_another_kind_says_nothing(text: bytes) -> None:
    state = decode(text, pid=1, heartbeat_age_s=0.0)
    assert (state.phase, state.groups, state.num_left_out, state.framework) == ("unknown", (), 0, "")


def test_a_cell_that_is_not_there_or_not_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(bytes(8192))
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, word in (("absent", "not made"), ("link", "opened"), ("pipe", "not a file"), ("folder", "opened")):
        reader = BeaconCellReader(tmp_path / name)
        assert reader.state() is None
        assert word in (reader.problem or "")
        assert reader.request("ring") is None


def test_a_file_that_is_cut_short_while_it_is_read_is_told(path: Path) -> None:
    writer = BeaconCell(str(path))
    reader = BeaconCellReader(path)
    assert reader.state() is not None
    os.truncate(path, 100)
    assert reader.state() is None
    assert "100 bytes" in (reader.problem or "")
    assert not reader.is_answered(1, "ring")
    del writer


def test_requests_are_answered_one_by_one(path: Path) -> None:
    writer, reader = BeaconCell(str(path)), BeaconCellReader(path)
    assert writer.wanted() == (0, 0, 0)
    first = reader.request("ring")
    assert first is not None
    assert writer.wanted() == (first, 0, 0)
    assert not reader.is_answered(first, "ring")
    writer.answer("ring", first)
    assert reader.is_answered(first, "ring")
    assert not reader.is_answered(first, "dump")
    second = reader.request("ring", "dump")
    assert second is not None
    assert second > first
    assert writer.wanted() == (second, second, 0)
    writer.answer("ring", second)
    writer.answer("dump", second)
    assert writer.wanted() == (0, 0, 0)
    assert reader.is_answered(second, "dump")
    both = reader.request("stacks", "ring")
    assert both is not None
    assert writer.wanted() == (both, 0, both)
    writer.answer("stacks", both)
    assert reader.is_answered(both, "stacks")
    assert not reader.is_answered(both, "ring")
    again = BeaconCellReader(path)
    third = again.request("ring")  # another agent goes on counting
    assert third is not None
    assert third > second


def test_who_beats_and_whether_a_dump_is_made_is_read_beside_the_payload(path: Path) -> None:
    reader = BeaconCellReader(path)
    assert reader.heartbeat() is None
    assert not reader.is_dumping()
    writer = BeaconCell(str(path))
    assert (reader.heartbeat() or (9.0, 9))[1] == 0
    writer.set_thread(77)
    writer.set_dumping(True)
    age_s, thread = reader.heartbeat() or (9.0, 9)
    assert (age_s < 5, thread, reader.is_dumping()) == (True, 77, True)
    writer.set_dumping(False)
    assert not reader.is_dumping()
    path.write_bytes(bytes(100))
    assert (reader.heartbeat(), reader.is_dumping()) == (None, False)


def test_no_room_is_an_error_at_the_start_and_not_a_bus_error_later(tmp_path: Path) -> None:
    """A full /dev/shm: without a reservation the first write to the mapping kills the process."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    program = textwrap.dedent("""
        import os, sys
        from allready.live.beacon.cell import BeaconCell
        with open(sys.argv[1] + "/fill", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        try:
            BeaconCell(sys.argv[1] + "/cell")
        except OSError as error:
            print(error.strerror)
    """)
    command = f"{' '.join(mount)} && exec {sys.executable} -c '{program}' {folder}"
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert (done.stdout, done.returncode) == ("No space left on device\n", 0), done.stderr
    assert done.returncode != -signal.SIGBUS


def test_the_payload_is_bounded(path: Path) -> None:
    writer = BeaconCell(str(path))
    writer.write(b"{}")
    with pytest.raises(ValueError, match="more than"):
        writer.write(bytes(cell.PAYLOAD_BYTES + 1))
    state = BeaconCellReader(path).state()
    assert state is not None
    assert state.is_whole


def test_a_writer_in_a_thread_and_a_reader_agree(path: Path) -> None:
    writer, reader = BeaconCell(str(path)), BeaconCellReader(path)
    ends = threading.Event()

    def write() -> None:
        while not ends.is_set():
            writer.heartbeat()
            writer.write(payload(group("0", 1)))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert all((state := reader.state()) is not None and state.heartbeat_age_s < PATIENCE_S for _ in range(500))
    finally:
        ends.set()
        thread.join()
