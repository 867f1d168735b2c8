"""Which kind a file is, and everything that it assigns."""

import re
from collections.abc import Mapping
from pathlib import PurePath

from msgspec import Struct

from allready.model.settings import Call, Malformed, Setting, SourceKind
from allready.variables.sources import markdown, plain
from allready.variables.sources.dockerfile import parse_dockerfile
from allready.variables.sources.parsed import Found
from allready.variables.sources.python import parse_python
from allready.variables.sources.shell import parse_shell
from allready.variables.sources.structured import parse_structured

MAX_BYTES = 8 << 20

_NAMES = (
    (
        re.compile(r"(?:.*[./])?(?:Dockerfile|Containerfile)(?:\..*)?|.*\.(?:Dockerfile|dockerfile)"),
        SourceKind.DOCKERFILE,
    ),
    (re.compile(r".*\.(?:ya?ml|json)"), SourceKind.CONFIG),
    (re.compile(r".*\.py"), SourceKind.PYTHON),
    (re.compile(r"\.?nccl\.conf"), SourceKind.NCCL_CONF),
    (re.compile(r"\.env(?:\..*)?|.*\.env|\.deepspeed_env"), SourceKind.DOTENV),
    (re.compile(r".*\.(?:sh|bash|zsh|sbatch|slurm|pbs|lsf|csh)"), SourceKind.SHELL),
    (re.compile(r".*\.(?:md|rst|markdown)"), SourceKind.MARKDOWN),
)
_COMMAND = re.compile(
    r"^\s*(?:export|#!|#SBATCH|setenv|srun|mpirun|torchrun|python|deepspeed|accelerate)\b|^#!", re.MULTILINE
)
_USED = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]{0,80})")
_BATCH = re.compile(r"^#(?:SBATCH|PBS|BSUB|COBALT|OAR|PJM)[ \t]+\S", re.MULTILINE)
_DUMP_LINE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")


class Parsed(Struct, frozen=True, kw_only=True):
    """One file, read."""

    kind: SourceKind
    settings: tuple[Setting, ...]
    calls: tuple[Call, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    used: frozenset[str] = frozenset()  # variables that a shell script itself reads


def read_text(source: str, text: str) -> Parsed:
    """Everything that a file of this name and content assigns.

    Raises:
        YamlMissingError: it is YAML or JSON, and PyYAML is not installed.
    """
    kind = kind_of(source, text)
    match kind:
        case SourceKind.DOCKERFILE:
            found = parse_dockerfile(text)
        case SourceKind.PYTHON:
            found = parse_python(text)
        case SourceKind.NCCL_CONF:
            found = plain.parse_nccl_conf(text)
        case SourceKind.DOTENV:
            found = plain.parse_dotenv(text)
        case SourceKind.DUMP:
            found = plain.parse_dump(text)
        case SourceKind.MARKDOWN:
            found = markdown.parse_markdown(text)
        case SourceKind.CONFIG:
            found, is_manifest = parse_structured(text)
            kind = SourceKind.KUBERNETES if is_manifest else kind
        case _:
            found = parse_shell(text)
            kind = SourceKind.BATCH if _BATCH.search(text) else SourceKind.SHELL
    used = frozenset(_USED.findall(text)) if kind in {SourceKind.SHELL, SourceKind.BATCH} else frozenset()
    return _parsed(source, kind, found, used)


def read_environment(variables: Mapping[str, str], source: str = "environment") -> Parsed:
    """The variables of a process."""
    settings = tuple(Setting(name=name, value=value, source=source) for name, value in sorted(variables.items()))
    return Parsed(kind=SourceKind.ENVIRONMENT, settings=settings)


def kind_of(source: str, text: str) -> SourceKind:
    """By the file's name, and where that says nothing by its content."""
    name = PurePath(source).name
    by_name = next((kind for pattern, kind in _NAMES if pattern.fullmatch(name)), None)
    if by_name is not None:
        return by_name
    if "\0" in text[:4096]:
        return SourceKind.DUMP
    if markdown.is_markdown(text):
        return SourceKind.MARKDOWN
    if _COMMAND.search(text):
        return SourceKind.SHELL
    lines = [line for line in text.split("\n")[:200] if line.strip()]
    if lines and all(_DUMP_LINE.fullmatch(line) for line in lines):
        return SourceKind.DUMP
    return SourceKind.SHELL


def _parsed(source: str, kind: SourceKind, found: Found, used: frozenset[str]) -> Parsed:
    settings, calls, malformed = found.named(source, kind)
    return Parsed(kind=kind, settings=tuple(settings), calls=tuple(calls), malformed=tuple(malformed), used=used)
