"""`allready bench`: bandwidth of the collectives, compared with what this hardware should give."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from allready.cli import check
from allready.cli.main import EXIT_HEALTHY, EXIT_UNCHECKED
from allready.cli.options import add_both_spellings, add_common, count, count_from_0, positive_s, size_bytes
from allready.errors import UsageError
from allready.judging.prediction import STRATEGIES, PredictionQuestion, predict
from allready.launch.layout import Layout
from allready.model import Report
from allready.model.operations import DTYPE_BYTES, JAX_OPERATIONS, OPERATIONS
from allready.preflight.check.request import STAGES, BenchRequest, CheckRequest
from allready.preflight.collectives.spec import PATHS
from allready.text.usage import usage_text

if TYPE_CHECKING:
    from allready.bench.files import Curves

ALL = "all"
SEARCH_STAGES = ("roll", "facts", "collectives")  # a blocked path is for the search to find
SEARCHES = ("pairs", "bisect")
PREDICT = "predict"
DTYPE_NAMES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}
"""Short names of types, as trainers write them."""
MAX_PARAMS = 1e15


def _letters(word: str) -> str:
    """`all-reduce`, `AllReduce` and `all_reduce_perf` are alike."""
    return "".join(c for c in word.lower().removesuffix("_perf") if c.isalpha())


OPERATION_NAMES = {_letters(name): name for name in OPERATIONS} | {"alltoallsingle": "all_to_all"}
"""The letters of an operation's name -> our name of it."""

EPILOG = """\
Run the same command on every node, in any order, with torchrun's flags, as allready check:
  allready bench                              all_reduce on this machine
  allready bench all --max-bytes 16M          all operations
  srun allready bench all_reduce all_gather   on all nodes of a Slurm job
  srun allready bench pairs                   every two nodes: which node or link is slow
  srun allready bench bisect                  the same for slow nodes, in log2 rounds
  srun allready bench --isolate               which of NCCL's transports matters
  allready bench predict --params 7e9 --dtype bf16 --strategy fsdp      a model's collectives, per step
  allready bench --html run.html --overlay yesterday/report.json --overlay nccl_tests.json
  allready bench --save-baseline good.json    and later:   allready bench --compare good.json
Columns and bus bandwidth are those of nccl-tests (doc/PERFORMANCE.md).
Exit codes: 0 healthy, 1 fault, 2 usage, 3 something necessary could not be checked.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bench`."""
    parser.add_argument(
        "what",
        nargs="*",
        metavar="OPERATION",
        help=f"{', '.join(OPERATIONS)} (default: all_reduce), or {ALL}; or a search: {', '.join(SEARCHES)}; "
        f"or {PREDICT}",
    )
    job = check.add_job(parser)
    job.add_argument(
        "--framework",
        choices=("torch", "jax"),
        default="torch",
        help="framework whose collectives are run (default: torch)",
    )
    sizes = parser.add_argument_group("what to measure")
    for name, flag, text in (
        ("min", "-b", "smallest message (default 1 KiB)"),
        ("max", "-e", "largest message (gloo 64M, nccl 1G)"),
    ):  # also as nccl-tests spells them
        sizes.add_argument(
            f"--{name}-bytes",
            f"--{name}_bytes",
            f"--{name}",
            f"--{name}bytes",
            flag,
            type=size_bytes,
            metavar="SIZE",
            help=text,
        )
    sizes.add_argument(
        "--factor",
        "--stepfactor",
        "-f",
        type=_factor,
        default=2,
        metavar="N",
        help="each size is N times the one before (2)",
    )
    sizes.add_argument(
        "--step",
        "--step-bytes",
        "--stepbytes",
        "-i",
        type=size_bytes,
        metavar="SIZE",
        help="sizes grow by SIZE instead",
    )
    sizes.add_argument(
        "--dtype",
        "--datatype",
        "-d",
        type=_dtype,
        choices=tuple(DTYPE_BYTES),
        default="float32",
        help="type of the elements",
    )
    sizes.add_argument(
        "--iters", "--iterations", "-n", type=count, metavar="N", help="timed iterations per size (default 20)"
    )
    sizes.add_argument(
        "--warmup",
        "--warmup-iters",
        "--warmup_iters",
        "-w",
        type=count_from_0,
        metavar="N",
        help="warm-up iterations per size",
    )
    sizes.add_argument(
        "--path",
        choices=PATHS,
        default="torch",
        help="what calls NCCL: torch, as in training (default); or a loop of our own around NCCL's functions, in place "
        "and out of place, for comparison with nccl-tests",
    )
    add_both_spellings(sizes, "cuda-graph", action="store_true", help="launch the iterations of a size as a CUDA graph")
    add_both_spellings(
        sizes,
        "ask-nccl",
        action="store_true",
        help="afterwards, let NCCL say which algorithm it takes for each size, and run its own diagnostics (2.31)",
    )
    sizes.add_argument(
        "--budget", type=positive_s, default=60.0, metavar="S", help="time of all sweeps together (default 60 s)"
    )
    sizes.add_argument(
        "--wait", type=positive_s, default=60.0, metavar="S", help="timeout for late nodes (default 60 s)"
    )
    sizes.add_argument(
        "--isolate",
        action="store_true",
        help="measure the largest size again without P2P, SHM, IB, NVLS, GPUDirect RDMA and network plugins in turn",
    )
    add_both_spellings(
        sizes, "stage-timeout", type=positive_s, metavar="S", help="timeout of each stage of the collectives"
    )
    compare = parser.add_argument_group("files of curves")
    compare.add_argument("--csv", metavar="FILE", help="write the table as CSV to FILE")
    add_both_spellings(compare, "nccl-json", metavar="FILE", help="write the table as nccl-tests' JSON to FILE")
    compare.add_argument(
        "--overlay",
        action="append",
        default=[],
        metavar="FILE",
        help="also draw the curves of FILE (report.json or nccl-tests' JSON) in the HTML report; can be repeated",
    )
    add_both_spellings(compare, "save-baseline", metavar="FILE", help="keep this run in FILE, for --compare")
    compare.add_argument(
        "--compare",
        action="append",
        default=[],
        metavar="FILE",
        help="report operations that are slower than in FILE; a folder, or several FILEs, are a history, of which the "
        "median counts",
    )
    _add_prediction(parser)
    add_common(parser)


