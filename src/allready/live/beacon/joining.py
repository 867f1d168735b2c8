"""As which rank of how many the main thread joins, and where: what a script gives torch may differ from what its
launcher gave."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

JOINING = {
    "init_process_group": "torch/distributed/distributed_c10d.py",
    "_env_rendezvous_handler": "torch/distributed/rendezvous.py",
    "_create_c10d_store": "torch/distributed/rendezvous.py",
}
"""Functions that have both numbers as `rank` and `world_size`, and their files."""
STORE = ("_create_c10d_store", "torch/distributed/rendezvous.py")
"""The function that connects to the store, with `hostname` and `port`, and its file."""
CONNECTED = ("init_process_group", "torch/distributed/distributed_c10d.py")
"""The function that has it then, as `store`."""
_MAX_FRAMES = 64
_MAX_HOST = 255


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


def joins_at(frame: "FrameType | None") -> "tuple[str, int] | None":
    """The host and port at which a thread that stands in this frame looks for the store of the group of all, or found
    it; None where it does not join."""
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return None
        code = frame.f_code
        if code.co_name == STORE[0] and code.co_filename.endswith(STORE[1]):
            return _place(frame.f_locals.get("hostname"), frame.f_locals.get("port"))
        if code.co_name == CONNECTED[0] and code.co_filename.endswith(CONNECTED[1]):
            store: object = frame.f_locals.get("store")
            for _ in range(_MAX_FRAMES):
                if type(store).__name__ != "PrefixStore":
                    break
                store = getattr(store, "underlying_store", None)
            is_tcp = type(store).__name__ == "TCPStore"
            return _place(getattr(store, "host", None), getattr(store, "port", None)) if is_tcp else None
        frame = frame.f_back
    return None


def _place(host: object, port: object) -> "tuple[str, int] | None":
    is_known = type(host) is str and type(port) is int and 0 < port < 1 << 16
    return (host[:_MAX_HOST], port) if is_known else None  # type: ignore[index,return-value]
