from collections.abc import Iterator

from allready.judging.majority import Split
from allready.judging.node_split import brief
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.signs import Sign
from allready.judging.values import seen
from allready.model import Culprits, EnvFacts, FaultClass, Hit, PerNode, RemedyStep, Severity
from allready.variables import table
from allready.variables.versions import is_read


@Rule(
    code="ENV007",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    unless=(Sign.LINTED,),
    title="A variable has no effect: no library reads it",
    message="{name} is set ({split}) but has no effect: neither NCCL nor PyTorch, Gloo or JAX reads it",
    remedy=RemedyStep(
        explanation="remove it[[; what has this effect is {instead}]]", where="every node", command="unset {name}"
    ),
)
def variable_unknown(env: PerNode[EnvFacts]) -> Iterator[Hit]:
    """
    ## What it checks
    Names that guides recommend and that no current release of NCCL, PyTorch, Gloo or JAX reads.
    ## Why it matters
    With NCCL_TIMEOUT set the timeout seems to be raised, and the job ends after the old one. NCCL has no timeout for
    collectives at all; PyTorch's is an argument.
    ## Check by hand
    `strings` on libnccl.so and libtorch_cuda.so, followed by `grep -w NAME`, prints nothing.
    ## When it is harmless
    When your own script reads it.
    """
    found: dict[str, dict[int, str]] = {}
    for node, facts in env.items():
        for name in facts.variables.keys() & table.load().keys():
            if is_read(table.load()[name]):
                continue
            found.setdefault(name, {})[node] = facts.variables[name]
    for name, values in sorted(found.items()):
        yield Hit(
            culprits=Culprits(variables=(name,)),
            values={"name": name, "split": brief(Split.by(values)), "instead": table.load()[name].use or None},
            evidence=seen("environment", {n: f"{name}={value[:200]}" for n, value in values.items()}, most=4),
        )
