"""LIV002."""

from allready.model import Confidence, ProcessState
from allready.model.process import SystemCall
from tests.rules.live.made import NOW, ask, behind, stack

READ = SystemCall(name="read", descriptor=5)
DISK = {"wchan": "request_wait_answer", "syscall": READ, "open_file": "/mnt/data/shard17"}


def test_names_rank_and_path_when_a_file_server_does_not_answer() -> None:
    [hit] = ask("LIV002", behind(2, process_state=ProcessState.DISK), seen={2: DISK}, stacks=(stack(2, "io"),)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.CERTAIN)
    assert "/mnt/data/shard17" in str(hit.values["what"])


def test_an_interruptible_wait_of_a_file_system_in_user_space_counts_as_well() -> None:
    assert ask("LIV002", behind(2), seen={2: DISK}, stacks=(stack(2, "io"),)).state == "hit"


def test_a_disk_that_flushes_has_more_patience() -> None:
    local = DISK | {"wchan": "folio_wait_bit_common", "syscall": SystemCall(name="fsync", descriptor=5)}
    assert ask("LIV002", behind(2, process_state=ProcessState.DISK), seen={2: local}).state == "clear"


def test_whoever_moves_on_is_not_stuck() -> None:
    moving = behind(2, process_state=ProcessState.DISK, site_since_s=NOW - 0.5)
    assert ask("LIV002", moving, seen={2: DISK}).state == "clear"


def test_work_beside_the_wait_is_no_stall() -> None:
    busy = behind(2, process_state=ProcessState.DISK, cpu_share=0.6)
    assert ask("LIV002", busy, seen={2: DISK}).state == "clear"
