"""What the main thread is about, from its frames.

A table of what a call means, kept small because every rank loads it; `evidence/stacks/meanings.toml` is the large one
for stacks read afterwards, and a test holds the two together.  Frames are read from the innermost outwards.
"""

import os
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from types import CodeType, FrameType
    from typing import Any

_C10D = "torch/distributed/distributed_c10d.py"
_ANY: "Collection[str]" = ()
_EVERY_STEP = ("run", "__call__")
"""Functions of compiling modules that every compiled step passes through, in the torch versions that have them."""

_OWN = "allready/"
"""In place of a path: the beacon's own code, in which a script that has ended stands."""
_OUTER: "Collection[str]" = ("joining", "through")
"""What a collective inside of such a call is for: the barrier of `init_process_group`, the answers of a rank whose data
is through to the operations of the others (`Join`)."""

# (phase, path below site-packages or the standard library begins so, functions; none means all, "x*" a beginning)
CALLS: "tuple[tuple[str, tuple[str, ...], Collection[str]], ...]" = (
    ("ending", (_C10D,), ("destroy_process_group", "_abort_process_group", "_shutdown_backend")),
    ("ending", ("threading.py",), ("_shutdown",)),
    ("ending", ("multiprocessing/util.py",), ("_exit_function",)),
    ("ending", ("concurrent/futures/thread.py", "concurrent/futures/process.py"), ("_python_exit",)),
    ("ending", ("jax/_src/distributed.py",), ("shutdown",)),
    ("joining", (_C10D,), ("init_process_group", "new_group", "_new_process_group_helper", "_new_group_with_tag",
     "new_subgroups", "new_subgroups_by_enumeration", "split_group", "_store_based_barrier")),
    ("joining", ("torch/distributed/rendezvous.py", "torch/distributed/elastic/rendezvous/"), _ANY),
    ("joining", ("torch/distributed/elastic/utils/store.py",), _ANY),
    ("joining", ("torch/distributed/device_mesh.py",), ("_init_process_groups", "_get_or_create_default_group",
     "_setup_world_group_and_device")),
    ("joining", ("jax/_src/distributed.py", "jax/_src/clusters/", "allready/launch/jax_rendezvous.py"), _ANY),
    ("through", ("torch/distributed/algorithms/join.py",), ("__exit__",)),
    ("communicating", (_C10D, "torch/distributed/_functional_collectives.py", "torch/distributed/c10d_logger.py",
     "torch/distributed/nn/functional", "torch/distributed/algorithms/join"), _ANY),
    ("communicating", ("torch/distributed/utils.py", "torch/distributed/collective_utils.py",
     "torch/distributed/checkpoint/utils.py"), ("_sync_*", "_verify_param_shape*", "all_gather*", "all_reduce*",
     "reduce_scatter", "broadcast*", "barrier", "scatter*", "gather*")),
    ("communicating", ("torch/distributed/fsdp/", "torch/nn/parallel/distributed.py"), ("_sync_*", "_verify_*",
     "_broadcast*", "_distributed_broadcast_coalesced")),
    ("communicating", ("torch/distributed/pipelining/",), ("_wait*", "wait*", "_preconnect*")),
    ("communicating", ("accelerate/utils/operations.py", "accelerate/state.py"), ("gather*", "broadcast*", "reduce",
     "wait_for_everyone", "_gpu_gather*", "_gpu_broadcast*", "pad_across_processes")),
    ("communicating", ("deepspeed/comm/", "horovod/", "jax/experimental/multihost_utils.py",
     "jax/_src/multihost_utils.py"), _ANY),
    ("communicating", ("lightning/fabric/strategies", "lightning/pytorch/strategies", "lightning_fabric/strategies",
     "pytorch_lightning/strategies"), ("barrier", "broadcast", "all_gather", "all_reduce", "reduce",
     "reduce_boolean_decision", "_sync_ddp*")),
    ("loading", ("torch/utils/data/", "torchdata/", "webdataset/", "streaming/base/", "nvidia/dali/",
     "datasets/iterable_dataset.py", "datasets/arrow_reader.py"), _ANY),
    ("loading", ("accelerate/data_loader.py",), ("__iter__", "__next__", "_fetch_batches")),
    ("importing", ("<frozen importlib", "importlib/", "<frozen zipimport>", "zipimport.py"), _ANY),
    ("compiling", ("torch/_dynamo/convert_frame", "torch/_dynamo/symbolic_convert", "torch/_dynamo/output_graph",
     "torch/_dynamo/bytecode_transformation", "torch/_dynamo/guards", "torch/_dynamo/variables/",
     "torch/_inductor/graph", "torch/_inductor/scheduler", "torch/_inductor/lowering", "torch/_inductor/codegen/",
     "torch/_inductor/async_compile", "torch/_inductor/select_algorithm", "torch/_inductor/autotune_process",
     "torch/_inductor/compile_worker", "torch/_inductor/cpp_builder", "torch/_inductor/compile_fx",
     "torch/_inductor/codecache", "torch/_inductor/pattern_matcher", "torch/_functorch/_aot_autograd/graph_capture",
     "torch/_functorch/_aot_autograd/graph_compile", "torch/_functorch/_aot_autograd/jit_compile",
     "torch/_functorch/_aot_autograd/dispatch_and_compile", "torch/_functorch/_aot_autograd/collect_metadata",
     "torch/export/", "torch/fx/experimental/", "torch/fx/passes/", "torch/utils/cpp_extension",
     "torch/utils/file_baton", "triton/compiler/", "triton/backends/", "triton/runtime/build", "triton/runtime/cache",
     "deepspeed/ops/op_builder/", "numba/core/compiler"), _ANY),
    ("backend", ("jax/_src/xla_bridge.py",), _ANY),  # joining in a job of several processes
    ("compiling", ("triton/runtime/jit.py",), ("_do_compile", "compile", "warmup")),
    ("compiling", ("jax/_src/compiler.py", "jax/_src/compilation_cache", "jax/_src/interpreters/mlir.py",
     "jax/_src/interpreters/partial_eval.py"), _ANY),
    ("loading", ("torch/serialization.py", "torch/distributed/checkpoint/", "safetensors/", "orbax/"), ("load*",
     "_load*", "read*", "_read*", "restore*", "_restore*", "deserialize*", "find_class", "persistent_load")),
    ("loading", ("numpy/lib/npyio.py", "numpy/lib/_npyio_impl.py", "numpy/lib/format.py", "numpy/lib/_format_impl.py"),
     ("load*", "read_*", "fromfile", "__getitem__")),
    ("saving", ("numpy/lib/npyio.py", "numpy/lib/_npyio_impl.py", "numpy/lib/format.py", "numpy/lib/_format_impl.py"),
     ("save*", "_save*", "write_*")),
    ("saving", ("torch/serialization.py", "torch/distributed/checkpoint/", "safetensors/", "orbax/"), _ANY),
    ("saving", ("transformers/", "diffusers/"), ("save_pretrained", "_save_checkpoint", "save_model", "_save")),
)  # fmt: skip
"""First match counts."""

