"""What a stack says its process is doing, and which frame says so."""

from pathlib import Path

from allready.evidence.stacks.libraries import is_users, package_path
from allready.evidence.stacks.meaning import describe, frames_text, load
from allready.evidence.stacks.read import read_stacks
from allready.model import Frame, Origin, ProcessStack, ThreadStack
from tests.cases import cases

RECORDED = Path(__file__).parents[2] / "fixtures" / "small_readers" / "stacks"


def stack(frames: str, state: str = "idle", kernel: str = "") -> ProcessStack:
    """Frames as `function file:line`, innermost first."""
    threads = [ThreadStack(name="MainThread", frames=_frames(frames), state=state, is_main=True)]
    if kernel:
        threads.append(ThreadStack(name="kernel", frames=_frames(kernel)))
    return ProcessStack(origin=Origin(source="x"), role="rank", threads=tuple(threads))


def _frames(text: str) -> tuple[Frame, ...]:
    found = []
    for line in text.strip().splitlines():
        function, _, where = line.strip().partition(" ")
        file, _, number = where.partition(":")
        found.append(Frame(function=function, file=file, line=int(number) if number else None))
    return tuple(found)


def recorded(name: str) -> dict[int, str]:
    stacks = read_stacks((RECORDED / f"{name}.txt").read_bytes(), name).stacks
    return {s.pid or 0: describe(s).kind for s in stacks if s.role == "rank"}


@cases(
    ("name", "waiting", "idle"),
    [
        ("sigstop", {1191, 1192, 1194}, {1193}),
        ("v2_lock", {972, 973, 974}, {975}),
        ("dataloader_stall", {1624, 1626, 1627}, {1625}),
        ("eval_branch", {1809, 1810, 1811, 1812}, set()),
        ("link_down", {2497, 2498, 2499, 2500}, set()),
        ("sigkill", {1278, 1280}, set()),
        ("exception", {1365, 1367}, set()),
    ],
)
def test_recorded_ranks_wait_for_the_gpu_but_the_culprit_is_in_its_own_code(
    name: str, waiting: set[int], idle: set[int]
) -> None:
    kinds = recorded(name)
    assert {p for p, kind in kinds.items() if kind == "gpu_wait"} == waiting
    assert {p for p, kind in kinds.items() if kind == "user_idle"} == idle


def test_the_recorded_culprit_is_shown_with_its_line() -> None:
    stacks = read_stacks((RECORDED / "sigstop.txt").read_bytes(), "x").stacks
    activity = describe(next(s for s in stacks if s.pid == 1193))
    assert (str(activity.site), activity.certain) == ("victim.py:20 <module>", False)
    victim = describe(next(s for s in stacks if s.pid == 1191))
    assert str(victim.site) == "torch/cuda/__init__.py:1162 synchronize"


