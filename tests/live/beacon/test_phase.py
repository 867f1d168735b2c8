"""What frames mean to the beacon, and that it agrees with the table for stacks that are read afterwards."""

import sys
import sysconfig
from types import CodeType, FrameType
from typing import Any, cast

import pytest

from allready.evidence.stacks.meaning import load, meaning_of
from allready.live.beacon import phase
from allready.live.beacon.phase import AROUND, BLOCKING, CALLS, Frames, Sight, around_of_user, phase_of
from allready.live.beacon.state import PHASES
from allready.model import Frame
from tests.cases import cases

SAME = {
    "ending": {"exit"},
    "joining": {"in_collective"},
    "communicating": {"in_collective"},
    "through": {"in_collective"},
    "loading": {"data_loading", "io"},
    "importing": {"import_or_compile"},
    "compiling": {"import_or_compile"},
    "backend": {"import_or_compile"},
    "saving": {"io"},
}
"""Phase -> kinds of the large table that say the same."""

PACKAGES = sysconfig.get_path("purelib")
C10D = "torch/distributed/distributed_c10d.py"


def samples() -> list[tuple[str, str, str]]:
    """(phase, path, function) of every row: one call for each beginning of a path and each function."""
    found = []
    for name, begins, functions in CALLS:
        for path in begins:
            whole = path if path.endswith(".py") else path + "x.py" if path.endswith("/") else path + ".py"
            found += [(name, whole, function.replace("*", "x")) for function in functions or ("anything",)]
    return found


@cases(("name", "path", "function"), samples())
def test_both_tables_agree(name: str, path: str, function: str) -> None:
    kind = meaning_of(
        Frame(file=path if path.startswith("<") else f"/x/site-packages/{path}", function=function, line=1)
    )
    assert kind in SAME[phase_of(path, function) or ""], (kind, phase_of(path, function), name)


def test_what_the_large_table_calls_waiting_for_ranks_importing_or_compiling_the_small_one_knows() -> None:
    """The other way round, for the paths that the large table names in full."""
    missing = []
    for row in load()["python"]:
        if row.kind not in {"in_collective", "import_or_compile"}:
            continue
        for pattern in row.files.split("|"):
            if any(c in pattern for c in "()?*+[") or not pattern.startswith("^"):
                continue
            path = pattern.strip("^$").replace("\\", "")
            functions = [n for name, begins, names in CALLS + BLOCKING for n in names if path.startswith(begins)]
            if not functions and phase_of(path if path.endswith(".py") else path + "x.py", "anything") is None:
                missing.append(path)
    assert missing == []


def test_every_phase_is_one_of_the_contract() -> None:
    assert {row[0] for row in CALLS + AROUND} - {"backend"} <= set(PHASES)


@cases(
    ("name", "wanted"),
    [
        ("evaluate", "evaluating"), ("validate", "evaluating"), ("run_validation", "evaluating"),
        ("eval_epoch", "evaluating"), ("_evaluate_model", "evaluating"), ("test", "evaluating"),
        ("validation_step", "evaluating"), ("train", None), ("validate_args", None), ("validate_config", None),
        ("eval_expression", None), ("should_evaluate", None), ("retrieval", None), ("test_step_time", None),
        ("save", "saving"), ("save_checkpoint", "saving"), ("_save_model", "saving"), ("dump_state", "saving"),
        ("save_figure", None), ("write_log", None), ("checkpoint", None), ("main", None), ("", None),
    ],
)  # fmt: skip
def test_functions_of_the_user_are_known_by_their_names(name: str, wanted: str | None) -> None:
    assert around_of_user(name) == wanted


class FakeFrame:
    """What is looked at of a frame."""

    def __init__(self, file: str, function: str, line: int, back: "FakeFrame | None", name: str = "x") -> None:
        source = f"def {function}(): pass" if function.isidentifier() else "pass"
        code = compile(source, file, "exec")
        if function.isidentifier():
            code = next(c for c in code.co_consts if isinstance(c, CodeType))
        self.f_code = code
        self.f_lineno, self.f_lasti, self.f_back, self.f_globals = line, 2, back, {"__name__": name}


