"""Stage 3 of `check`: which node reaches which, over the addresses that NCCL and Gloo will use.

Node 0 calls `conduct`; every node, node 0 included, calls `take_part` when it receives "reach.open".

    hub                              node
    reach.open      what to try  ->  opens listeners on its chosen addresses
    reach.endpoint  addresses, ports <-
    reach.plan      ITS partners ->  round by round: connects, echoes, datagrams
    reach.result    one row per path <-
    reach.collect                ->  which datagrams arrived?
    reach.arrived                  <-
    reach.count     only where packets of a burst were lost: the last burst of datagrams ->
    reach.counted                    <-
    reach.collect, reach.arrived     once more, then
    reach.done                   ->  closes everything

That is three to five messages each way per node, whatever the number of nodes.
"""

from allready.preflight.reach.hub import conduct
from allready.preflight.reach.node import take_part
from allready.preflight.reach.schedule import Schedule, make_schedule
from allready.preflight.reach.wire import ReachRequest

__all__ = ["ReachRequest", "Schedule", "conduct", "make_schedule", "take_part"]
