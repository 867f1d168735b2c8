"""ENV020."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, GpuFacts, Hit, ImportFacts, PerNode, RemedyStep, Severity
from allready.rules.env._children import failure_values, has_failed, shown_failure

ASK = {"torch": "torch.cuda.init(); print(torch.cuda.device_count())", "jax": "print(jax.local_devices())"}


@Rule(
    code="ENV020",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
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