def stack(*frames: str) -> FrameType:
    """Innermost first: `library/file.py:function`, or `/home/me/train.py:function`."""
    back: FakeFrame | None = None
    for words in reversed(frames):
        file, _, function = words.rpartition(":")
        whole = file if file.startswith(("/", "<")) else f"{PACKAGES}/{file}"
        back = FakeFrame(whole, function, 7, back)
    return cast("FrameType", back)


MAIN = ("/home/me/train.py:train", "/home/me/train.py:<module>")


@cases(
    ("frames", "wanted"),
    [
        ((), "computing"),
        (("torch/nn/modules/linear.py:forward",), "computing"),
        ((f"{C10D}:all_reduce", "torch/distributed/c10d_logger.py:wrapper"), "communicating"),
        ((f"{C10D}:_store_based_barrier", f"{C10D}:init_process_group"), "joining"),
        ((f"{C10D}:barrier", "torch/distributed/c10d_logger.py:wrapper", f"{C10D}:new_group"), "joining"),
        (("torch/distributed/rendezvous.py:_create_c10d_store", f"{C10D}:init_process_group"), "joining"),
        ((f"{C10D}:all_reduce", "torch/distributed/algorithms/join.py:_notify_procs",
          "torch/distributed/algorithms/join.py:__exit__"), "through"),
        ((f"{C10D}:all_reduce", "torch/distributed/algorithms/join.py:notify_join_context"), "communicating"),
        ((f"{C10D}:destroy_process_group",), "ending"),
        (("torch/utils/data/dataloader.py:_next_data", "torch/utils/data/dataloader.py:__next__"), "loading"),
        (("/home/me/data.py:__getitem__", "torch/utils/data/dataloader.py:__next__"), "loading"),
        (("torch/serialization.py:_save", "torch/serialization.py:save"), "saving"),
        (("torch/serialization.py:_load", "torch/serialization.py:load"), "loading"),
        ((f"{C10D}:gather_object", "torch/distributed/checkpoint/utils.py:gather_object",
          "torch/distributed/checkpoint/state_dict_saver.py:save"), "communicating"),
        (("/home/me/train.py:helper", "/home/me/train.py:evaluate"), "evaluating"),
        (("torch/nn/modules/linear.py:forward", "/home/me/train.py:evaluate"), "evaluating"),
        ((f"{C10D}:all_reduce", "/home/me/train.py:evaluate"), "communicating"),
        (("/home/me/train.py:helper", "transformers/trainer.py:evaluation_loop"), "evaluating"),
        (("torch/_dynamo/symbolic_convert.py:run", "torch/_dynamo/convert_frame.py:_compile"), "compiling"),
        (("torch/_inductor/codecache.py:__call__", "torch/_dynamo/eval_frame.py:_fn"), "computing"),
        (("torch/_inductor/compile_fx.py:run",), "computing"),
        (("triton/compiler/compiler.py:compile", "triton/runtime/jit.py:run"), "compiling"),
        (("triton/runtime/jit.py:run",), "computing"),
        (("jax/_src/compiler.py:backend_compile",), "compiling"),
        (("jax/_src/distributed.py:initialize",), "joining"),
        (("<frozen importlib._bootstrap>:_find_and_load",), "importing"),
        (("torch/utils/data/dataset.py:<module>", "<frozen importlib._bootstrap>:_call_with_frames_removed"),
         "importing"),
    ],
)  # fmt: skip
def test_the_innermost_meaning_counts(frames: tuple[str, ...], wanted: str) -> None:
    assert Frames("/nowhere/").classify(stack(*frames, *MAIN), has_groups=True).phase == wanted


def test_a_module_that_trains_while_it_is_imported_is_not_importing() -> None:
    frames = ("/home/me/train.py:train", "/home/me/train.py:<module>", "<frozen importlib._bootstrap>:_load_unlocked")
    look = Frames("/nowhere/").classify
    assert look(stack(*frames, "/home/me/run.py:<module>"), has_groups=True).phase == "computing"
    assert look(stack(*frames, "/home/me/run.py:<module>"), has_groups=False).phase == "importing"


