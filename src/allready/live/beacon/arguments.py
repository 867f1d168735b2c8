"""Arguments of calls that torch's recorder does not write down: the root, and how an all_to_all splits.

From torch 2.14 a process group calls hooks before each operation: see `group_hooks`.  Before that, torch.distributed
makes an options object in every collective, once the arguments have been checked and before the call goes to the
backend.  For the calls below, none of which is made for every gradient, the name of that class in the one module
`torch.distributed.distributed_c10d` is given to a subclass whose creation notes what its caller was given.  What comes
out is what torch would have made; the functions themselves, and the frames of the script, stay as they are.
"""

import sys
from collections import deque

from allready.live.beacon.compiler import hide_from_compiler
from allready.live.beacon.exchanges import MAX_CALLS, ExchangeNotes
from allready.live.beacon.group_hooks import GroupHooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Noted = tuple[str, int, str, int | None, tuple[int, ...] | None, tuple[int, ...] | None]

MODULE = "torch.distributed.distributed_c10d"
MAX_SPLITS = 8192
"""Numbers in all splits together that are kept, of the newest calls."""
MAX_MEMBERS = 1024
"""Of a group whose splits, or members, are noted: it takes a microsecond for each of them."""

_ROOTED = {
    "BroadcastOptions": ("broadcast", "src"),
    "ReduceOptions": ("reduce", "dst"),
    "ScatterOptions": ("scatter", "src"),
    "GatherOptions": ("gather", "dst"),
}
_SPLIT = "AllToAllOptions"


class Arguments:
    """What this process was called with.  `attach` in the heartbeat's thread; notes are taken where the script
    calls."""

    def __init__(self) -> None:
        self._rooted: deque[Noted] = deque(maxlen=MAX_CALLS)
        self._split: deque[Noted] = deque(maxlen=MAX_CALLS)
        self._num_splits = 0
        self._module: Any = None
        self._hooks: GroupHooks | None = None
        self.attached: tuple[str, ...] = ()
        self.problem = ""
        self.exchanges = ExchangeNotes(self._note_problem)

    def attach(self) -> None:
        """Begin to note, as soon as torch.distributed is there; what cannot be noted is left alone."""
        module = sys.modules.get(MODULE)
        if module is None or module is self._module or not hasattr(module, "all_to_all_single"):
            if self._hooks is not None:
                self._hooks.keep()
            return  # not imported, or not to its end
        self._module = module
        self.exchanges.attach(module)
        hooks = GroupHooks(module, self._note_hooked, self._note_problem)
        if hooks.attach():
            self._hooks, self.attached = hooks, ("hooks",)
            return
        done = []
        for name, (operation, key) in _ROOTED.items():
            done += [name] * _replace(module, name, self._notes_root(operation, key), self._note_problem)
        done += [_SPLIT] * _replace(module, _SPLIT, self._note_splits, self._note_problem)
        self.attached = tuple(done)

    def _note_problem(self, what: str, error: Exception) -> None:
        self.problem = self.problem or f"{what}: {type(error).__name__}: {error}"

    def noted(self) -> "list[Noted]":
        """The last calls of both kinds, the oldest of each first."""
        return [*self._rooted.copy(), *self._split.copy()]

    def _note_hooked(
        self, group: str, number: int, operation: str, root: int | None, call: "Mapping[str, Any]"
    ) -> None:
        if root is not None:
            self._rooted.append((group, number, operation, root, None, None))
        else:
            self._note_parts(group, number, int(call["group_size"]), call)

    def _notes_root(self, operation: str, key: str) -> "Callable[[Mapping[str, Any]], None]":
        def note(given: "Mapping[str, Any]") -> None:
            group = given["group"]
            root = given.get(key)
            if root is None:  # given by the number in the group
                root = self._module.get_global_rank(group, given[f"group_{key}"])
            group = _whole(self._module, group)
            if type(root) is int:
                self._rooted.append((group.group_name, _next_number(group), operation, root, None, None))

        return note

    def _note_splits(self, given: "Mapping[str, Any]") -> None:
        group = _whole(self._module, given.get("group"))
        self._note_parts(group.group_name, _next_number(group), group.size(), given)

    def _note_parts(self, group: str, seq: int, number: int, given: "Mapping[str, Any]") -> None:
        """Of an all_to_all: `given` has its arguments by the names of torch's function, `number` members take part."""
        if "input_tensor_list" in given:
            ins = _numels(given["input_tensor_list"], number)
            outs = _numels(given["output_tensor_list"], number)
        else:
            ins = _parts(given["input"], given.get("input_split_sizes"), number)
            outs = _parts(given["output"], given.get("output_split_sizes"), number)
        if ins is None or outs is None:
            return
        if len(self._split) == MAX_CALLS:
            self._num_splits -= 2 * len(self._split[0][4] or ())
        self._split.append((group, seq, "all_to_all", None, ins, outs))
        self._num_splits += len(ins) + len(outs)
        while self._num_splits > MAX_SPLITS and len(self._split) > 1:
            self._num_splits -= 2 * len(self._split.popleft()[4] or ())


