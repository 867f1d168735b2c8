"""Fault laboratory: the nodes of a cluster as network namespaces on this machine, and faults to break them with.

    with Lab.up(2) as lab:
        with lab.apply(PortDropped(node=0, port=29500)):
            done = lab.run(1, ["nc", "-zw1", "node0", "29500"])

A mistake of the caller raises UsageError, what this machine cannot do LabError.  Nothing else in allready imports this
package.
"""

from allready.lab.lab import AppliedFault, Lab, names, probe, take_down
from allready.lab.scenario import Command, NodeOutcome, ScenarioResult, run_scenario

__all__ = [
    "AppliedFault",
    "Command",
    "Lab",
    "NodeOutcome",
    "ScenarioResult",
    "names",
    "probe",
    "run_scenario",
    "take_down",
]
