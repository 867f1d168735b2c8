from collections.abc import Iterator

from allready.judging.majority import Split
from allready.judging.node_split import assign, cut, differing, unset
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said
from allready.judging.values import on_nodes
from allready.model import EnvFacts, FaultClass, Hit, PerNode, RemedyStep, Severity, World
from allready.rules.env._variables import comparable, severity_of

MAX_HITS = 64


@Rule(
    code="ENV002",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="A variable differs between nodes",
    message="{name} differs between nodes: {split}",
    remedy=RemedyStep(
        explanation="set {name} to the same value on every node before the job starts",
        where="node {nodes}",
        command="{command}",
    ),
)
def variable_differs(env: PerNode[EnvFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The values of all variables that PyTorch, NCCL, Gloo, CUDA, JAX and XLA read, and whether they are set at all, node
    by node. It is an error for those on which all ranks must agree (algorithms, protocols, channels, transports, NCCL
    plugins, XLA_FLAGS, TORCH_NCCL_..., TORCH_DISTRIBUTED_DEBUG) and a warning for others. Variables that belong to one
    node (interface and device names, CUDA_VISIBLE_DEVICES, files and folders, numbers of threads, log levels, ranks)
    may differ. The order of XLA_FLAGS does not matter.
    ## Why it matters
    Ranks that choose different algorithms or protocols wait for messages that never come, or misread a buffer: a hang
    at the first collective, "message truncated", or wrong numbers. Launchers that start over ssh, and files that only
    an interactive shell reads, leave variables unset on the other nodes.
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
    differing_names = [
        (severity, name)
        for name, found in values.items()
        if (severity := severity_of(name)) is not None and (len(found) < len(env) or len(set(found.values())) > 1)
    ]
    differing_names.sort(key=lambda item: (-item[0].weight, item[1]))
    for severity, name in differing_names[:MAX_HITS]:
        found = {node: values[name].get(node) for node in env}
        split = Split.by(found, num_members=world.num_nodes)
        odd = split.outliers()
        wanted = split.groups[:1] if odd else split.groups[:3]
        yield from differing(
            found,
            "environment",
            num_nodes=world.num_nodes,
            texts={
                n: said("{name}=(unset)", name=name) if value is None else f"{name}={cut([value], 400)[0]}"
                for n, value in found.items()
            },
            without=unset,
            severity=severity,
            variables=(name,),
            name=name,
            nodes=on_nodes(world, odd or tuple(env)),
            command=" | ".join(assign(name, value) for value, _ in wanted),
        )
