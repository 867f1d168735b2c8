"""Imports and lists of devices that fail or hang, and what the ends of the children mean that are asked for them."""

from collections.abc import Iterator
from typing import Any

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.values import seen
from allready.model import (
    ChildEnd,
    Confidence,
    Culprits,
    FaultClass,
    GpuFacts,
    Hit,
    ImportFacts,
    PerNode,
    ProcessState,
    RemedyStep,
    Severity,
    World,
)

SLOW_S = 20.0
"""Longer than anything takes that is only slow, on a file system that works."""
IDLE_CPU_S = 0.02
_FILES = ("request_wait", "fuse", "nfs", "rpc_", "cl_sync", "ll_", "ceph", "io_schedule", "folio_wait", "wait_on_page")
"""Beginnings of the kernel functions in which a process waits for a file system, also one over a network."""


def has_failed(one: ChildEnd) -> bool:
    """An exception, or the end of the interpreter."""
    return one.outcome in {"failed", "died"}


def hangs(one: ChildEnd) -> bool:
    """It did nothing for the last second.  One that waits for a file system may be only slow."""
    is_idle = one.recent_cpu_s is not None and one.recent_cpu_s <= IDLE_CPU_S
    is_reading = (one.wchan or "").startswith(_FILES)
    is_asleep = one.state in {ProcessState.SLEEPING, ProcessState.STOPPED} and not is_reading
    return one.outcome == "silent" and is_idle and (is_asleep or one.limit_s >= SLOW_S)


def weight_of_hang(one: ChildEnd) -> dict[str, Any]:
    """Severity and confidence of a hit, by how long it was waited for."""
    is_long = one.limit_s >= SLOW_S
    return {
        "severity": Severity.ERROR if is_long else None,
        "confidence": Confidence.LIKELY if is_long else Confidence.POSSIBLE,
    }


def failure_values(one: ChildEnd) -> dict[str, object]:
    """How it failed, for a message: one of the three is known."""
    return {
        "error": (one.error if one.outcome == "failed" else None) or None,
        "signal": one.signal or None,
        "exit_code": one.exit_code,
    }


def hang_values(one: ChildEnd) -> dict[str, object]:
    """How long it has been silent and where it stands, for a message."""
    return {
        "seconds": f"{one.duration_s:.1f}",
        "recent": f"{one.recent_cpu_s or 0:.2f}",
        "place": one.stack[0] if one.stack else None,
    }


def shown_failure(one: ChildEnd) -> str:
    """As evidence."""
    how = one.error or one.signal or f"exit code {one.exit_code}"
    return " < ".join([how, *one.stack[:4]])


def shown_hang(one: ChildEnd) -> str:
    """As evidence."""
    return " < ".join(one.stack[:6]) or f"state {one.state}"


