"""LIV010."""

from allready.model import Mismatch, Recorder, Severity
from tests.rules.live.made import ask, mark, progress, socket, waiting

QUIET = (socket(),)
BROADCAST = progress({r: waiting(r) for r in range(4)}, "broadcast")


def test_different_roots_are_told_and_nobody_is_blamed() -> None:
    [hit] = ask("LIV010", sockets=QUIET, progress=BROADCAST).hits
    assert (hit.culprits.ranks, hit.severity) == ((), Severity.ERROR)


def test_ranks_inside_of_an_operation_that_others_have_left_are_told() -> None:
    gone = [waiting(r, groups=(mark(65),)) for r in (1, 3)]
    left = progress({0: waiting(0), 2: waiting(2), 1: gone[0], 3: gone[1]}, "broadcast")
    [hit] = ask("LIV010", *gone, sockets=QUIET, progress=left).hits
    assert hit.values["who"] == "rank 0 (gpu0, pid 100), rank 2 (gpu1, pid 102)"


def test_bytes_under_way_are_a_matter_of_the_network() -> None:
    assert ask("LIV010", sockets=(socket(unacked=3, backoff=4),), progress=BROADCAST).state == "clear"


def test_without_a_look_at_the_connections_nothing_is_said() -> None:
    assert ask("LIV010", progress=BROADCAST).state == "clear"


def test_an_operation_that_all_must_enter_is_only_a_warning() -> None:
    [hit] = ask("LIV010", sockets=QUIET).hits
    assert hit.severity is None


def test_gpus_that_compute_may_be_what_it_waits_for() -> None:
    busy = [waiting(r, gpu_busy_share=1.0) for r in range(4)]
    assert ask("LIV010", *busy, sockets=QUIET, progress=BROADCAST).state == "clear"


def test_known_differences_tell_more() -> None:
    mismatch = Mismatch(group="0", source=Recorder.FLIGHT, kind="size", seq=64, by_rank={})
    assert ask("LIV010", sockets=QUIET, progress=BROADCAST, mismatches=(mismatch,)).state == "clear"
