"""What is typed at ssh: hosts, options, environment and the remote command, all checked and quoted; no process here."""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from allready.errors import UsageError
from allready.facts.env import is_read
from allready.launch.config import VARIABLE
from allready.launch.flags import to_argv
from allready.patterns import compiled
from allready.redaction import redact

_USER = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*\$?"
_HOST = r"[A-Za-z0-9_](?:[A-Za-z0-9_.\-]*[A-Za-z0-9_])?"
_TARGET = rf"(?:(?P<user>{_USER})@)?(?:(?P<host>{_HOST})|\[(?P<six>[0-9A-Fa-f:.]+)\])(?::(?P<port>\d{{1,5}}))?"
_BARE_SIX = r"[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f.]*"
_OPTION = r"(?s)[A-Za-z][A-Za-z0-9]*[= ].+"
_ALSO_PASSED = frozenset({
    "PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "HF_HOME", "HF_HUB_CACHE",
    "HF_DATASETS_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "ALLREADY_LANG",
    "ALLREADY_LOCALE",
})  # fmt: skip
MARK = "ALLREADY_SSH_MARK"
"""In the agent's environment: the word before its reports to the ssh that started it."""
_OF_ONE_NODE = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"})
_OF_THE_SHELL = (
    "hosts", "ssh_option", "remote_python", "remote_dir", "pass_env", "end_with_stdin", "nnodes", "node_rank",
    "master_addr", "rdzv_endpoint", "rdzv_backend", "token_file",
)  # fmt: skip
MAX_VALUE_BYTES = 32_768
END_S = 45.0
AGENTS_END_S = 15.0
"""What an agent may take for its own end, beside the ranks' grace."""


class Target(Struct, frozen=True, kw_only=True):
    """One host as ssh is to reach it."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}" * bool(self.user) + host * (not self.user) + f":{self.port}" * bool(self.port)


class SshOptions(Struct, frozen=True, kw_only=True):
    """How to connect, and when to stop waiting.

    `start_s`: from the start of ssh until the remote shell speaks.  `settle_s`: how long the other nodes may take to
    end by themselves when one failed, `settle_unbegun_s`: when it failed before the nodes had met.
    `end_s`: after all were asked to end, before ssh is killed.
    """

    options: tuple[str, ...] = ()
    directory: str = ""
    environment: Mapping[str, str] | None = None
    connect_s: int = 10
    start_s: float = 60.0
    settle_s: float = 60.0
    settle_unbegun_s: float = 5.0
    end_s: float = END_S
    program: str = "ssh"


def parse_hosts(words: Sequence[str]) -> tuple[Target, ...]:
    """`host`, `user@host`, `host:port`, `user@[fd00::1]:22` for each.

    Raises:
        UsageError: something else, which could be an option or a command to ssh or the shell; or a host twice.
    """
    targets = []
    for word in words:
        match = compiled(_TARGET).fullmatch(word)
        if compiled(_BARE_SIX).fullmatch(word):
            target = Target(host=word)
        elif match and (match["port"] is None or 0 < int(match["port"]) < 65536):
            port = int(match["port"]) if match["port"] else None
            target = Target(host=match["host"] or match["six"], user=match["user"], port=port)
        else:
            raise UsageError(
                "--hosts: {word!r} is not a host; write gpu01, user@gpu01, gpu01:2222 or [fd00::1]:22", word=word
            )
        if target in targets:
            raise UsageError(
                "--hosts: {word} is listed twice; one agent serves all ranks of a node (--nproc-per-node)", word=word
            )
        targets.append(target)
    if not targets:
        raise UsageError("--hosts names no host; write --hosts gpu01,gpu02")
    return tuple(targets)


def options_from(args: argparse.Namespace, environ: Mapping[str, str], *, grace_s: float = 0.0) -> SshOptions:
    """From the flags of `run`.  `grace_s`: what the ranks' end may take."""
    for option in args.ssh_option or ():
        if not compiled(_OPTION).fullmatch(option) or "\n" in option:
            raise UsageError(
                "--ssh-option {option!r}: write KEY=VALUE as in ssh_config, for example Port=2222", option=option
            )
    return SshOptions(
        options=tuple(args.ssh_option or ()),
        directory=args.remote_dir or str(Path.cwd()),
        environment=passed_environment(environ, args.pass_env or ()),
        end_s=max(END_S, grace_s + AGENTS_END_S),
    )


