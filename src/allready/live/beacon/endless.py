"""Whether Python goes round in a loop that never ends: not by how long it has lasted, but by its instructions.

Loops with a way out are left alone, however long they last, and so are those that call anything: what is called may
end the program, raise, or wait for something that comes.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from dis import Instruction
    from types import CodeType, FrameType

_MAX_CODE_BYTES = 1 << 16
_ALWAYS = {"JUMP", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_NO_INTERRUPT", "JUMP_BACKWARD_NO_INTERRUPT"}
_MOVES = ("NOP", "RESUME", "CACHE", "EXTENDED_ARG", "NOT_TAKEN", "LOAD_FAST", "LOAD_CONST", "LOAD_SMALL_INT",
          "STORE_FAST", "POP_TOP", "COPY", "SWAP", "DUP_TOP", "ROT_", "JUMP", "POP_JUMP", "IS_OP")  # fmt: skip
"""Beginnings of the names of instructions that move values; by none of them an exception comes."""
_COMPUTES = ("BINARY_OP", "UNARY_", "COMPARE_OP", "TO_BOOL", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "STORE_GLOBAL",
             "STORE_NAME", "STORE_DEREF", "BUILD_", "PUSH_NULL", "INPLACE_")  # fmt: skip
"""Of those by which none comes that a loop is written for, as it is for the end of a list or of what is iterated."""
_SUBSCRIPT = "[]"


def is_endless(frame: "FrameType") -> bool:
    """Whether, from where the frame stands, no instruction leads out of it or into another one."""
    code, at = frame.f_code, frame.f_lasti
    if len(code.co_code) > _MAX_CODE_BYTES:
        return False
    steps, handlers = _instructions(code)
    seen: set[int] = set()
    ahead = [at]
    while ahead:
        offset = ahead.pop()
        if offset in seen:
            continue
        seen.add(offset)
        found = steps.get(offset)
        if found is None or not _stays(found[0]):
            return False
        ahead += _next(*found)
        if not found[0].opname.startswith(_MOVES):
            ahead += (target for start, end, target in handlers if start <= offset < end)
    return True


def _stays(step: "Instruction") -> bool:
    return step.opname.startswith((*_MOVES, *_COMPUTES)) and step.argrepr != _SUBSCRIPT


def _next(step: "Instruction", after: int) -> "Iterator[int]":
    import dis

    if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
        yield int(step.argval)
    if step.opname not in _ALWAYS:
        yield after


def _instructions(code: "CodeType") -> "tuple[dict[int, tuple[Instruction, int]], list[tuple[int, int, int]]]":
    """By offset, with that of the following one; and from where to where which handler catches."""
    import dis

    read = dis.Bytecode(code)
    steps = list(read)
    afters = [step.offset for step in steps[1:]] + [len(code.co_code)]
    handlers = [(entry.start, entry.end, entry.target) for entry in getattr(read, "exception_entries", ())]
    return {step.offset: (step, after) for step, after in zip(steps, afters, strict=True)}, handlers
