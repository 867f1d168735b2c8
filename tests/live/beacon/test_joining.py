"""As which rank a rank joins, by its frames."""

import sys
from typing import Any

from allready.live.beacon.joining import CONNECTED, JOINING, STORE, joins_as, joins_at
from allready.live.beacon.payload import encode
from allready.live.beacon.state import decode
from tests.cases import cases

TEXT = "def {name}(rank, world_size):\n    return look()\n"


def seen(name: str, file: str, rank: Any, size: Any) -> object:
    space: dict[str, Any] = {"look": lambda: joins_as(sys._getframe())}
    exec(compile(TEXT.format(name=name), file, "exec"), space)
    return space[name](rank, size)


def test_both_numbers_are_read_from_torch_s_frames() -> None:
    for name, file in JOINING.items():
        assert seen(name, f"/x/site-packages/{file}", 1, 4) == (1, 4)
        assert seen(name, "/home/u/train.py", 1, 4) is None
        for rank, size in ((-1, -1), ("1", 4), (0, 0), (True, 4)):
            assert seen(name, f"/x/site-packages/{file}", rank, size) is None
    assert joins_as(None) is None


@cases(("given", "read"), [((1, 4), (1, 4)), (None, None), ((-1, 4), None), ((1, 1 << 61), None)])
def test_they_pass_through_the_cell(given: tuple[int, int] | None, read: tuple[int, int] | None) -> None:
    known: dict[str, Any] = {"at_s": 1.0, "phase": "joining", "site": "", "site_since_s": 1.0, "visit_since_s": 1.0}
    known |= {"stack_id": 1, "framework": "torch", "ring_s": None, "problems": (), "groups": (), "most_bytes": 8000}
    state = decode(encode(**known, joins_as=given), pid=1, heartbeat_age_s=0.0)
    assert (state.is_whole, state.joins_as) == (True, read)


AT = "def {name}(hostname, port):\n    return look()\n"


def looked(file: str, host: object, port: object) -> object:
    space: dict[str, Any] = {"look": lambda: joins_at(sys._getframe())}
    exec(compile(AT.format(name=STORE[0]), file, "exec"), space)
    return space[STORE[0]](host, port)


def test_where_a_rank_looks_for_the_store_is_read_from_torch_s_frame() -> None:
    file = f"/x/site-packages/{STORE[1]}"
    assert looked(file, "gpu01", 29500) == ("gpu01", 29500)
    assert looked("/home/u/train.py", "gpu01", 29500) is None
    for host, port in ((None, 29500), ("gpu01", "29500"), ("gpu01", 0), ("gpu01", 1 << 16), ("gpu01", True)):
        assert looked(file, host, port) is None
    assert joins_at(None) is None


@cases(
    ("given", "read"),
    [(("gpu01", 29500, True), ("gpu01", 29500, True)), (None, None), (("gpu01", 1 << 20, False), None)],
)
def test_the_place_passes_through_the_cell(given: Any, read: Any) -> None:
    known: dict[str, Any] = {"at_s": 1.0, "phase": "joining", "site": "", "site_since_s": 1.0, "visit_since_s": 1.0}
    known |= {"stack_id": 1, "framework": "torch", "ring_s": None, "problems": (), "groups": (), "most_bytes": 8000}
    state = decode(encode(**known, joins_at=given), pid=1, heartbeat_age_s=0.0)
    assert (state.is_whole, state.joins_at) == (True, read)


def test_where_a_rank_found_the_store_is_read_from_the_store_inside_of_its_prefixes() -> None:
    tcp = type("TCPStore", (), {"host": "gpu01", "port": 29500})()
    prefixed = type("PrefixStore", (), {"underlying_store": tcp})()
    other = type("FileStore", (), {"host": "gpu01", "port": 29500})()
    for store, place in ((tcp, ("gpu01", 29500)), (prefixed, ("gpu01", 29500)), (other, None), (None, None)):
        space: dict[str, Any] = {"look": lambda: joins_at(sys._getframe())}
        exec(compile(f"def {CONNECTED[0]}(store):\n    return look()\n", f"/x/{CONNECTED[1]}", "exec"), space)
        assert space[CONNECTED[0]](store) == place