AROUND: "tuple[tuple[str, tuple[str, ...], Collection[str]], ...]" = (
    ("evaluating", ("transformers/trainer",), ("evaluate", "evaluation_loop", "prediction_loop", "prediction_step",
     "predict")),
    ("evaluating", ("lightning/pytorch/loops/evaluation_loop.py", "lightning/pytorch/loops/prediction_loop.py",
     "pytorch_lightning/loops/evaluation_loop.py", "pytorch_lightning/loops/prediction_loop.py", "lm_eval/"), _ANY),
    ("saving", ("lightning/", "pytorch_lightning/", "accelerate/", "deepspeed/"), ("save_checkpoint",
     "_save_checkpoint", "save_state")),
)  # fmt: skip
"""What everything inside of a call belongs to, as long as nothing in it has a meaning of its own."""

BLOCKING: "tuple[tuple[str, tuple[str, ...], Collection[str]], ...]" = (
    ("torch", ("torch/autograd/graph.py",), ("_engine_run_backward",)),
    ("torch", ("torch/autograd/__init__.py",), ("backward", "grad")),
    ("gpu", ("torch/cuda/", "torch/xpu/", "torch/accelerator/"), ("synchronize", "wait_stream", "wait")),
    ("jax", ("jax/_src/array.py", "jax/_src/api.py", "jax/_src/core.py", "jax/_src/dispatch.py"), ("block_until_ready",
     "_value", "__array__", "item", "device_get", "_device_get", "__float__", "__int__", "wait_until_finished")),
    ("jax", ("jax/_src/interpreters/pxla.py",), ("__call__", "call", "_handle_token_bufs")),
)  # fmt: skip
"""Calls into C in which a thread may compute or wait for other ranks; frames alone do not show which."""

