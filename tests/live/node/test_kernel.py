"""The kernel's lines: which are ours to tell, from the log itself or from dmesg, and why there are none."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from allready.errors import FactUnavailable
from allready.facts.live import LiveHost
from allready.live.node.kernel import KMSG, KernelLog, chosen, line_of

XID = "2026-11-20T11:51:02,123456+00:00 NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
OOM = "2026-11-20T11:51:03,123456+00:00 Memory cgroup out of memory: Killed process 777 (python) total-vm:1kB"
TALK = "2026-11-20T11:51:02,000000+00:00 usb 1-1: new device number 1234 found"
OTHER = "2026-11-20T11:51:02,000000+00:00 lab0: port 1(node0) entered forwarding state"


def is_inside_a_container() -> bool:
    return str(Path("/proc/self/ns/pid").readlink()) != "pid:[4026531836]"


def test_what_a_signature_knows_is_told_and_talk_is_not() -> None:
    assert chosen([OTHER, XID, OTHER, OOM], []) == (XID, OOM)
    assert chosen([], [1]) == ()


@pytest.mark.skipif(is_inside_a_container(), reason="the kernel's pids are not those of this container")
def test_a_line_that_names_a_process_of_ours_is_told() -> None:
    assert chosen([TALK, OTHER], [1234]) == (TALK,)
    assert chosen([TALK.replace("1234", "12345")], [1234]) == ()
    assert chosen([TALK.replace("1234", "0000:1234:00")], [1234]) == ()


def test_a_record_is_a_line_with_a_wall_clock() -> None:
    at_us = int((time.monotonic() - 10) * 1e6)
    line = line_of(f"4,1234,{at_us},-,caller=T1;mlx5_core: Link down\n SUBSYSTEM=pci\n".encode())
    assert line is not None
    told, _, text = line.partition(" ")
    assert text == "mlx5_core: Link down"
    assert told.startswith(time.strftime("%Y-%m-%dT%H:", time.gmtime(time.time() - 10)))
    assert line_of(b"garbage") is None
    assert line_of(b"4,1,99999999999999999999999,-;x") is None
    assert line_of(b"\xff\xfe") is None


def test_lines_since_the_beginning_are_read_from_the_kernel_itself() -> None:
    if not os.access(KMSG, os.W_OK | os.R_OK):
        pytest.skip("the kernel's log may not be written here")
    before = f"allready test {os.getpid()} {time.monotonic_ns()} before"
    after = before.replace("before", "after")
    Path(KMSG).write_text(f"<6>{before}\n")
    log = KernelLog()
    try:
        Path(KMSG).write_text(f"<6>{after}\n")
        lines = log.lines(timeout_s=1.0)
        assert any(line.endswith(after) for line in lines)
        assert not any(line.endswith(before) for line in lines)
    finally:
        log.close()


class Dmesg(LiveHost):
    def __init__(self, text: str | None) -> None:
        super().__init__({})
        self._text = text

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        if self._text is None:
            raise FactUnavailable("dmesg: Operation not permitted")
        assert argv[0] == "dmesg"
        assert timeout_s > 0
        return self._text


def test_without_the_log_dmesg_is_asked_for_what_is_new(tmp_path: Path) -> None:
    log = KernelLog(path=str(tmp_path / "none"), since_s=1_795_175_462.5)
    old = XID.replace("11:51:02", "11:40:02")
    assert log.lines(timeout_s=1.0, host=Dmesg(f"{old}\n{XID}\nno time\n")) == (XID,)


def test_why_there_are_no_lines_is_told(tmp_path: Path) -> None:
    log = KernelLog(path=str(tmp_path / "none"))
    with pytest.raises(FactUnavailable, match=r"No such file.*not permitted"):
        log.lines(timeout_s=1.0, host=Dmesg(None))
