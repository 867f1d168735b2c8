from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import Kind, blame_first_run
from allready.model import Collectives, FaultClass, Hit, Severity, World
from allready.rules.collective._hits import hit_of


@Rule(
    code="COL003",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.STAGE,
    title="A rank failed with an error of its own",
    message="rank {ranks} failed in stage {stage}[[: {error}]]",
    remedy="read that error on node {nodes}; with NCCL the line above it says more: run again with NCCL_DEBUG=WARN; "
    "errors of other ranks about closed connections are its echo",
)
def rank_failed(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The last line of the exception of every rank when a stage fails.  Errors that only tell of another rank's end
    (closed or reset connections, time-outs, aborted communicators) do not count as an error of its own.  When all ranks
    failed with the same error, no rank is named.
    ## Why it matters
    The first error explains all others; in the logs of a big job it is one line among thousands of echoes.
    ## Check by hand
    Sort the ranks' logs by time; the earliest error that does not speak of a peer is the cause.
    ## When it is harmless
    Never: this stage does nothing that a healthy job could do without.
    """
    found = blame_first_run(collectives, Kind.FAILED)
    if found is None:
        return
    is_unreached = all(s.is_store_unreachable for s in found.states)
    yield hit_of(found, world, fault_class=FaultClass.START_PATH if is_unreached else None)
