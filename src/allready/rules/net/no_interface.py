from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.model import FaultClass, Hit, PerNode, RemedyStep, Severity, TransportFacts
from allready.rules.net._interfaces import Chosen, choice_hit, choices
from allready.text.choices import say_choice


@Rule(
    code="NET014",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    layer=Layer.PATH,
    applies=Applies.FACTS,
    title="NCCL or Gloo finds no usable interface",
    message="{library} finds no usable interface on node {nodes}: {error}",
    remedy=(
        RemedyStep(
            explanation="bring up the interface that leads to the other nodes and give it an address",
            where="node {nodes}",
            command="ip -br addr",
        ),
        RemedyStep(explanation="and set it", where="node {nodes}", command="export {variable}=IFNAME"),
    ),
)
def no_interface(transport: PerNode[TransportFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That NCCL and Gloo find an interface by themselves where none is set for them.
    ## Why it matters
    Without an interface the library fails at its first use, and the other nodes wait for this one.
    ## Check by hand
    `ip -br addr`: is there an interface that is UP and has an address? In a container: does it have a network?
    ## When it is harmless
    On a node that takes no part in collectives.
    """
    bad: dict[str, dict[int, Chosen]] = {}
    for item in case.of(choices):
        choice = item.choice
        nothing = not choice.pattern and (choice.failure or not choice.interfaces)
        other = (
            item.backend == "NCCL" and choice.failure and choice.interfaces
        )  # NCCL_COMM_ID in no subnet of this node
        if item.needed and (nothing or other):
            bad.setdefault(item.backend, {})[item.node] = item
    for _, items in sorted(bad.items(), reverse=True):
        errors = {n: say_choice(item.choice) for n, item in items.items()}
        yield choice_hit(case, items, errors, error=errors[min(items)])
