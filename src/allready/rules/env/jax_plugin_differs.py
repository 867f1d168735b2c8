"""ENV017."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, GpuFacts, Hit, PerNode, RemedyStep, Severity, SoftwareFacts, World

PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")


@Rule(
    code="ENV017",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="JAX's CUDA plugin does not fit jaxlib",
    message="node {node}: {plugin} {version} is installed beside jaxlib {jaxlib}; JAX does not use it and "
    "computes on the CPU",
    remedy=(
        RemedyStep(
            explanation="install the same release of both",
            where="node {node}",
            command="python -m pip install -U 'jax[{extra}]=={jax}'",
        ),
    ),
)
def jax_plugin_differs(software: PerNode[SoftwareFacts], gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    On nodes with GPUs: the versions of jaxlib and of its CUDA plugin (jax-cuda12-plugin, jax-cuda13-plugin), of
    which all but what follows a plus must be equal. A node without the plugin is no finding: JAX may not be
    what uses the GPUs.
    ## Why it matters
    JAX warns that the plugin is not compatible, takes the CPU in its place, and the process of this node sees
    another number of devices than the others.
    ## Check by hand
    `pip list | grep -i jax`; `python -c 'import jax; print(jax.devices())'`.
    ## When it is harmless
    Where the job uses JAX on the CPU only.
    """
    for node, facts in software.items():
        jaxlib = facts.versions.get("jaxlib")
        found = {name: facts.versions[name] for name in PLUGINS if name in facts.versions}
        if jaxlib is None or not gpu[node].visible or any(_release(v) == _release(jaxlib) for v in found.values()):
            continue
        for plugin, version in found.items():
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "plugin": plugin,
                    "version": version,
                    "jaxlib": jaxlib,
                    "jax": facts.versions.get("jax", jaxlib),
                    "extra": plugin.split("-")[1],
                },
                evidence=seen(
                    "installed packages",
                    {node: said("jaxlib {jaxlib}, {plugin} {version}", jaxlib=jaxlib, plugin=plugin, version=version)},
                ),
            )


def _release(version: str) -> str:
    return version.partition("+")[0].partition(".post")[0]
