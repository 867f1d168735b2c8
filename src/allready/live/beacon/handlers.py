"""In whose handler the main thread is, of the signals that ask a process to end."""

import _signal  # type: ignore[import-not-found]  # `signal` builds enumerations for 4 ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType

SIGNALS = ((int(_signal.SIGTERM), "SIGTERM"), (int(_signal.SIGINT), "SIGINT"), (int(_signal.SIGHUP), "SIGHUP"))


def handled(frame: "FrameType | None") -> str:
    """The signal in whose handler, a function of Python, a thread is that stands in this frame; "" for none.

    Of a function that handles several of them the first.
    """
    known = [(code, name) for number, name in SIGNALS if (code := _code_of(_signal.getsignal(number))) is not None]
    while known and frame is not None:
        for code, name in known:
            if frame.f_code is code:
                return name
        frame = frame.f_back
    return ""


def _code_of(handler: object) -> "CodeType | None":
    """Of a function, a method, a partial of one, or an object that can be called."""
    handler = getattr(handler, "func", handler)
    call = getattr(type(handler), "__call__", None)  # noqa: B004 - not whether there is one: a trainer's is an object
    code: CodeType | None = getattr(getattr(handler, "__func__", handler), "__code__", getattr(call, "__code__", None))
    return code
