"""What a machine is asked for, and what came of it."""

from typing import Any

import msgspec
from msgspec import Struct

from allready.errors import ExchangeError
from allready.facts.exchange import from_json
from allready.facts.files import words_of
from allready.model import LaunchFacts, NodeFacts
from allready.model.fill import said


class Also(Struct, frozen=True, kw_only=True):
    """What is asked of one machine and not of every node of a job."""

    ports: tuple[int, int] | None = None  # the range in which a job will listen
    peers: tuple[str, ...] = ()  # names or addresses of the job's other machines
    imports: bool = True  # import torch and JAX, which costs seconds of CPU
    use_gpus: bool = False  # ask them for their devices, which takes memory of GPUs


class FactsOrder(Struct, frozen=True, kw_only=True):
    """What the child is asked for.  until_s: on the monotonic clock, which all processes of a machine share."""

    launch: LaunchFacts
    also: Also
    until_s: float


class CollectedFacts(Struct, frozen=True, kw_only=True):
    """The facts, and the configuration files of NCCL that could be read."""

    facts: NodeFacts
    conf_files: tuple[tuple[str, str], ...] = ()


class _Answer(Struct, frozen=True, kw_only=True):
    """As the child writes it."""

    facts: Any
    conf_files: tuple[tuple[str, str], ...] = ()


def answer_in(line: bytes) -> CollectedFacts:
    """The child's answer, as it was found; without one, why there are no facts."""
    try:
        answer = msgspec.json.decode(line, type=_Answer)
        return CollectedFacts(facts=from_json(answer.facts), conf_files=answer.conf_files)
    except (ExchangeError, msgspec.MsgspecError) as error:
        return none_found(error)


def none_found(error: Exception) -> CollectedFacts:
    """No facts, and why."""
    return CollectedFacts(
        facts=NodeFacts.none(said("the facts were not read in time ({error})", error=words_of(error)))
    )
