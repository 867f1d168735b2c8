"""`allready run`'s command line: torchrun's flags and ours, and what they mean together with file and environment.

`add_arguments` makes the parser, `request_from` the orders.  A value is decided by: flag, environment (PET_ variables
as torchrun reads them, then the scheduler's), [node] of the configuration file, [job] of it, default.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from allready.errors import UsageError
from allready.launch.config import load, read_config, settings_of
from allready.launch.config_model import FileSettings
from allready.launch.flag_kinds import KINDS, NCCL_LEVELS
from allready.launch.flag_table import BY_DEST, FLAGS, GROUPS, TORCHRUN, Flag
from allready.launch.framework import framework_of
from allready.launch.layout import DEFAULT_MASTER_PORT, FROM_FALLBACK, Layout, lay_out
from allready.launch.option_sources import OptionSources
from allready.launch.rendezvous import Rendezvous
from allready.launch.request import DEFAULT_WAIT_S, RankCommand, RunRequest
from allready.launch.scheduler_values import detect
from allready.proc.command import run_command
from allready.text.usage import usage_text

DEFAULT_GRACE_S = 30.0
XPU_DEADLINE_S = 60.0
_ASK_XPUS = "import torch; print(torch.xpu.device_count() if hasattr(torch, 'xpu') and torch.xpu.is_available() else 0)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All flags of `run` but those that every command has (--json, --report-dir, ...; the command adds these).

    SCRIPT and everything behind it are parsed as torchrun parses them.
    """
    parser.allow_abbrev = True  # torchrun allows it
    _abbreviate_only_torchruns(parser)
    groups = {key: parser.add_argument_group(title) for key, title in GROUPS.items()}
    for flag in FLAGS:
        _add(groups[flag.group], flag)
    script = parser.add_argument("script", metavar="SCRIPT", help="program that every rank runs")
    script.required = False  # the configuration file may name it
    rest = parser.add_argument("script_args", metavar="...", nargs=argparse.REMAINDER, help="arguments of the program")
    rest.required = False


def _abbreviate_only_torchruns(parser: argparse.ArgumentParser) -> None:
    """Ours are spelled out: argparse expands abbreviations behind the script, too, where `--report` is its own."""
    if not hasattr(parser, "_get_option_tuples"):  # an argparse of another kind
        parser.allow_abbrev = False
        return
    find: Callable[[str], list[Any]] = parser._get_option_tuples  # noqa: SLF001 - where abbreviations are resolved
    names = {"help", *(flag.name for flag in TORCHRUN if not flag.hidden)}
    torchruns = {f"--{spelled}" for name in names for spelled in (name, name.replace("-", "_"))}

    def only_torchruns(option_string: str) -> list[Any]:
        return [found for found in find(option_string) if found[1] in torchruns or not found[1].startswith("--")]

    parser._get_option_tuples = only_torchruns  # type: ignore[method-assign]  # noqa: SLF001


def _add(group: Any, flag: Flag) -> None:
    common = {"dest": flag.dest, "default": None, "help": argparse.SUPPRESS if flag.hidden else flag.help}
    if flag.kind == "switch":
        group.add_argument(*flag.spellings, action="store_const", const=True, **common)
    elif flag.kind == "choice":
        group.add_argument(*flag.spellings, choices=flag.choices, **common)
    elif flag.kind == "level":
        # A value behind a blank could be the script, so the level is part of the flag's name.
        group.add_argument(*flag.spellings, action="store_const", const="INFO", **common)
        for level in NCCL_LEVELS:
            names = [f"{name}={word}" for name in flag.spellings for word in (level, level.lower())]
            group.add_argument(*names, action="store_const", const=level, **{**common, "help": argparse.SUPPRESS})
    else:
        more = {"action": "append"} if flag.repeated else {}
        group.add_argument(*flag.spellings, type=_typed(flag.kind), metavar=flag.metavar or None, **common, **more)


