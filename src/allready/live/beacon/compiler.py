"""torch.compile, kept away from what is no part of torch."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType
    from typing import Any


def hide_from_compiler(
    functions: "Iterable[Callable[..., Any]]", note_problem: "Callable[[str, Exception], None]"
) -> None:
    """Have torch.compile run these functions as they are."""
    try:
        for function in functions:
            _hide(function.__code__)
    except Exception as error:  # noqa: BLE001 - another torch: then it compiles what it likes
        note_problem("torch.compile may trace the beacon", error)


def _hide(code: "CodeType") -> None:
    """Have torch.compile run this as it is: it would compile what is no part of torch, frame by frame."""
    compiler: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    if hasattr(compiler, "skip_code"):  # before torch 2.7
        compiler.skip_code(code)
    elif hasattr(compiler, "set_code_exec_strategy"):
        action = compiler._FrameAction.SKIP  # noqa: SLF001
        compiler.set_code_exec_strategy(code, compiler._FrameExecStrategy(action, action))  # noqa: SLF001
    for inner in code.co_consts:
        if isinstance(inner, type(code)):
            _hide(inner)