_EVALUATING = frozenset({"eval", "evaluate", "evaluation", "evaluating", "validate", "validation", "validating"})
_ABOUT_SETTINGS = frozenset({
    "arg", "args", "arguments", "cfg", "config", "env", "every", "expr", "expression", "expressions", "format", "get",
    "has", "input", "inputs", "interval", "is", "literal", "mode", "name", "names", "option", "options", "param",
    "params", "path", "paths", "schema", "set", "setting", "settings", "shape", "shapes", "should", "size", "sizes",
    "state", "string", "type", "types", "value", "values",
})  # fmt: skip
_SAVED = frozenset({"checkpoint", "checkpoints", "ckpt", "model", "weights", "snapshot", "state", "states", "params"})
_OPTIMIZED = 0x1  # inspect.CO_OPTIMIZED: set for functions, not for modules and class bodies
_GENERATOR = 0x20 | 0x200  # inspect.CO_GENERATOR, CO_ASYNC_GENERATOR: one frame for many calls
_MAX_FRAMES = 400
_MAX_KNOWN = 8192
_MASK = (1 << 62) - 1


class Sight:
    """One sample.  `blocking`: see BLOCKING, "" when it is none.  `call`: the innermost code,
    instruction and module's names, if it is the user's code.  `visit_id`: equal as long as one call of a library has
    not returned, whatever goes round in it: the call that the phase is about, or else the one that the user made."""

    __slots__ = ("blocking", "call", "phase", "site", "stack_id", "visit_id")

    def __init__(
        self,
        phase: str,
        site: str,
        stack_id: int,
        visit_id: int,
        blocking: str,
        call: "tuple[CodeType, int, dict[str, Any]] | None",
    ) -> None:
        self.phase, self.site, self.stack_id, self.visit_id = phase, site, stack_id, visit_id
        self.blocking, self.call = blocking, call


class _Code:
    """What is known of one function."""

    __slots__ = ("around", "blocking", "code", "is_function", "is_generator", "is_own", "is_user", "number", "phase")

    def __init__(self, code: "CodeType", path: str | None) -> None:
        self.code = code  # kept, so that its identity stays its own
        name = code.co_name
        self.is_function = bool(code.co_flags & _OPTIMIZED)
        self.is_generator = bool(code.co_flags & _GENERATOR)
        self.is_user = path is None
        self.is_own = path is not None and (path == _OWN or path.startswith("allready/live/"))
        self.number = zlib.crc32(f"{code.co_filename}\0{name}".encode("utf-8", "replace"))
        self.phase: str | None = None
        self.around: str | None = None
        self.blocking = ""
        if path is None:
            self.around = around_of_user(name) if self.is_function else None
        elif self.is_function or path.startswith("<frozen"):
            self.phase = phase_of(path, name)
            self.around = _first(AROUND, path, name)
            self.blocking = _first(BLOCKING, path, name) or ""