@Rule(
    code="ENV012",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="torch or JAX is installed and cannot be imported",
    message="node {node}: import {module} [[raises {error}|ends the interpreter with {signal}|ends the interpreter "
    "with exit code {exit_code}]]",
    remedy=(
        RemedyStep(
            explanation="see the whole traceback, and which file is imported",
            where="node {node}",
            command="python -X faulthandler -X importtime -c 'import {module}' 2>&1 | tail -40",
        ),
        RemedyStep(
            explanation="a missing symbol or library: the wheels are of different releases, or LD_LIBRARY_PATH and "
            "LD_PRELOAD put another one in front",
            where="node {node}",
            command='python -m pip check; echo "$LD_LIBRARY_PATH $LD_PRELOAD $PYTHONPATH"',
        ),
    ),
)
def import_fails(imports: PerNode[ImportFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    `import torch` and `import jax`, each in a process of its own that is ended afterwards. A module that is not
    installed is no finding; one that is installed and raises an exception or ends the interpreter is.
    ## Why it matters
    Every rank of this node ends in its first line. The launcher reports only an exit code, and the other nodes wait for
    this one until their timeout.
    ## Check by hand
    `python -c 'import torch'`, with the interpreter and the environment of the job.
    ## When it is harmless
    When the job uses the other framework, or another interpreter than the one that runs allready.
    """
    for node, facts in imports.items():
        for one in facts.modules:
            if has_failed(one):
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "module": one.module, **failure_values(one)},
                    evidence=seen(f"import {one.module}", {node: shown_failure(one)}),
                )


@Rule(
    code="ENV013",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="The import of torch or JAX hangs",
    message="node {node}: import {module} has not ended after {seconds} s and used {recent} s of CPU in the last second"
    "[[; it stands in {place}]]",
    remedy=(
        RemedyStep(
            explanation="see where it stands",
            where="node {node}",
            command="timeout -s ABRT 30 python -X faulthandler -c 'import {module}'",
        ),
        RemedyStep(
            explanation="give it more time, to know whether it ends",
            where="node {node}",
            command="allready doctor --timeout 120",
        ),
    ),
)
def import_hangs(imports: PerNode[ImportFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a process that only imports torch or JAX makes no progress: it has not ended within the time, and in the
    last second it slept and used no CPU. With a time of 20 s or more (`doctor --timeout`) it is an error, else a
    warning. An import that still computes or waits for a file system is only slow: then it is not checked.
    ## Why it matters
    All ranks of this node hang before their first line of output, and no timeout of torch or JAX has begun.
    ## Check by hand
    `timeout -s ABRT 30 python -X faulthandler -c 'import torch'` prints the stack where it stands.
    ## When it is harmless
    When something that the import waits for was only slow, for example a network name service: with a longer
    `--timeout` the finding is gone.
    """
    for node, facts in imports.items():
        for one in facts.modules:
            if hangs(one):
                yield Hit(
                    **weight_of_hang(one),
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "module": one.module, **hang_values(one)},
                    evidence=seen(f"import {one.module}", {node: shown_hang(one)}),
                )


ASK = {"torch": "torch.cuda.init(); print(torch.cuda.device_count())", "jax": "print(jax.local_devices())"}


@Rule(
    code="ENV020",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="torch or JAX fails when it is asked for its devices",
    message="node {node}: {module} can be imported; asking it for its devices [[raises {error}|ends the interpreter "
    "with {signal}|ends the interpreter with exit code {exit_code}]]",
    remedy=(
        RemedyStep(
            explanation="see the whole message",
            where="node {node}",
            command="python -X faulthandler -c 'import {module}; {ask}'",
        ),
        RemedyStep(
            explanation="JAX: a flag that this release does not know ends it; look at XLA_FLAGS and JAX_PLATFORMS",
            where="node {node}",
            command="env | grep -E '^(XLA|JAX|CUDA|LIBTPU)_'; python -m pip list | grep -i jax",
        ),
        RemedyStep(
            explanation="where the driver lists GPUs that cannot be used, the kernel log has the reason",
            where="node {node}",
            command="nvidia-smi; dmesg | grep -i -e nvrm -e xid | tail",
        ),
    ),
)
def devices_fail(imports: PerNode[ImportFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    What becomes of torch or JAX when it is asked for its devices, in a process of its own: with `--use-gpus` both and
    all devices, else JAX with its CPU device on a machine that has no GPU. An exception or a crash is a finding; for
    torch only where the driver lists GPUs.
    ## Why it matters
    Every rank of this node ends in its first call that needs a device, and the other nodes wait for this one until
    their timeout.
    ## Check by hand
    `python -c 'import jax; print(jax.local_devices())'`, `python -c 'import torch; torch.cuda.init()'`.
    ## When it is harmless
    When the job uses the other framework, or another interpreter or environment than the one that runs allready.
    """
    gpus = case.facts(GpuFacts)
    for node, facts in imports.items():
        has_gpus = node in gpus and bool(gpus[node].visible)
        for one in facts.modules:
            asked = one.devices
            if asked is not None and has_failed(asked) and (has_gpus or one.module != "torch"):
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": case.world.label(node),
                        "module": one.module,
                        "ask": ASK.get(one.module, ""),
                        **failure_values(asked),
                    },
                    evidence=seen(f"devices of {one.module}", {node: shown_failure(asked)}),
                )


@Rule(
    code="ENV021",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="torch or JAX hangs when it is asked for its devices",
    message="node {node}: {module} can be imported; asked for its devices it has not answered after {seconds} s and "
    "used {recent} s of CPU in the last second[[; it stands in {place}]]",
    remedy=(
        RemedyStep(
            explanation="see whether the driver itself answers, and what the kernel says of it",
            where="node {node}",
            command="timeout 20 nvidia-smi; dmesg | grep -i -e nvrm -e xid | tail",
        ),
        RemedyStep(
            explanation="give it more time, to know whether it ends",
            where="node {node}",
            command="allready doctor --use-gpus --timeout 120",
        ),
    ),
)
def devices_hang(imports: PerNode[ImportFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a process that has imported torch or JAX and asks for its devices makes no progress: no answer within the
    time, and in the last second it slept and used no CPU. With a time of 20 s or more it is an error, else a warning.
    `--use-gpus` asks both for all devices; without it only JAX is asked, on a machine that has no GPU.
    ## Why it matters
    All ranks of this node hang in their first call that needs a device, before a timeout of torch or JAX has begun.
    ## Check by hand
    `timeout -s ABRT 60 python -X faulthandler -c 'import torch; torch.cuda.init()'` prints the stack where it stands.
    ## When it is harmless
    When a driver was only starting: with a longer `--timeout` the finding is gone.
    """
    for node, facts in imports.items():
        for one in facts.modules:
            if one.devices is not None and hangs(one.devices):
                yield Hit(
                    **weight_of_hang(one.devices),
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "module": one.module, **hang_values(one.devices)},
                    evidence=seen(f"devices of {one.module}", {node: shown_hang(one.devices)}),
                )