def _replace(
    module: "Any",
    name: str,
    note: "Callable[[Mapping[str, Any]], None]",
    note_problem: "Callable[[str, Exception], None]",
) -> bool:
    """Put a class that notes in the place of `name`; whether that was possible."""
    plain = getattr(module, name, None)
    if not isinstance(plain, type) or hasattr(plain, "noted_by_allready"):
        return False

    def make(cls: type, *args: "Any", **kwargs: "Any") -> "Any":
        if cls is not noting:
            return type(plain).__call__(cls, *args, **kwargs)
        try:
            frame = sys._getframe(1)  # noqa: SLF001 - whose arguments are wanted
            if frame.f_globals is vars(module):  # others make such objects for calls of their own
                note(frame.f_locals)
        except Exception as error:  # noqa: BLE001 - another torch; nothing is known of this call, and the script goes on
            note_problem("arguments of a call cannot be read", error)
        return plain(*args, **kwargs)

    def has(_: type, thing: object) -> bool:
        return isinstance(thing, plain)

    def is_above(_: type, below: type) -> bool:
        return issubclass(below, plain)

    # A class wherever the plain one would be one: in `isinstance`, in annotations, below other classes.
    names = {"__call__": make, "__instancecheck__": has, "__subclasscheck__": is_above}
    try:
        kind = type("_Noting", (type(plain),), names)
        noting = kind(name, (plain,), {"__module__": plain.__module__, "noted_by_allready": True})
    except TypeError:  # it wants no class below it
        return False
    hide_from_compiler((make, note, _whole, _next_number, _numels, _parts), note_problem)
    setattr(module, name, noting)
    return True


def _whole(module: "Any", group: "Any") -> "Any":
    world = getattr(module, "GroupMember", None)
    if group is None or group is getattr(world, "WORLD", None):
        return module._get_default_group()  # noqa: SLF001 - as the functions themselves do
    return group


def _next_number(group: "Any") -> int:
    """What the recorder will call the operation that is about to begin."""
    return int(group._get_sequence_number_for_group()) + 1  # noqa: SLF001 - torch has no other name for it


def _numels(tensors: "Sequence[Any]", number: int) -> "tuple[int, ...] | None":
    return tuple([int(t.numel()) for t in tensors]) if len(tensors) == number <= MAX_MEMBERS else None


def _parts(tensor: "Any", splits: "Sequence[int] | None", number: int) -> "tuple[int, ...] | None":
    """Elements for each member: `splits` are rows, and none of them means equal parts."""
    if number > MAX_MEMBERS:
        return None
    rows = int(tensor.shape[0]) if tensor.dim() else 1
    row = int(tensor.numel()) // rows if rows else 0
    if not splits:
        return (rows // number * row,) * number if number else None
    return tuple([int(n) * row for n in splits]) if len(splits) == number else None
