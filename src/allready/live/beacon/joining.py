"""As which rank of how many the main thread joins: what a script gives torch may differ from what its launcher gave."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

JOINING = {
    "init_process_group": "torch/distributed/distributed_c10d.py",
    "_env_rendezvous_handler": "torch/distributed/rendezvous.py",
    "_create_c10d_store": "torch/distributed/rendezvous.py",
}
"""Functions that have both numbers as `rank` and `world_size`, and their files."""
_MAX_FRAMES = 64


def joins_as(frame: "FrameType | None") -> "tuple[int, int] | None":
    """(rank, size) of the group of all that a thread is making which stands in this frame; None where it is not known.

    -1 stands for "as in the environment" until torch has read that: then the frames below know it.
    """
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return None
        code = frame.f_code
        file = JOINING.get(code.co_name)
        if file is not None and code.co_filename.endswith(file):
            values = frame.f_locals
            rank, size = values.get("rank"), values.get("world_size")
            if type(rank) is int and type(size) is int and rank >= 0 and size > 0:
                return rank, size
        frame = frame.f_back
    return None
