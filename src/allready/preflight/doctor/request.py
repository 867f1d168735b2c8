"""The job that a machine is judged for."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from allready.errors import UsageError
from allready.launch.layout import lay_out
from allready.model import LaunchFacts


def launch_for(flags: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[LaunchFacts, UsageError | None]:
    """The job by flags and the scheduler's variables; where these contradict each other, this machine alone and why.

    The node rank is 0: no peer is asked, and any node may be the first one.
    """
    try:
        return replace(lay_out(flags, environ, count_gpus=lambda: 1, by_agreement=True).launch, node_rank=0), None
    except UsageError as error:
        return alone(), error


def alone() -> LaunchFacts:
    """A job on this machine only."""
    return LaunchFacts(num_nodes=1, node_rank=0, nproc_per_node=1, master_addr="127.0.0.1", master_port=29500)
