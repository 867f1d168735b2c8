"""ENV007."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.node_split import brief
from allready.judging.registry import Rule
from allready.model import Culprits, EnvFacts, Evidence, FaultClass, Hit, PerNode, Severity
from allready.rules.env._variables import FOLK


@Rule(
    code="ENV007",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="A variable that nothing reads",
    message="{name} is set ({split}), but neither NCCL nor PyTorch, Gloo or JAX reads a variable of that name",
    remedy="unset {name}; what does it: {instead}",
)
def variable_unknown(env: PerNode[EnvFacts]) -> Iterator[Hit]:
    """
    ## What it checks
    Names that are passed on from guide to guide, and that no current release of NCCL, PyTorch, Gloo or JAX reads.
    ## Why it matters
    Who sets NCCL_TIMEOUT believes that the time-out was raised, and the job ends after the old one. NCCL has no
    time-out for collectives at all; PyTorch's is an argument.
    ## Check by hand
    `strings` on libnccl.so and libtorch_cuda.so, followed by `grep -w NAME`, prints nothing.
    ## When it is harmless
    When your own script reads it.
    """
    found: dict[str, dict[int, str]] = {}
    for node, facts in env.items():
        for name in facts.variables.keys() & FOLK.keys():
            found.setdefault(name, {})[node] = facts.variables[name]
    for name, values in sorted(found.items()):
        yield Hit(
            culprits=Culprits(variables=(name,)),
            values={"name": name, "split": brief(Split.by(values)), "instead": FOLK[name]},
            evidence=tuple(
                Evidence(source="environment", text=f"{name}={values[n][:200]}", node_rank=n) for n in list(values)[:4]
            ),
        )