def passed_environment(environ: Mapping[str, str], names: Sequence[str] = ()) -> dict[str, str]:
    """What the nodes get of this shell's variables: those that NCCL, torch, JAX and CUDA read, where Python and Hugging
    Face find their things, and `names`.

    Never a likely secret: the command line of a process is visible to all users of a machine.  Which
    GPUs are visible is each node's own matter.
    """
    passed = {}
    for name, value in environ.items():
        fits = (is_read(name) or name in _ALSO_PASSED or name.startswith("PET_")) and name not in _OF_ONE_NODE
        if name == "PATH":  # a directory that looks like a secret must not cost all others
            value = ":".join(part for part in value.split(":") if _is_harmless(name, part))
        if fits and compiled(VARIABLE).fullmatch(name) and _is_harmless(name, value):
            passed[name] = value
    for name in names:
        if not compiled(VARIABLE).fullmatch(name):
            raise UsageError("--pass-env {name!r}: not the name of a variable", name=name)
        if name not in environ:
            raise UsageError("--pass-env {name}: not set in this shell", name=name)
        if not _is_harmless(name, environ[name]):
            raise UsageError(
                "--pass-env {name}: this is a likely secret, and every user of the node could read it "
                "there; put it into a file that the script reads, or into the node's own environment",
                name=name,
            )
        passed[name] = environ[name]
    return dict(sorted(passed.items()))


def _is_harmless(name: str, value: str) -> bool:
    return redact(name, value) == value and len(value) <= MAX_VALUE_BYTES and not set(value) & {"\x00", "\n"}


def agent_commands(args: argparse.Namespace, targets: Sequence[Target]) -> list[list[str]]:
    """The words that start the agent of each host: `python -m allready run ...`, node rank by place in the list."""
    for dest in ("node_rank", "standalone", "rdzv_endpoint", "sync_dir", "node_name"):
        if getattr(args, dest, None) is not None:
            raise UsageError(
                "--{option} and --hosts cannot be combined: the order of the hosts decides",
                option=dest.replace("_", "-"),
            )
    if args.nnodes is not None and args.nnodes != (len(targets), len(targets)):
        raise UsageError("--nnodes and --hosts contradict each other: {count} hosts are named", count=len(targets))
    python = args.remote_python or sys.executable
    master = args.master_addr or targets[0].host
    common = _common_flags(args)
    commands = []
    for place in range(len(targets)):
        flags = [f"--nnodes={len(targets)}", f"--node-rank={place}", "--end-with-stdin", "--token-file=-"]
        flags += [f"--master-addr={master}"] if len(targets) > 1 or args.master_addr else []
        flags += common + (_of_node_0(args) if place == 0 else [])
        commands.append([python, "-m", "allready", "run", *flags, *to_argv(args, without=_OF_THE_SHELL)])
    return commands


def _common_flags(args: argparse.Namespace) -> list[str]:
    given = {dest: getattr(args, dest, None) for dest in ("lang", "report_dir")}
    found = [f"--{dest.replace('_', '-')}={value}" for dest, value in given.items() if value]
    return found + ["-v"] * (getattr(args, "verbose", 0) or 0) + ["-q"] * bool(getattr(args, "quiet", False))


def _of_node_0(args: argparse.Namespace) -> list[str]:
    return [f"--{dest}={getattr(args, dest)}" for dest in ("json", "html") if getattr(args, dest, None)]


def ssh_argv(target: Target, remote: str, options: SshOptions) -> list[str]:
    """The local command line; `remote` is one word for the remote shell."""
    argv = [options.program, "-T", "-a", "-x"]
    for option in options.options:  # first, because ssh takes the first value that it finds
        argv += ["-o", option]
    for option in (
        "BatchMode=yes",
        f"ConnectTimeout={options.connect_s}",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
        "LogLevel=ERROR",
    ):
        argv += ["-o", option]
    argv += ["-l", target.user] if target.user else []
    argv += ["-p", str(target.port)] if target.port else []
    return [*argv, "--", target.host, remote]


def remote_command(words: Sequence[str], options: SshOptions, token: str) -> str:
    """The remote shell's command: change the folder, set variables, run, and report the outcome on stderr.

    The lines `TOKEN started`, `TOKEN no-directory`, `TOKEN no-python` and `TOKEN ended CODE` are for us: ssh's own
    exit code 255 means both "connection lost" and "the command ended with 255".  The agent itself adds `TOKEN begun`.
    PATH comes before that of the remote shell, and does not replace it.
    """
    environment = {**(options.environment or {}), MARK: token}
    path = environment.pop("PATH", "")
    assignments = [shlex.quote(f"{name}={value}") for name, value in environment.items()]
    if path:
        assignments.append(f'PATH={shlex.quote(path)}:"$PATH"')
    command = " ".join(["env", *assignments, shlex.join(words)])
    folder = shlex.quote(options.directory or ".")
    script = (
        f"echo {token} started >&2; "
        f"cd -- {folder} || {{ echo {token} no-directory >&2; exit 121; }}; "
        f"command -v {shlex.quote(words[0])} >/dev/null || {{ echo {token} no-python >&2; exit 127; }}; "
        f"{command}; code=$?; echo {token} ended $code >&2; exit $code"
    )
    return f"exec sh -c {shlex.quote(script)}"  # the user's own shell may be csh or fish