def _add_prediction(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("predict: a model's collectives by a measured curve")
    group.add_argument("--params", type=_number, metavar="N", help="parameters of the model, for example 7e9")
    group.add_argument("--strategy", choices=tuple(STRATEGIES), help="how the model is trained")
    add_both_spellings(
        group, "grad-accum", type=count, default=1, metavar="N", help="micro-batches of one optimizer step (1)"
    )
    add_both_spellings(
        group,
        "bucket-bytes",
        type=size_bytes,
        default=0,
        metavar="SIZE",
        help="size of a bucket of DDP (default 25M), or of the parameters of an FSDP unit (default: a 32nd of all)",
    )
    group.add_argument("--world", type=count, default=0, metavar="N", help="number of ranks (default: as measured)")
    group.add_argument(
        "--curve", metavar="FILE", help="use the curve of FILE (report.json or nccl-tests' JSON); measure nothing"
    )


def run(args: argparse.Namespace) -> int:
    """Measure; the exit code is the contract's."""
    from allready.bench.files import history, read_curves
    from allready.cli.output import check_writable

    for option, name in (("--csv", args.csv), ("--nccl-json", args.nccl_json), ("--save-baseline", args.save_baseline)):
        if name:
            check_writable(option, Path(name))
    question = question_of(args)
    if question is not None and args.curve:
        return _predict_from_file(args, question)
    overlays = tuple(read_curves(Path(name)) for name in args.overlay)
    baseline = history([Path(name) for name in args.compare]) if args.compare else None

    def ask(args: argparse.Namespace, layout: Layout) -> CheckRequest:
        return request_of(args, layout, baseline, overlays)

    return check.conduct(args, ask, command="bench", files=lambda report: _write_files(args, report))


def request_of(
    args: argparse.Namespace, layout: Layout, baseline: "Curves | None" = None, overlays: "tuple[Curves, ...]" = ()
) -> CheckRequest:
    """What `bench` was asked to do."""
    question = question_of(args)
    args.what = [OPERATION_NAMES.get(_letters(word), word) for word in args.what]
    search = args.what[0] if args.what[:1] and args.what[0] in SEARCHES else ""
    check.check_sizes(args, "float32" if search else args.dtype)
    if args.step == 0:
        raise UsageError("--step 0: sizes must grow by at least 1")
    if search and len(args.what) > 1:
        raise UsageError("{search} takes no operations", search=search)
    if (
        question is not None
        and args.framework == "jax"
        and not set(JAX_OPERATIONS).issuperset(STRATEGIES[question.strategy])
    ):
        raise UsageError("{strategy} needs operations that are not measured with JAX", strategy=question.strategy)
    if args.isolate and (search or question is not None):
        raise UsageError("--isolate is for operations, not for {search}", search=search or PREDICT)
    if search and (args.path != "torch" or args.cuda_graph or args.ask_nccl):
        raise UsageError("--path, --cuda-graph and --ask-nccl are for operations, not for {search}", search=search)
    if question is not None:
        return _request(args, layout, baseline, overlays, operations=STRATEGIES[question.strategy], question=question)
    unknown = [name for name in args.what if name not in OPERATIONS and name != ALL and not search]
    if unknown:
        raise UsageError(
            "no operation {name!r}; valid: {known}",
            name=unknown[0],
            known=", ".join((*OPERATIONS, ALL, *SEARCHES, PREDICT)),
        )
    known = JAX_OPERATIONS if args.framework == "jax" else tuple(OPERATIONS)
    asked = set(known) if ALL in args.what else set(args.what or ["all_reduce"]) & set(OPERATIONS)
    if search and args.framework == "jax":
        raise UsageError("{search} is measured with torch only", search=search)
    if asked - set(known):
        raise UsageError(
            "{name} is not measured with JAX; valid: {known}", name=min(asked - set(known)), known=", ".join(known)
        )
    operations = tuple(name for name in OPERATIONS if name in asked)
    return _request(args, layout, baseline, overlays, operations=operations, search=search)


def _request(
    args: argparse.Namespace,
    layout: Layout,
    baseline: "Curves | None",
    overlays: "tuple[Curves, ...]",
    *,
    operations: tuple[str, ...],
    search: str = "",
    question: PredictionQuestion | None = None,
) -> CheckRequest:
    return CheckRequest(
        launch=layout.launch,
        wait_s=args.wait,
        stages=SEARCH_STAGES if search else STAGES,
        backend=args.backend,
        framework=args.framework,
        min_bytes=args.min_bytes,
        max_bytes=args.max_bytes,
        num_iterations=args.iters,
        num_warmup=args.warmup,
        isolate=args.isolate,
        stage_deadline_s=args.stage_timeout,
        bench=BenchRequest(
            search=search,
            operations=operations,
            dtype=args.dtype,
            factor=args.factor,
            step_bytes=args.step or 0,
            path=args.path,
            is_graph=args.cuda_graph,
            asks_nccl=args.ask_nccl,
            budget_s=args.budget,
            baseline=baseline.points if baseline is not None else (),
            baseline_source=baseline.name if baseline is not None else "",
            overlays={curves.name: curves.points for curves in overlays},
            question=question,
        ),
    )


def question_of(args: argparse.Namespace) -> PredictionQuestion | None:
    """What `bench predict` was asked; None for another benchmark.

    Raises:
        UsageError: something is missing, or belongs to `predict` and that is not asked for.
    """
    if args.what[:1] != [PREDICT]:
        for option in ("params", "strategy", "world", "curve"):
            if getattr(args, option):
                raise UsageError("--{option} is for bench predict", option=option)
        return None
    if len(args.what) > 1:
        raise UsageError("{search} takes no operations", search=PREDICT)
    if args.params is None or args.strategy is None:
        raise UsageError("predict needs --params and --strategy ({strategies})", strategies=", ".join(STRATEGIES))
    if args.world == 1:
        raise UsageError("one rank has no collectives: --world from 2")
    return PredictionQuestion(
        strategy=args.strategy,
        num_params=args.params,
        dtype=args.dtype,
        world_size=args.world,
        grad_accum=args.grad_accum,
        bucket_bytes=args.bucket_bytes,
    )


def _predict_from_file(args: argparse.Namespace, question: PredictionQuestion) -> int:
    """Predict by a curve that was measured before; returns the exit code."""
    import msgspec

    from allready.bench.files import read_curves
    from allready.cli.output import check_writable, write_all
    from allready.report.prediction import compose
    from allready.report.safe import safe_json
    from allready.report.terminal import show_blocks
    from allready.text.catalog import choose_language

    curves = read_curves(Path(args.curve))
    if args.json and args.json != "-":
        check_writable("--json", Path(args.json))
    if curves.num_ranks is None or curves.num_ranks < 2:
        raise UsageError("{path}: it does not say how many ranks measured it, or it was one", path=args.curve)
    prediction = predict(curves.points, curves.num_ranks, question)
    if args.json:
        body = safe_json(msgspec.json.format(msgspec.json.encode(prediction), indent=2)) + b"\n"
        if args.json == "-":
            sys.stdout.write(body.decode())
        else:
            write_all([Path(args.json)], body)
    if args.json != "-":
        language = choose_language(args.lang)
        show_blocks(compose(prediction, language), sys.stdout, language)
    return EXIT_UNCHECKED if prediction.gaps else EXIT_HEALTHY


def _write_files(args: argparse.Namespace, report: Report) -> list[Path]:
    """CSV, nccl-tests' JSON and the baseline, where the run got as far as numbers; returns what was written."""
    from allready.bench.files import RequestedRun, csv_text, json_text, nccl_json
    from allready.cli.output import write_all
    from allready.report import json_report

    runs = report.collectives.runs if report.collectives is not None else ()
    if not runs or not runs[0].points:
        return []
    written = []
    if args.csv:
        written += write_all([Path(args.csv)], csv_text(runs[0]).encode())
    if args.nccl_json:
        asked = RequestedRun(
            args=("allready", "bench", *args.what),
            factor=args.factor,
            step_bytes=args.step or 0,
            num_iterations=args.iters,
            num_warmup=args.warmup,
        )
        written += write_all([Path(args.nccl_json)], json_text(nccl_json(report, asked)).encode())
    if args.save_baseline:
        written += write_all([Path(args.save_baseline)], json_report.encode(report))
    return written


def _dtype(text: str) -> str:
    return DTYPE_NAMES.get(text, text)


def _number(text: str) -> int:
    """`7e9`, `7B`, `350M`, `124439808`."""
    scale = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(text[-1:].upper(), 0.0)
    try:
        value = float(text[:-1]) * scale if scale else float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= MAX_PARAMS:
        raise argparse.ArgumentTypeError(usage_text("{text!r} is not a number of parameters; write 7e9", text=text))
    return round(value)


def _factor(text: str) -> int:
    value = count(text)
    if value < 2:
        raise argparse.ArgumentTypeError(usage_text("a factor is 2 or more"))
    return value
