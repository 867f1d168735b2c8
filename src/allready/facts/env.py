"""Environment variables that the job's libraries read."""

import contextlib
import functools
from collections.abc import Iterator

from allready.errors import DeadlineExceeded
from allready.facts.host import Host, text_of
from allready.facts.tasks import Task
from allready.model import EnvFacts, SourceKind
from allready.patterns import compiled
from allready.redaction import redact
from allready.variables.sources.parsed import Parsed

CONF_S = 0.5
MAX_VARIABLES = 400
MAX_VALUE_CHARS = 1024

FAMILIES = (
    "NCCL_", "RCCL_", "TORCH_", "PYTORCH_", "GLOO_", "CUDA_", "JAX_", "XLA_", "OMP_", "MKL_", "TF_XLA_", "TF_CUDNN_",
    "TF_GPU_", "TF_CPP_", "FI_", "UCX_", "NVSHMEM_", "TP_", "HSA_", "HIP_", "ROCR_",
)  # fmt: skip
SINGLE = frozenset({"PYTHONHASHSEED", "LD_LIBRARY_PATH", "LD_PRELOAD"})
_CONF_NAME = r"NCCL_[A-Z0-9_]+"


def collect_env(host: Host) -> EnvFacts:
    """The variables of the families above, secrets removed; NCCL's configuration files count as environment.

    NCCL puts the lines of its configuration files into the environment where the variable is not set, so a node
    with another /etc/nccl.conf behaves as one with other variables.
    """
    variables = {**nccl_conf(host), **{k: v for k, v in host.environ.items() if is_read(k)}}
    return EnvFacts(
        variables={
            name[:128]: redact(name, value[: 2 * MAX_VALUE_CHARS])[:MAX_VALUE_CHARS]
            for name, value in sorted(variables.items())[:MAX_VARIABLES]
        }
    )


def is_read(name: str) -> bool:
    """Whether the job's libraries read a variable of this name."""
    return name in SINGLE or name.startswith(FAMILIES)


def nccl_conf(host: Host) -> dict[str, str]:
    """Variables that NCCL takes from its configuration files, where the environment lacks them."""
    found: dict[str, str] = {}
    for path, text in nccl_conf_files(host):
        from allready.variables.sources.plain import parse_nccl_conf  # which most machines have no need of

        parsed = Parsed(source=path, kind=SourceKind.NCCL_CONF)
        parse_nccl_conf(text, parsed)
        for setting in parsed.settings:
            if compiled(_CONF_NAME).fullmatch(setting.name):
                found.setdefault(setting.name, setting.value or "")
    return found


def nccl_conf_files(host: Host) -> Iterator[tuple[str, str]]:
    """Path and text of NCCL's configuration files: NCCL_CONF_FILE or ~/.nccl.conf, which wins, then /etc/nccl.conf."""
    home = host.environ.get("HOME", "")
    first = host.environ.get("NCCL_CONF_FILE") or (f"{home}/.nccl.conf" if home.startswith("/") else "")
    for path in filter(None, (first, "/etc/nccl.conf")):
        with contextlib.suppress(DeadlineExceeded):  # a home folder whose server is gone
            yield path, Task(functools.partial(text_of, host, path), "nccl-conf").result(timeout_s=CONF_S)