def _typed(kind: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return KINDS[kind](text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def request_from(
    args: argparse.Namespace,
    environ: Mapping[str, str],
    *,
    count_gpus: Callable[[], int],
    read_config: Callable[[str, str | None], FileSettings] = read_config,
) -> RunRequest:
    """One node's orders.  `acts` False in it: another task of the same node does the work; end with 0.

    `args` is from a parser of `add_arguments`; `count_gpus` is called only when the number of GPUs matters.

    Raises:
        UsageError: something needed is missing, malformed, out of range, contradictory or cannot work.
    """
    settings = read_config(args.config, args.node_name) if args.config else FileSettings()
    options = OptionSources(args, environ, settings)
    command = _command(args, options, settings)
    rendezvous = Rendezvous(options)
    layout = _layout(options, rendezvous, environ, settings, count_gpus)
    launch, sources = layout.launch, layout.launch.sources
    framework = _framework(options, command)
    least, most = _num_nodes(options, rendezvous, launch.num_nodes)
    node_rank = _node_rank(options, rendezvous, sources, launch.node_rank, most)
    devices = _devices(options, launch.nproc_per_node, framework)
    master_addr, master_port = _master(options, rendezvous, layout, environ, most)
    start_rank = options.value("start_rank")
    if start_rank is not None and least != most:
        raise UsageError(
            "{where}: with {least} to {most} nodes the ranks are not known beforehand",
            where=options.where("start_rank"),
            least=least,
            most=most,
        )
    wait_s = options.value("wait") or rendezvous.wait_s or DEFAULT_WAIT_S
    log_dir = options.value("log_dir")
    report_dir = getattr(args, "report_dir", None)
    subsystems = options.value("nccl_log_subsystems")
    return RunRequest(
        command=command,
        min_nodes=least,
        max_nodes=most,
        node_rank=node_rank,
        nproc_per_node=launch.nproc_per_node,
        start_rank=start_rank,
        master_addr=master_addr,
        master_port=master_port,
        is_master=_is_master(rendezvous, settings, node_rank, most),
        job_id=launch.job_id,
        scheduler=launch.scheduler,
        framework=framework,
        devices=devices,
        local_addr=options.value("local_addr"),
        wait_s=wait_s,
        sync_dir=_absolute(options.value("sync_dir")),
        token_file=options.value("token_file"),
        max_restarts=options.value("max_restarts"),
        rank_restarts=_rank_restarts(options, framework),
        backoff=options.value("backoff"),
        retry_user_errors=bool(options.value("retry_user_errors")),
        excluded_nodes=options.value("exclude_nodes") or (),
        report_dir=_absolute(report_dir),
        quiet_ranks=options.value("quiet_ranks") or (),
        shown_local_ranks=_shown(options, launch.nproc_per_node),
        nccl_log=options.value("nccl_log") or ("INFO" if subsystems else None),
        nccl_log_subsystems=subsystems,
        metrics_port=_metrics_port(options),
        metrics_host=options.value("metrics_host"),
        monitor_interval_s=options.value("monitor_interval"),
        grace_s=_grace(options, environ),
        on_hang=options.value("on_hang"),
        hang_after_s=options.value("hang_after"),
        diagnosis=not options.value("no_diagnosis"),
        jax_attempts=options.value("jax_attempts"),
        jax_timeout_s=options.value("jax_timeout"),
        jax_backoff=options.value("jax_backoff"),
        role=options.value("role"),
        environment=dict(settings.environment),
        preset=options.value("preset"),
        torchrun=_of_torchrun(options, environ),
        lang=getattr(args, "lang", None) or "en",
        acts=layout.acts,
        local_rank=layout.local_rank,
        num_tasks=layout.num_tasks,
        log_base=_absolute(log_dir),
        end_with_stdin=bool(args.end_with_stdin),
        sources=_sources(options, sources),
        notes=(*layout.notes, *options.notes),
    )


def to_argv(args: argparse.Namespace, *, without: Sequence[str] = ()) -> list[str]:
    """The flags of `args` as words for another `allready run`, without those named (by dest); SCRIPT comes last."""
    words = []
    for flag in FLAGS:
        value = getattr(args, flag.dest, None)
        if value is None or flag.dest in without:
            continue
        name = f"--{flag.name}"
        if flag.kind == "switch":
            words += [name] if value else []
        else:
            words += [f"{name}={_spelled(flag, one)}" for one in (value if flag.repeated else [value])]
    if args.script is not None:
        words += [args.script, *(args.script_args or ())]
    return words


def _spelled(flag: Flag, value: Any) -> str:
    if flag.kind == "nodes":
        return f"{value[0]}:{value[1]}" if value[0] != value[1] else str(value[0])
    if flag.kind == "backoff":
        return f"{value.base_s:.12g},{value.most_s:.12g},{value.jitter:.12g}"
    if flag.kind == "streams":
        return str(value[-1]) if -1 in value else ",".join(f"{rank}:{what}" for rank, what in value.items())
    if flag.kind == "settings":
        return ",".join(f"{key}={word}" for key, word in value.items())
    if flag.kind in {"names", "numbers"}:
        return ",".join(str(one) for one in value)
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _sources(options: OptionSources, of_layout: Mapping[str, str]) -> dict[str, str]:
    names = {"num_nodes": "nnodes", "job_id": "rdzv_id"}
    from_environment = {
        name: source for name, source in of_layout.items() if source != FROM_FALLBACK and not source.startswith("--")
    }
    decided = {
        name: options.sources[names.get(name, name)] for name in of_layout if names.get(name, name) in options.sources
    }
    return {**options.sources, **from_environment, **{n: s for n, s in decided.items() if n not in from_environment}}


def _command(args: argparse.Namespace, options: OptionSources, settings: FileSettings) -> RankCommand:
    target, arguments = args.script, tuple(args.script_args or ())
    if target is None:
        target, arguments = settings.script, settings.arguments
    if not target:
        raise UsageError("no script given; put it after the flags: allready run --nproc-per-node 2 train.py")
    if target.upper() in NCCL_LEVELS and options.by_hand("nccl_log") and arguments:
        raise UsageError(
            "{target} would be taken as the script; set the level with --nccl-log={level}",
            target=target,
            level=target.upper(),
        )
    module, program, run_path = (bool(options.value(name)) for name in ("module", "no_python", "run_path"))
    if module and program and not run_path:
        raise UsageError("--module and --no-python cannot be combined: a module needs Python")
    return RankCommand(
        target=target,
        arguments=arguments,
        is_module=module and not run_path,
        is_program=program and not run_path,
        run_path=run_path,
    )


def _layout(
    options: OptionSources,
    rendezvous: Rendezvous,
    environ: Mapping[str, str],
    settings: FileSettings,
    count_gpus: Callable[[], int],
) -> Layout:
    asked = options.by_hand("nnodes")
    cleaned = {name: value for name, value in environ.items() if name != "PET_NNODES"}
    if "PET_NNODES" in environ:
        cleaned["PET_NNODES"] = str(asked[1]) if asked else ""  # a range is read already
    nproc, spare = options.by_hand("nproc_per_node"), options.filed("nproc_per_node")
    devices = options.value("devices") or ()
    if nproc is None and devices:
        nproc = spare or len(devices)  # devices that are named go before the scheduler
    num_nodes = 1 if rendezvous.standalone and not asked else asked and asked[1]
    node_rank = None if rendezvous.is_agreed else options.by_hand("node_rank")
    flags = {
        "num_nodes": num_nodes,
        "node_rank": 0 if num_nodes == 1 and node_rank is None else node_rank,
        "nproc_per_node": as_number(nproc, count_gpus),
        "master_addr": rendezvous.addr,
        "master_port": rendezvous.port or None,
        "job_id": options.by_hand("rdzv_id"),
    }
    filed = options.filed("nnodes")
    fallback = {
        "num_nodes": filed[1] if filed else settings.num_nodes,
        "node_rank": options.filed("node_rank"),
        "nproc_per_node": 1 if nproc is not None else as_number(spare or 1, count_gpus),
        "master_addr": options.filed("master_addr") or settings.master,
        "master_port": options.filed("master_port"),
        "job_id": options.filed("rdzv_id"),
    }
    return lay_out(flags, cleaned, count_gpus=count_gpus, fallback=fallback, by_agreement=True)


def as_number(asked: int | str | None, count_gpus: Callable[[], int]) -> int | None:
    """torchrun's words for a number of ranks; `cpu` is one per CPU that this process may use."""
    if asked is None or isinstance(asked, int):
        return asked
    num_cpus = len(os.sched_getaffinity(0))
    if asked == "cpu":
        return num_cpus
    if asked == "xpu":
        return _count_xpus()
    num_gpus = count_gpus()
    if asked == "gpu" and not num_gpus:
        raise UsageError("--nproc-per-node gpu: no GPU is visible on this machine")
    return num_gpus or num_cpus


def _count_xpus() -> int:
    """How many XPUs torch sees, asked in a process of its own: a driver may crash or hang."""
    try:
        done = run_command([sys.executable, "-c", _ASK_XPUS], timeout_s=XPU_DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise UsageError(
            "--nproc-per-node xpu: torch did not count the XPUs within {deadline_s:.0f} s", deadline_s=XPU_DEADLINE_S
        ) from None
    words = done.stdout.decode(errors="replace").split()
    if done.returncode or not words or not words[-1].isdecimal():
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no answer"])[-1]
        raise UsageError("--nproc-per-node xpu: torch cannot count the XPUs: {error}", error=last[:300])
    if int(words[-1]) < 1:
        raise UsageError("--nproc-per-node xpu: no XPU is visible to torch on this machine")
    return int(words[-1])


def _num_nodes(options: OptionSources, rendezvous: Rendezvous, num_nodes: int) -> tuple[int, int]:
    if rendezvous.standalone and num_nodes > 1:
        raise UsageError(
            "--standalone is for one node, {where} gives {num_nodes}",
            where=options.where("nnodes"),
            num_nodes=num_nodes,
        )
    asked = options.by_hand("nnodes") or options.filed("nnodes")
    return (asked[0], num_nodes) if asked and asked[1] == num_nodes else (num_nodes, num_nodes)


def _node_rank(
    options: OptionSources, rendezvous: Rendezvous, sources: Mapping[str, str], found: int, num_nodes: int
) -> int | None:
    if num_nodes == 1:
        return 0
    if rendezvous.is_agreed:  # torchrun, too: c10d agrees on the order itself
        if options.by_hand("node_rank") is not None:
            options.note("node_rank_agreed", source=options.where("node_rank"))
        filed: int | None = options.filed("node_rank")
        return filed
    return found if "node_rank" in sources else None


def _master(
    options: OptionSources, rendezvous: Rendezvous, layout: Layout, environ: Mapping[str, str], num_nodes: int
) -> tuple[str, int]:
    launch, sources = layout.launch, layout.launch.sources
    if num_nodes == 1:
        by_hand = rendezvous.addr or options.filed("master_addr")
        named = rendezvous.port or options.filed("master_port")
        if named is None and not rendezvous.standalone and sources.get("master_port") == "MASTER_PORT":
            named = launch.master_port
        return by_hand or "127.0.0.1", named or 0
    if "master_addr" not in sources and not options.value("sync_dir"):
        scheduler = detect(environ)
        hint = (scheduler.help if scheduler else {}).get("master_addr") or usage_text("the name or address of node 0")
        raise UsageError(
            "the address of node 0 (of {num_nodes} nodes) is missing; add --master-addr ({hint}), or --sync-dir DIR "
            "(a shared folder), or start from one shell with --hosts",
            num_nodes=num_nodes,
            hint=hint,
        )
    return launch.master_addr, launch.master_port if "master_port" in sources else DEFAULT_MASTER_PORT


def _is_master(rendezvous: Rendezvous, settings: FileSettings, node_rank: int | None, num_nodes: int) -> bool | None:
    if num_nodes == 1:
        return True
    if rendezvous.is_host is not None:
        return rendezvous.is_host
    if settings.is_master is not None and rendezvous.addr is None:
        return settings.is_master
    return None if node_rank is None else node_rank == 0


def _devices(options: OptionSources, nproc: int, framework: str) -> tuple[str, ...]:
    """One entry per rank.  A process of JAX may have several devices: `0,1,2,3` for two are `0,1` and `2,3`."""
    devices: tuple[str, ...] = options.value("devices") or ()
    if not devices or len(devices) == nproc:
        return devices
    if framework == "jax" and len(devices) % nproc == 0:
        each = len(devices) // nproc
        return tuple(",".join(devices[at : at + each]) for at in range(0, len(devices), each))
    raise UsageError(
        "{devices_at} names {count} devices, {nproc_at} gives {nproc} ranks",
        devices_at=options.where("devices"),
        count=len(devices),
        nproc_at=options.where("nproc_per_node"),
        nproc=nproc,
    )


def _framework(options: OptionSources, command: RankCommand) -> str:
    asked: str = options.value("framework")
    if asked != "auto":
        return asked
    return "torch" if command.is_program else framework_of(command.target, is_module=command.is_module)


def _shown(options: OptionSources, nproc: int) -> tuple[int, ...]:
    """Local ranks whose lines are shown, empty for all."""
    shown: tuple[int, ...] = options.value("local_ranks_filter") or ()
    wrong = [rank for rank in shown if rank >= nproc]
    if wrong:
        raise UsageError(
            "{where}: local rank {local_rank} does not exist, there are {nproc}",
            where=options.where("local_ranks_filter"),
            local_rank=wrong[0],
            nproc=nproc,
        )
    return shown


def _rank_restarts(options: OptionSources, framework: str) -> int:
    found = int(options.value("rank_restarts"))
    if found and framework == "jax":
        raise UsageError(
            "{where}: JAX cannot take in a rank again; use --max-restarts", where=options.where("rank_restarts")
        )
    return found


def _grace(options: OptionSources, environ: Mapping[str, str]) -> float:
    variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
    for dest in ("grace", "shutdown_timeout"):
        if options.by_hand(dest) is not None:
            return float(options.by_hand(dest))
    if environ.get(variable):
        try:
            return float(KINDS["number"](environ[variable]))
        except ValueError as error:
            raise UsageError("{variable}: {error}", variable=variable, error=error) from None
    for dest in ("grace", "shutdown_timeout"):
        if options.filed(dest) is not None:
            return float(options.filed(dest))
    return DEFAULT_GRACE_S


def _metrics_port(options: OptionSources) -> int | None:
    port: int | None = options.value("metrics_port")
    if port is not None and port > 65535:
        raise UsageError("--metrics-port {metrics_port}: 0 to 65535", metrics_port=port)
    return port


def _of_torchrun(options: OptionSources, environ: Mapping[str, str]) -> dict[str, str]:
    """What only the agent can do something with, by torchrun's names."""
    found = {}
    if options.value("numa_binding"):
        found["numa_binding"] = _numa_binding(options)
    if options.value("virtual_local_rank"):
        found["virtual_local_rank"] = "1"
    for dest in ("redirects", "tee"):  # which streams reach the terminal: `allready.launch.logs`
        if options.value(dest):
            found[dest] = _spelled(BY_DEST[dest], options.value(dest))
    template = options.value("log_line_prefix_template") or environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
    if template:
        found["log_line_prefix_template"] = template
    names = _stop_signals(options)
    if names:
        found["signals_to_handle"] = ",".join(names)
    return found


def _stop_signals(options: OptionSources) -> tuple[str, ...]:
    names = tuple(options.value("signals_to_handle") or ())
    unknown = [name for name in names if not name.startswith("SIG") or name not in signal.Signals.__members__]
    if unknown:
        raise UsageError(
            "{where}: there is no signal {name}", where=options.where("signals_to_handle"), name=unknown[0]
        )
    return names


def ending_of(args: argparse.Namespace, environ: Mapping[str, str]) -> tuple[tuple[str, ...], float]:
    """For a launcher that has the job run elsewhere: the signals that end it as well, and what the ranks' end may take.

    Of a configuration file its [job] counts, where the file is on this machine too.

    Raises:
        UsageError: there is no such signal, or the file is none.
    """
    is_here = args.config is not None and Path(args.config).is_file()
    options = OptionSources(args, environ, settings_of(load(args.config), None) if is_here else FileSettings())
    return _stop_signals(options), _grace(options, environ)


def _numa_binding(options: OptionSources) -> str:
    """torchrun's --numa-binding, where torch and this machine can do it: it is torch's own, by the program numactl."""
    mode: str = options.value("numa_binding")
    found = find_spec("torch")
    has_binding = found is not None and any(
        Path(folder, "numa", "binding.py").is_file() for folder in found.submodule_search_locations or ()
    )
    if not has_binding:
        raise UsageError(
            "{where}: the torch that is installed here cannot bind ranks to CPUs (needs 2.9 or newer)",
            where=options.where("numa_binding"),
        )
    if which("numactl") is None:
        raise UsageError(
            "{where}: torch does it by the program numactl, which is not installed here (apt install numactl)",
            where=options.where("numa_binding"),
        )
    return mode


def _absolute(path: str | None) -> str | None:
    return str(Path(path).absolute()) if path else None
