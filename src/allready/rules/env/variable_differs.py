"""ENV002."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.node_split import UNSET, assign, brief, cut, some
from allready.judging.registry import Rule
from allready.model import Culprits, EnvFacts, Evidence, FaultClass, Hit, PerNode, Severity
from allready.rules.env._variables import comparable, severity_of

MAX_HITS = 64


@Rule(
    code="ENV002",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="A variable differs between nodes",
    message="{name} differs between nodes: {split}",
    remedy="set {name} alike on every node before the job starts: {command}",
)
def variable_differs(env: PerNode[EnvFacts]) -> Iterator[Hit]:
    """
    ## What it checks
    The values of all variables that PyTorch, NCCL, Gloo, CUDA, JAX and XLA read, and whether they are set at all,
    node by node. It is an error for those on which all ranks must agree (algorithms, protocols, channels, transports,
    NCCL plugins, XLA_FLAGS, TORCH_NCCL_..., TORCH_DISTRIBUTED_DEBUG) and a warning for others. Variables that belong
    to one node (interface and device names, CUDA_VISIBLE_DEVICES, files and folders, numbers of threads, log levels,
    ranks) may differ and are not looked at. The order of XLA_FLAGS does not matter.
    ## Why it matters
    Ranks that choose different algorithms or protocols wait for messages that never come, or take a buffer for what
    it is not: a hang at the first collective, "message truncated", or wrong numbers. Launchers that start over ssh,
    and files that only an interactive shell reads, leave variables unset on the other nodes.
    ## Check by hand
    `env | grep -E "^(NCCL|TORCH|GLOO|XLA|JAX|CUDA)_" | sort` on every node, in the job's own environment; also
    /etc/nccl.conf and ~/.nccl.conf, which NCCL reads too.
    ## When it is harmless
    When the variable belongs to a library that the job does not use.
    """
    values: dict[str, dict[int, str]] = {}
    for node, facts in env.items():
        for name, value in facts.variables.items():
            values.setdefault(name, {})[node] = comparable(name, value)
    differing = [
        (severity, name)
        for name, found in values.items()
        if (severity := severity_of(name)) is not None and (len(found) < len(env) or len(set(found.values())) > 1)
    ]
    differing.sort(key=lambda item: (-item[0].weight, item[1]))
    for severity, name in differing[:MAX_HITS]:
        found = {node: values[name].get(node, UNSET) for node in env}
        split = Split.by(found)
        outliers = split.outliers()
        wanted = split.groups[:1] if outliers else split.groups[:3]
        commands = [assign(name, value) for value, _ in wanted]
        yield Hit(
            severity=severity,
            culprits=Culprits(nodes=outliers, variables=(name,)),
            values={"name": name, "split": brief(split), "command": " | ".join(commands)},
            evidence=tuple(
                Evidence(source="environment", text=f"{name}={cut([found[n]], 400)[0]}", node_rank=n)
                for n in some(found, outliers)
            ),
        )
