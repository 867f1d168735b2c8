"""As which rank a rank joins, by its frames."""

import sys
from typing import Any

from allready.live.beacon.joining import JOINING, joins_as
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