CASES = """
in_collective
    all_reduce torch/distributed/distributed_c10d.py:2810
    wrapper torch/distributed/c10d_logger.py:83
    <module> train.py:30

in_collective
    synchronize torch/cuda/__init__.py:1
    barrier torch/distributed/distributed_c10d.py:4000
    f train.py:1

in_collective
    c10d::ProcessGroupGloo::AsyncWork::wait libtorch_cpu.so
    f train.py:1

in_collective
    sync_global_devices jax/experimental/multihost_utils.py:90
    f train.py:1

in_collective
    _store_based_barrier torch/distributed/distributed_c10d.py:900
    f train.py:1

gpu_wait
    __poll libc.so.6
    0x7f libcuda.so.535.104
    cudaStreamSynchronize libcudart.so.12
    at::native::_local_scalar_dense_cuda libtorch_cuda.so
    THPVariable_item libtorch_python.so
    f train.py:7

gpu_wait
    block_until_ready jax/_src/array.py:600
    f train.py:1

lock
    wait threading.py:359
    join threading.py:1149
    f train.py:1

lock
    __futex_abstimed_wait_common libc.so.6
    PyThread_acquire_lock_timed python3.12
    lock_PyThread_acquire_lock python3.12
    f train.py:1

sleep
    clock_nanosleep libc.so.6
    pysleep python3.11
    f train.py:1

io
    _save torch/serialization.py:900
    save torch/serialization.py:600
    f train.py:1

io
    __libc_read libc.so.6
    f train.py:1

io
    fsync libc.so.6
    save_checkpoint train.py:1

io
    write_data torch/distributed/checkpoint/filesystem.py:500
    f train.py:1

in_collective
    all_gather_object torch/distributed/distributed_c10d.py:1
    save torch/distributed/checkpoint/state_dict_saver.py:1
    f train.py:1

data_loading
    wait threading.py:359
    get queue.py:180
    _try_get_data torch/utils/data/dataloader.py:1131
    f train.py:1

data_loading
    _recv multiprocessing/connection.py:395
    recv_bytes multiprocessing/connection.py:216
    f train.py:1

data_loading
    get queue.py:171
    prefetch my/loader.py:9

data_loading
    __getitem__ my/dataset.py:9
    fetch torch/utils/data/_utils/fetch.py:52
    f train.py:1

in_collective
    broadcast torch/distributed/distributed_c10d.py:1
    _fetch_batches accelerate/data_loader.py:700
    f train.py:1

subprocess_wait
    _try_wait subprocess.py:2011
    wait subprocess.py:1264
    f train.py:1

network_wait
    recv_into socket.py:706
    readinto http/client.py:500
    send requests/adapters.py:667
    f train.py:1

network_wait
    __recv libc.so.6
    f train.py:1

import_or_compile
    get_data <frozen_importlib:1
    _find_and_load <frozen importlib._bootstrap>:1360
    <module> torch/__init__.py:1
    <module> train.py:1

import_or_compile
    compile_fx_inner torch/_inductor/compile_fx.py:700
    compile_inner torch/_dynamo/convert_frame.py:600
    f train.py:1

import_or_compile
    backend_compile jax/_src/compiler.py:300
    f train.py:1

tokenize
    encode_batch tokenizers/implementations/base_tokenizer.py:200
    f train.py:1

tokenize
    clean my/text.py:5
    map datasets/arrow_dataset.py:3000
    <module> train.py:1

exit
    destroy_process_group torch/distributed/distributed_c10d.py:2100
    f train.py:1

exit
    join threading.py:1149
    _shutdown threading.py:1594

exit
    cleanup train.py:3
    _exit_function multiprocessing/util.py:360

user_idle
    <module> train.py:20

user_idle
    _engine_run_backward torch/autograd/graph.py:825
    backward torch/_tensor.py:581
    f train.py:1

unreadable
    __futex_abstimed_wait_common libc.so.6
    pthread_cond_wait libc.so.6
    main python3.12
"""


@cases("case", CASES.strip().split("\n\n"))
def test_an_idle_main_thread_says_what_it_waits_in(case: str) -> None:
    kind, _, frames = case.partition("\n")
    assert describe(stack(frames)).kind == kind


def test_a_main_thread_without_frames_is_unreadable() -> None:
    assert describe(stack("")).kind == "unreadable"


def test_a_compiled_model_at_work_is_not_compiling() -> None:
    frames = """call /tmp/torchinductor_u/ab/cab.py:300
        __call__ torch/_inductor/output_code.py:460
        runtime_wrapper torch/_functorch/_aot_autograd/runtime_wrappers.py:300
        _fn torch/_dynamo/eval_frame.py:655
        train train.py:50"""
    activity = describe(stack(frames, "active"))
    assert (activity.kind, str(activity.site)) == ("cpu_work", "train.py:50 train")


def test_a_file_of_collectives_that_is_imported_makes_none() -> None:
    """The compiler imports it late: a rank that compiles does not wait for others."""
    importing = """register_autograd /v/site-packages/torch/library.py:1423
        <module> /v/site-packages/torch/distributed/_functional_collectives.py:685
        _load_unlocked <frozen importlib._bootstrap>:690"""
    assert describe(stack(importing + "\ntrain /home/me/train.py:9")).kind == "import_or_compile"
    made = f"wait_tensor /v/site-packages/torch/distributed/_functional_collectives.py:130\n{importing}"
    assert describe(stack(made + "\ntrain /home/me/train.py:9")).kind == "in_collective"


def test_a_script_that_was_imported_is_not_importing_for_ever() -> None:
    frames = "step pkg/loop.py:3\n<module> pkg/main.py:9\n_call_with_frames_removed <frozen importlib._bootstrap>:488"
    assert describe(stack(frames, "active")).kind == "cpu_work"


def test_running_user_code_may_be_a_built_in_that_waits() -> None:
    activity = describe(stack("f train.py:7", "active"))
    assert (activity.kind, activity.certain) == ("cpu_work", False)
    assert describe(stack("f train.py:7", "gil")).certain


def test_a_dump_without_states_does_not_tell_work_from_waiting() -> None:
    assert describe(stack("f /home/u/train.py:7", "")).kind == "user_code"


