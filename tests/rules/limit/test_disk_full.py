from typing import Any

from allready.model import FactMissing, Severity, UsageFacts, Volume
from tests.fleets import GIB, check, fleet


def volume(total: int, free: int, **more: Any) -> UsageFacts:
    return UsageFacts(volumes=(Volume(path="/scratch", total_bytes=total, free_bytes=free, **more),))


def test_names_the_node_and_the_folder_of_a_full_disk() -> None:
    [hit] = check("LIM006", fleet(2, usage={1: volume(500 * GIB, 0), 0: volume(500 * GIB, 400 * GIB)})).hits
    assert (hit.culprits.nodes, hit.severity, hit.values["path"]) == ((1,), Severity.ERROR, "/scratch")


def test_nearly_full_is_a_warning() -> None:
    [hit] = check("LIM006", fleet(1, usage={0: volume(500 * GIB, GIB)})).hits
    assert hit.severity is None


def test_a_small_file_system_into_which_nothing_fits_any_more_is_full() -> None:
    [hit] = check("LIM006", fleet(1, usage={0: volume(40 * 2**20, 2**20)})).hits
    assert hit.severity is Severity.ERROR


def test_no_free_inode_is_full() -> None:
    [hit] = check("LIM006", fleet(1, usage={0: volume(500 * GIB, 90 * GIB, num_inodes=9, num_free_inodes=0)})).hits
    assert hit.severity is Severity.ERROR


def test_what_looks_full_and_is_harmless_is_clear() -> None:
    harmless = {
        "a read-only image": volume(2 * GIB, 0, is_read_only=True),
        "a small tmpfs with room": volume(64 * 2**20, 60 * 2**20),
        "a large disk, 1 % of it free": volume(100_000 * GIB, 1000 * GIB),
        "a file system that counts nothing": volume(0, 0),
        "btrfs, which has no inodes": volume(500 * GIB, 90 * GIB, num_inodes=None, num_free_inodes=None),
    }
    for name, usage in harmless.items():
        assert check("LIM006", fleet(1, usage={0: usage})).state == "clear", name


def test_says_which_node_it_could_not_check() -> None:
    assert check("LIM006", fleet(1, usage={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}
