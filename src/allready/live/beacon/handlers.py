"""In whose handler the main thread is, of the signals that ask a process to end."""

import _signal  # type: ignore[import-not-found]  # `signal` builds enumerations for 4 ms
from types import FrameType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

SIGNALS = ((int(_signal.SIGTERM), "SIGTERM"), (int(_signal.SIGINT), "SIGINT"), (int(_signal.SIGHUP), "SIGHUP"))

_MOST_CHAINED = 20


def handled(frame: FrameType | None) -> str:
    """The signal in whose handler, a function of Python, a thread is that stands in this frame; "" for none.

    Of a function that handles several of them the first.
    """
    known = _known()
    while known and frame is not None:
        for code, name in known:
            if frame.f_code is code and _has_frame(frame):
                return name
        frame = frame.f_back
    return ""


def raised_by(error: BaseException) -> str:
    """The signal because of which an exception leaves the script: it, or one that was being handled when it was
    raised, came out of that one's handler; "" for none.

    Python's own handler of SIGINT, which raises KeyboardInterrupt, is no function of Python and has no frame.
    """
    known = _known()
    is_default = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    one: BaseException | None = error
    for _ in range(_MOST_CHAINED):
        if one is None:
            return ""
        at = one.__traceback__
        while known and at is not None:
            for code, name in known:
                if at.tb_frame.f_code is code and _has_frame(at.tb_frame):
                    return name
            at = at.tb_next
        if is_default and isinstance(one, KeyboardInterrupt):
            return "SIGINT"
        one = one.__context__
    return ""


def _known() -> "list[tuple[CodeType, str]]":
    """Code of the handlers that are functions of Python."""
    return [(code, name) for number, name in SIGNALS if (code := _code_of(_signal.getsignal(number))) is not None]


def _has_frame(called: FrameType) -> bool:
    """Whether it was called as a handler is, with the frame that the signal came into.

    A job also calls its handler by itself, as to save now and then, and what a decorator wraps shares one code.
    """
    values = called.f_locals.values()
    of_star = (x for value in values if type(value) is tuple for x in value)
    return any(type(value) is FrameType for value in (*values, *of_star))  # isinstance() may ask objects of the job


def _code_of(handler: object) -> "CodeType | None":
    """Of a function, a method, a partial of one, or an object that can be called."""
    try:
        handler = getattr(handler, "func", handler)
        call = getattr(type(handler), "__call__", None)  # noqa: B004 - not whether there is one: a trainer's is an object
        return getattr(getattr(handler, "__func__", handler), "__code__", getattr(call, "__code__", None))
    except Exception:  # noqa: BLE001 - an object of the job may raise where it is asked for what it has not
        return None
