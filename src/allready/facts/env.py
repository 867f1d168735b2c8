"""Environment variables that the job's libraries read, and the removal of secrets."""

import contextlib
import functools
import re
from collections.abc import Iterator

from allready.errors import DeadlineExceeded
from allready.facts.host import Host, text_of
from allready.facts.tasks import Task
from allready.model import EnvFacts, SourceKind
from allready.variables.sources.parsed import Parsed
from allready.variables.sources.plain import parse_nccl_conf

REDACTED = "(redacted)"
CONF_S = 0.5
MAX_VARIABLES = 400
MAX_VALUE_CHARS = 1024

FAMILIES = (
    "NCCL_", "RCCL_", "TORCH_", "PYTORCH_", "GLOO_", "CUDA_", "JAX_", "XLA_", "OMP_", "MKL_", "TF_XLA_", "TF_CUDNN_",
    "TF_GPU_", "TF_CPP_", "FI_", "UCX_", "NVSHMEM_", "TP_", "HSA_", "HIP_", "ROCR_",
)  # fmt: skip
SINGLE = frozenset({"PYTHONHASHSEED", "LD_LIBRARY_PATH", "LD_PRELOAD"})
# Whole words between underscores: NCCL_IB_PKEY is the number of a partition, not a key.
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:[A-Z0-9]*(?:TOKEN|SECRET|PASSWORD|PASSWD|APIKEY|ACCESSKEY|CREDENTIALS?)S?|KEY|KEYS|PASS|PWD|AUTH|COOKIE"
    r"|PRIVATE|SIGNATURE|BEARER|JWT)(?:_|$)",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"(?P<url>(?<=://)[^/\s@]+(?=@))"
    r"|(?:(?<=password=)|(?<=passwd=)|(?<=secret=)|(?<=token=)|(?<=api_key=)|(?<=apikey=))[^\s&;,]+"
    r"|(?<=bearer )\S+"
    r"|-----BEGIN[^-]*PRIVATE KEY.*"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"
    r"|\b(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|nvapi-|wandb_v1_|pypi-)[A-Za-z0-9_\-]{12,}"
    r"|\bAIza[0-9A-Za-z_\-]{30,}"
    r"|\beyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-.]+"
    r"|(?<![A-Za-z0-9])[0-9a-f]{32,}(?![A-Za-z0-9])",
    re.IGNORECASE | re.DOTALL,
)
_CONF_NAME = re.compile(r"NCCL_[A-Z0-9_]+")
# Base64 as tokens have it.  "/" is left out, or every long path would match.
_LONG_WORD = re.compile(r"[A-Za-z0-9+_\-]{40,}=*")
_GPU_UUID = re.compile(r"(?:MIG-)?(?:GPU|MIG)-[0-9a-f-]{36}")


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


def redact(name: str, value: str) -> str:
    """The value with every likely secret replaced by "(redacted)"; all of it if the name does."""
    if _SECRET_NAME.search(name):
        return REDACTED if value else value
    return _LONG_WORD.sub(_if_random, _SECRET_VALUE.sub(REDACTED, value))


def nccl_conf(host: Host) -> dict[str, str]:
    """Variables that NCCL takes from its configuration files, where the environment lacks them."""
    found: dict[str, str] = {}
    for path, text in nccl_conf_files(host):
        parsed = Parsed(source=path, kind=SourceKind.NCCL_CONF)
        parse_nccl_conf(text, parsed)
        for setting in parsed.settings:
            if _CONF_NAME.fullmatch(setting.name):
                found.setdefault(setting.name, setting.value or "")
    return found


def nccl_conf_files(host: Host) -> Iterator[tuple[str, str]]:
    """Path and text of NCCL's configuration files: NCCL_CONF_FILE or ~/.nccl.conf, which wins, then /etc/nccl.conf."""
    home = host.environ.get("HOME", "")
    first = host.environ.get("NCCL_CONF_FILE") or (f"{home}/.nccl.conf" if home.startswith("/") else "")
    for path in filter(None, (first, "/etc/nccl.conf")):
        with contextlib.suppress(DeadlineExceeded):  # a home folder whose server is gone
            yield path, Task(functools.partial(text_of, host, path), "nccl-conf").result(timeout_s=CONF_S)


def _if_random(match: re.Match[str]) -> str:
    word = match[0]
    if _GPU_UUID.fullmatch(word):
        return word
    mixed = all(len(re.findall(kind, word)) > 2 for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return REDACTED if mixed else word