def test_the_site_is_the_innermost_line_of_the_user() -> None:
    frames = Frames("/nowhere/")
    assert frames.classify(stack(f"{C10D}:all_reduce", *MAIN), has_groups=True).site == "/home/me/train.py:7 train"
    assert frames.classify(stack("torch/x.py:f"), has_groups=True).site == f"{PACKAGES}/torch/x.py:7 f"
    assert frames.classify(None, has_groups=True).site == ""
    for own in ("/nowhere/thread.py:halt", "allready/live/beacon/thread.py:halt"):  # after the script's last line
        assert frames.classify(stack(own), has_groups=True).site == ""


def test_a_job_that_is_an_installed_package_is_the_users_code() -> None:
    frames = Frames("/nowhere/")
    frames.user_root = f"{PACKAGES}/mytrainer"
    sight = frames.classify(stack("torch/x.py:f", "mytrainer/loop.py:evaluate"), has_groups=True)
    assert (sight.site, sight.phase) == (f"{PACKAGES}/mytrainer/loop.py:7 evaluate", "evaluating")


def test_libraries_used_from_their_sources_are_libraries() -> None:
    frame = FakeFrame(
        "/src/pytorch/torch/distributed/distributed_c10d.py", "all_reduce", 3, None, C10D[:-3].replace("/", ".")
    )
    assert Frames("/nowhere/").classify(cast("FrameType", frame), has_groups=True).phase == "communicating"


def test_the_stacks_number_tells_places_apart_and_is_the_same_in_every_process() -> None:
    first, second = Frames("/a/"), Frames("/b/")
    one, other = stack(*MAIN), stack(f"{C10D}:all_reduce", *MAIN)
    numbers = {f.classify(s, has_groups=True).stack_id for f in (first, second) for s in (one, other)}
    assert len(numbers) == 2


def test_what_is_known_of_functions_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phase, "_MAX_KNOWN", 10)
    frames = Frames("/nowhere/")
    for number in range(50):
        frames.classify(stack(f"/home/me/x{number}.py:f"), has_groups=True)
    assert len(frames._known) <= 10


def test_no_frame_is_held_after_a_look() -> None:
    frames = Frames("/nowhere/")
    frame = sys._getframe()
    before = sys.getrefcount(frame)
    sight = frames.classify(frame, has_groups=True)
    assert sys.getrefcount(frame) == before
    assert sight.site.endswith("test_no_frame_is_held_after_a_look")


LOADER = """
def _try_get_data(look):
    look()
def _get_data(look):
    for _ in range(2):
        _try_get_data(look)
        look()
class Iterator:
    def __next__(self):
        _get_data(self.look)
        return 1
"""
LOOP = """
def train(look, loader):
    loader.look = look
    for _ in range(2): loader.__next__()
def epoch(batches):
    for _ in range(2): next(batches)
def batches(look, loader):
    loader.look = look
    while True: yield loader.__next__()
"""


@pytest.mark.parametrize("caller", ["train", "epoch"])
def test_a_poll_inside_of_one_call_is_one_visit_and_the_next_call_from_the_same_line_another(caller: str) -> None:
    """Also where a generator, whose one frame serves all calls, is between the user's line and the call."""
    names: dict[str, dict[str, Any]] = {}
    for text, name, file in (
        (LOADER, "torch.utils.data.dataloader", f"{PACKAGES}/torch/utils/data/dataloader.py"),
        (LOOP, "accelerate.data_loader", f"{PACKAGES}/accelerate/data_loader.py"),
        (LOOP, "train", "/home/me/train.py"),
    ):
        names[name] = {"__name__": name}
        exec(compile(text, file, "exec"), names[name])
    frames = Frames("/nowhere/")
    seen: list[Sight] = []
    kept: list[FrameType] = []  # as long as they live, no other frame takes their place

    def look() -> None:
        frame: FrameType | None = sys._getframe(1)
        seen.append(frames.classify(frame, has_groups=True))
        while frame is not None:
            kept.append(frame)
            frame = frame.f_back

    loader = names["torch.utils.data.dataloader"]["Iterator"]()
    train = names["train"]
    if caller == "train":
        train["train"](look, loader)
    else:
        train["epoch"](names["accelerate.data_loader"]["batches"](look, loader))
    assert {s.phase for s in seen} == {"loading"}
    assert len({s.stack_id for s in seen}) == 2
    first, second = ({s.visit_id for s in some} for some in (seen[:4], seen[4:]))
    assert (len(first), len(second)) == (1, 1)
    assert first != second
