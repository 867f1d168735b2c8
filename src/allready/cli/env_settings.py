"""This environment as settings for rules to judge: what `env lint`, `doctor` and `bundle` have in common."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from allready.cli.env_machine import ThisMachine, cloud_of
from allready.facts.env import nccl_conf_files
from allready.facts.host import Host
from allready.model import EnvFacts, NodeFacts, Settings, SourceKind
from allready.redaction import redact
from allready.variables import table
from allready.variables.sources.parsed import Parsed, read_environment
from allready.variables.table import Type

ENVIRONMENT = "environment"
_INPUT_FILES = frozenset({
    "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE", "NCCL_TUNER_CONFIG_FILE", "NVTX_INJECTION64_PATH",
    "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE", "GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT", "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY",
})  # fmt: skip


def settings_here(host: Host, facts: NodeFacts) -> Settings:
    """This environment for rules to judge, with what NCCL's configuration files add."""
    machine = ThisMachine(facts=facts, cloud=cloud_of(host))
    settings = settings_in(environment(host), machine)
    return replace(settings, is_here=True, is_cluster=is_cluster_here(host.environ))


def settings_of(facts: NodeFacts) -> Settings | None:
    """The environment among the facts of a node, which may be another machine; None where it is not known."""
    env = facts.env
    if not isinstance(env, EnvFacts):
        return None
    return Settings(settings=tuple(read_environment(env.variables, ENVIRONMENT).settings), is_here=True)


def environment(host: Host) -> Parsed:
    """This environment, with what NCCL takes from its configuration files in front: the environment wins."""
    found = Parsed(source=ENVIRONMENT, kind=SourceKind.ENVIRONMENT)
    for path, text in reversed(list(nccl_conf_files(host))):
        from allready.variables.sources.plain import parse_nccl_conf  # which most machines have no need of

        conf = Parsed(source=path, kind=SourceKind.NCCL_CONF)
        parse_nccl_conf(text, conf)
        found.settings += conf.settings
        found.malformed += conf.malformed
    found.settings += read_environment(host.environ, ENVIRONMENT).settings
    return found


def settings_in(source: Parsed, machine: ThisMachine) -> Settings:
    """What rules judge: without secrets, and with what this machine says about paths."""
    shown = tuple(
        s if s.value is None or s.name in table.load() else replace(s, value=redact(s.name, s.value))
        for s in source.settings
    )
    return Settings(
        settings=shown,
        malformed=tuple(replace(m, text=redact("", m.text)) for m in source.malformed),
        used=source.used,
        loaders=tuple(source.loaders),
        meetings=tuple(source.meetings),
        one_gpu_per_task=source.one_gpu_per_task,
        cloud=machine.cloud,
        missing_files=frozenset(_missing_files(source)),
    )


def _missing_files(source: Parsed) -> Iterator[str]:
    for setting in source.settings:
        row = table.load().get(setting.name)
        value = setting.value or ""
        if row is None or not value.startswith("/") or "," in value:
            continue
        if (setting.name in _INPUT_FILES or row.type is Type.PLUGIN) and not Path(value).exists():
            yield value


def is_cluster_here(environ: Mapping[str, str]) -> bool | None:
    """Whether this process belongs to a job on several nodes."""
    for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "GROUP_WORLD_SIZE"):
        if environ.get(name, "").isdecimal():
            return int(environ[name]) > 1
    world, local = environ.get("WORLD_SIZE", ""), environ.get("LOCAL_WORLD_SIZE", "")
    return int(world) > int(local) if world.isdecimal() and local.isdecimal() else None