class Frames:
    """Classifies stacks of one process; remembers what functions mean."""

    def __init__(self, own_folder: str) -> None:
        self._known: dict[int, _Code] = {}
        self._own = own_folder
        self._standard = os.path.dirname(os.__file__) + "/"  # noqa: PTH120
        self.user_root: str | None = None
        """A folder below site-packages whose code is the user's: that of the job's own package."""

    def classify(self, frame: "FrameType | None", *, has_groups: bool) -> Sight:
        """Judge one stack by its innermost frame; holds no frame when it returns."""
        number = visit = depth = 0
        found: str | None = None
        around: str | None = None
        user: tuple[_Code, int] | None = None
        first: tuple[_Code, int] | None = None
        in_user_function = False
        call: tuple[CodeType, int, dict[str, Any]] | None = None
        known = self._known
        while frame is not None and depth < _MAX_FRAMES:
            code = frame.f_code
            entry = known.get(id(code))
            if entry is None:
                entry = self._learn(code, frame)
            place = entry.number ^ (frame.f_lasti << 32)
            number = ((number * 1000003) ^ place) & _MASK
            visit = ((visit * 1000003) ^ place) & _MASK
            if first is None:
                first = (entry, frame.f_lineno)
                call = (code, frame.f_lasti, frame.f_globals) if entry.is_user else None
            if entry.is_user:
                if user is None:
                    user = (entry, frame.f_lineno)
                in_user_function = in_user_function or entry.is_function
                around = around or entry.around
            elif found is None:
                # A module that trains while it is imported is not importing any more.
                if not (entry.phase == "importing" and has_groups and in_user_function):
                    found = entry.phase
                around = around or entry.around
            elif found == "communicating" and entry.phase in _OUTER:
                found = entry.phase
            is_visited = user is None if found is None else entry.phase == found
            if is_visited and not entry.is_user and not entry.is_generator:
                visit = id(frame) & _MASK  # what it calls comes and goes
            frame = frame.f_back
            depth += 1
        where = user or (None if first is None or first[0].is_own else first)
        site = "" if where is None else f"{where[0].code.co_filename}:{where[1]} {where[0].code.co_name}"
        blocking = first[0].blocking if first is not None else ""
        return Sight(found or around or "computing", site, number, visit, blocking, call)

    def _learn(self, code: "CodeType", frame: "FrameType") -> _Code:
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        entry = self._known[id(code)] = _Code(code, self._library_path(code.co_filename, frame))
        return entry

    def _library_path(self, file: str, frame: "FrameType") -> str | None:
        """`torch/cuda/__init__.py`; None for the user's own code."""
        if self.user_root is not None and file.startswith(self.user_root):
            return None
        for folder in ("site-packages/", "dist-packages/"):
            _, found, below = file.rpartition(folder)
            if found:
                return below
        if file.startswith(self._standard):
            return file[len(self._standard) :]
        if file.startswith("<") or "torchinductor_" in file or "/triton_cache/" in file or "/.triton/" in file:
            return file
        if file.startswith(self._own):
            return _OWN
        name = frame.f_globals.get("__name__")
        if isinstance(name, str) and name.partition(".")[0] in _ELSEWHERE and "." in name:
            return name.replace(".", "/") + ".py"  # a library that is used from its sources
        return None


_ELSEWHERE = frozenset({
    "torch", "jax", "triton", "transformers", "accelerate", "deepspeed", "lightning", "pytorch_lightning", "horovod",
    "lightning_fabric", "datasets", "torchdata", "webdataset", "orbax", "safetensors", "allready",
})  # fmt: skip


def phase_of(path: str, function: str) -> str | None:
    """What a call of a library by itself means; `path` is below site-packages or the standard library."""
    if function in _EVERY_STEP and path.startswith(("torch/_inductor/compile_fx", "torch/_inductor/codecache")):
        return None
    return _first(CALLS, path, function)


def around_of_user(function: str) -> str | None:
    """What a function of the user is for, by its name: `evaluate`, `run_validation`, `save_checkpoint`; else None."""
    words = function.lower().strip("_").split("_")
    if function == "test":
        return "evaluating"
    if not _EVALUATING.isdisjoint(words):
        return "evaluating" if _ABOUT_SETTINGS.isdisjoint(words) else None
    if "save" in words or "dump" in words or "write" in words:
        return "saving" if words == ["save"] or not _SAVED.isdisjoint(words) else None
    return None


def _first(rows: "tuple[tuple[str, tuple[str, ...], Collection[str]], ...]", path: str, function: str) -> str | None:
    for phase, begins, names in rows:
        if _matches(begins, names, path, function):
            return phase
    return None


def _matches(begins: tuple[str, ...], names: "Collection[str]", path: str, function: str) -> bool:
    if not path.startswith(begins):
        return False
    return not names or any(
        function.startswith(name[:-1]) if name.endswith("*") else function == name for name in names
    )
