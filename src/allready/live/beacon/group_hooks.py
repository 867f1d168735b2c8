"""What torch's process groups tell before each operation (from torch 2.14).

A hook is registered where a group comes into being, by the thread that makes it: torch wants that at no other moment,
for every collective walks through the hooks.  So the dictionary in which torch.distributed puts every new
group is exchanged for one that tells; groups that were there before get their hook from the main thread, between two of
its calls.  A hook gets the root of a call by its number in the group, and not how an all_to_all splits: that stands
in the frame of torch's function, which is the one below the hook.
"""

import sys
import weakref

from allready.live.beacon.compiler import hide_from_compiler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    NoteProblem = Callable[[str, Exception], None]
    Note = Callable[[str, int, str, int | None, Mapping[str, Any]], None]
    """Of a call: group, number, operation, root (a global rank), arguments of an all_to_all."""

HOOK_ID = 0x616C6C7265616479
"""After torch's own hooks, which are called in the order of these numbers."""
_WHAT = "arguments of a call cannot be read"
_ROOTED = {"BROADCAST": "broadcast", "REDUCE": "reduce", "SCATTER": "scatter", "GATHER": "gather"}
_SPLIT = {"ALLTOALL_BASE", "ALLTOALL"}


class GroupHooks:
    """A hook on every process group."""

    def __init__(self, module: "Any", note: "Note", note_problem: "NoteProblem") -> None:
        self._module, self._note, self._note_problem = module, note, note_problem
        self._before: dict[Any, Any] = {}
        self._callback: Any = None
        self._kinds: dict[Any, str] = {}

    def attach(self) -> bool:
        """Hook the groups that are there and that will come; False where torch has no such hooks."""
        kind = getattr(self._module, "ProcessGroup", None)
        before = getattr(self._module, "_pg_map", None)
        if not hasattr(kind, "register_pre_hook") or type(before) is not dict:
            return False
        self._kinds = _kinds(sys.modules.get("torch._C._distributed_c10d"))
        self._before = before
        groups = _Groups(before)
        groups.added = self._hook
        groups.before = before
        self._module._pg_map = groups  # noqa: SLF001
        self.keep()
        hide_from_compiler((_Groups.__setitem__, self._hook, _Hook.__call__, _Hook._number), self._note_problem)  # noqa: SLF001
        if groups:
            self._hook_in_main_thread(groups)
        return True

    def keep(self) -> None:
        """A group that was put into the old dictionary while it was exchanged."""
        groups = getattr(self._module, "_pg_map", None)
        if isinstance(groups, _Groups) and len(groups) != len(self._before):
            for group, value in list(self._before.items()):
                if group not in groups:
                    groups[group] = value

    def _hook(self, group: "Any") -> None:
        try:
            if self._kinds:
                group.register_pre_hook(
                    HOOK_ID, _Hook(self._module, group, self._kinds, self._note, self._note_problem)
                )
        except Exception as error:  # noqa: BLE001 - a group of another make; the script goes on
            self._note_problem("a process group takes no hook", error)

    def _hook_in_main_thread(self, groups: "Mapping[Any, Any]") -> None:
        def hook_all(_: object) -> int:
            for group in list(groups):
                self._hook(group)
            return 0

        try:
            import ctypes

            self._callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(hook_all)
            ctypes.pythonapi.Py_AddPendingCall(self._callback, None)
        except Exception as error:  # noqa: BLE001 - an interpreter without it: nothing is noted of these groups
            self._note_problem("no pending call", error)


class _Groups(dict):  # type: ignore[type-arg]
    """The dictionary of all process groups; what holds the previous one sees the same groups in it."""

    added: "Callable[[Any], None]"
    before: "dict[Any, Any]"

    def __setitem__(self, group: "Any", value: "Any") -> None:
        is_new = group not in self
        dict.__setitem__(self, group, value)
        self.before[group] = value
        if is_new:
            self.added(group)

    def __delitem__(self, group: "Any") -> None:
        dict.__delitem__(self, group)
        self.before.pop(group, None)

    def pop(self, group: "Any", *default: "Any") -> "Any":
        self.before.pop(group, None)
        return dict.pop(self, group, *default)

    def clear(self) -> None:
        dict.clear(self)
        self.before.clear()


class _Hook:
    """Called before each operation of one group, by the thread that makes it; whatever fails here is passed over.

    It holds no group: the group holds it.
    """

    def __init__(
        self, module: "Any", group: "Any", kinds: "dict[Any, str]", note: "Note", note_problem: "NoteProblem"
    ) -> None:
        self._module, self._kinds, self._note, self._note_problem = module, kinds, note, note_problem
        self._group = weakref.ref(group)
        self._name = str(group.group_name)
        self._is_recorded_by_hook = group in (getattr(module._world, "pg_flight_recorder_hooks", None) or ())  # noqa: SLF001
        self._ranks: tuple[int, ...] = ()

    def __call__(self, args: "Any") -> None:
        try:
            operation = self._kinds.get(args.name)
            if operation is None:
                return
            group = self._group()
            number = self._number(group, args)
            if group is None or number is None:
                return
            if operation == "all_to_all":
                frame = sys._getframe(1)  # noqa: SLF001 - whose arguments are wanted
                if frame.f_globals is vars(self._module):  # else made by others: their splits are not known
                    self._note(self._name, number, operation, None, {"group_size": group.size(), **frame.f_locals})
                return
            root = int(args.root)
            if not self._ranks:
                ranks = self._module._world.pg_group_ranks[group]  # noqa: SLF001
                self._ranks = tuple(sorted(ranks, key=ranks.__getitem__))
            if 0 <= root < len(self._ranks):
                self._note(self._name, number, operation, self._ranks[root], {})
        except Exception as error:  # noqa: BLE001 - another torch; nothing is known of this call, and the script goes on
            self._note_problem(_WHAT, error)

    def _number(self, group: "Any", args: "Any") -> int | None:
        """What the recorder will call the operation that is about to begin: a hook of torch uses the group's count of
        operations, a backend its own of collectives."""
        if not self._is_recorded_by_hook:
            return None if group is None else int(group._get_sequence_number_for_group()) + 1  # noqa: SLF001
        tensors = args.input_tensors or args.output_tensors
        if tensors and tensors[0].is_cpu and _serves_cpu_itself(self._module, group):
            return None
        return int(args.op_id)


def _serves_cpu_itself(module: "Any", group: "Any") -> bool:
    """Whether Gloo serves the CPU's tensors of a group with another backend for the GPU's: it counts by itself."""
    return "cpu:gloo" in str(module._world.pg_backend_config.get(group, ""))  # noqa: SLF001


def _kinds(bindings: "Any") -> "dict[Any, str]":
    """torch's names of the operations of which something is noted -> ours."""
    names = getattr(bindings, "HookOpName", None)
    found = {getattr(names, name, None): ours for name, ours in _ROOTED.items()}
    found |= {getattr(names, name, None): "all_to_all" for name in _SPLIT}
    found.pop(None, None)
    return found