def test_the_kernel_says_that_a_process_is_stopped_or_waits_for_a_file_system() -> None:
    stopped = describe(stack("<module> victim.py:20", kernel="do_signal_stop kernel\nget_signal kernel"))
    assert (stopped.kind, str(stopped.site)) == ("stopped", "victim.py:20 <module>")
    assert describe(stack("f train.py:1", kernel="nfs_wait_bit_killable [nfs]")).kind == "io"
    assert describe(stack("f train.py:1", kernel="futex_wait_queue kernel")).kind == "user_idle"
    traced = "ptrace_stop kernel\nptrace_do_notify kernel\nget_signal kernel"
    assert describe(stack("f train.py:1", kernel=traced)).kind == "user_idle"


def test_only_the_main_thread_is_asked() -> None:
    worker = ThreadStack(name="w", frames=_frames("barrier torch/distributed/distributed_c10d.py:1"), state="idle")
    main = ThreadStack(name="MainThread", frames=_frames("f train.py:1"), state="idle", is_main=True)
    both = ProcessStack(origin=Origin(source="x"), role="rank", threads=(worker, main))
    assert describe(both).kind == "user_idle"
    assert describe(ProcessStack(origin=Origin(source="x"), role="rank", threads=(worker, worker))).kind == "unreadable"


def test_a_process_that_could_not_be_read_is_unreadable() -> None:
    assert (
        describe(ProcessStack(origin=Origin(source="x"), role="rank", error="Permission Denied")).kind == "unreadable"
    )


def test_py_spy_fails_in_its_own_way_at_a_process_that_was_stopped() -> None:
    text = """Process 4972: python3 train.py
Python v3.11.7 (/usr/bin/python3.11)

Error: Failed to get stack traces

Caused by:
    0: Failed to suspend process
    1: unexpected waitpid result PtraceEvent(Pid(4972), SIGSTOP, 128) to 4972
"""
    (stopped,) = read_stacks(text.encode(), "x").stacks
    assert (describe(stopped).kind, stopped.role, stopped.pid) == ("stopped", "rank", 4972)


def test_the_call_that_python_shows_is_preferred_to_the_code_inside_of_it() -> None:
    frames = "gloo::transport::tcp::UnboundBuffer::waitRecv libtorch_cpu.so\n"
    frames += "all_reduce torch/distributed/distributed_c10d.py:9\nf t.py:1"
    assert str(describe(stack(frames)).site) == "torch/distributed/distributed_c10d.py:9 all_reduce"


@cases(
    ("file", "users"),
    [
        ("train.py", True), ("my/model.py", True), ("/home/u/x.py", True), ("<stdin>", True),
        ("queue_server/app.py", True),
        ("threading.py", False), ("torch/nn/modules/module.py", False), ("<frozen runpy>", False), ("libc.so.6", False),
        ("/usr/lib/python3.11/threading.py", False), ("/opt/v/lib/python3.11/site-packages/mylib/x.py", False),
        ("multiprocessing/queues.py", False), ("ceval.c", False), ("", False),
    ],
)  # fmt: skip
def test_whose_file_it_is(file: str, users: bool) -> None:
    assert is_users(Frame(function="f", file=file)) is users


def test_paths_are_cut_to_the_package() -> None:
    assert package_path("/opt/venv/lib/python3.11/site-packages/torch/cuda/__init__.py") == "torch/cuda/__init__.py"
    assert package_path("/usr/lib/python3.11/threading.py") == "threading.py"
    assert package_path("train.py") == "train.py"


def test_full_paths_mean_the_same_as_short_ones() -> None:
    frames = "wait /usr/lib/python3.11/threading.py:327\nget /usr/lib/python3.11/queue.py:171\n"
    frames += "_try_get_data /v/lib/python3.11/site-packages/torch/utils/data/dataloader.py:1133\nf /home/u/train.py:3"
    assert describe(stack(frames, "")).kind == "data_loading"


def test_every_row_of_the_table_has_a_kind_that_is_known() -> None:
    from allready.evidence.stacks.meaning import _STRENGTH

    rows = [row for table in load().values() for row in table]
    assert {row.kind for row in rows} == set(_STRENGTH)


def test_the_frames_that_are_shown_are_those_by_which_it_is_judged_and_the_users() -> None:
    frames = _frames(
        """select selectors.py:415
        wait multiprocessing/connection.py:1136
        poll multiprocessing/connection.py:257
        _poll multiprocessing/connection.py:300
        get multiprocessing/queues.py:113
        _try_get_data torch/utils/data/dataloader.py:1310
        __next__ torch/utils/data/dataloader.py:733
        train job.py:111
        main job.py:200"""
    )
    shown = frames_text(frames)
    assert shown.startswith("select (selectors.py:415) < wait (multiprocessing/connection.py:1136) < … < ")
    assert shown.endswith(" < … < train (job.py:111)")
    assert "dataloader.py" in shown
    assert frames_text(frames[-2:]) == "train (job.py:111) < main (job.py:200)"
    assert frames_text(()) == ""
