"""Why a library chose its interfaces, or fails with them, as phrases."""

from collections.abc import Mapping

from allready.model import ChoiceFault, ChoiceStep, InterfaceChoice, Phrase
from allready.model.fill import UNKNOWN

_STEPS: Mapping[ChoiceStep, str] = {
    ChoiceStep.UNSPECIFIED: "for a reason that is not known",
    ChoiceStep.NAMED: "named by {variable}",
    ChoiceStep.IB: "automatic: ib* comes first",
    ChoiceStep.COMM_ID: "in the subnet of NCCL_COMM_ID",
    ChoiceStep.ALL_BUT: "automatic: all but {names}",
    ChoiceStep.ONLY: "automatic: nothing but {names} is left",
    ChoiceStep.NONE: "no interface has an address that NCCL takes",
    ChoiceStep.HOST_NAME: "the host name resolves to it",
    ChoiceStep.NAME_UNRESOLVED: "the host name does not resolve, therefore loopback",
    ChoiceStep.NAME_OF_ANOTHER: "the host name resolves to no address of this node, therefore loopback",
}
_FAULTS: Mapping[ChoiceFault, str] = {
    ChoiceFault.NO_INTERFACE: "no interface here is up and has an address[[ with NCCL_SOCKET_FAMILY={family}]]",
    ChoiceFault.NO_MATCH: "no interface here matches {name}",
    ChoiceFault.MATCH_IS_DOWN: "{name} matches {pattern}, but is down or has no address"
    "[[ with NCCL_SOCKET_FAMILY={family}]]",
    ChoiceFault.NOT_IN_SUBNET: "no interface here is in the subnet of NCCL_COMM_ID ({name})",
    ChoiceFault.NO_LOOPBACK: "not even {name} can be bound: is lo up?",
    ChoiceFault.NO_ADDRESS: "{name} has no address",
    ChoiceFault.EMPTY_ENTRY: "an empty entry: one comma too many",
    ChoiceFault.NCCL_SYNTAX: "Gloo takes exact names only, ^ and = are NCCL's syntax: no interface is called {name}",
    ChoiceFault.BLANKS: "no interface is called {name}: blanks are not removed",
    ChoiceFault.NO_SUCH_NAME: "no interface here is called {name}",
}
_SET_UP = "the bootstrap takes the subnet of NCCL_COMM_ID; data: {step}"


def say_choice(choice: InterfaceChoice) -> Phrase:
    """Why the library fails, or which step of its search gave this choice: `automatic: all but docker*, lo*`."""
    if (failure := choice.failure) is not None:
        name = repr(failure.name) if failure.fault is ChoiceFault.BLANKS else failure.name
        values = {"name": name, "pattern": failure.pattern, "family": failure.family or UNKNOWN}
        return Phrase(_FAULTS[failure.fault], values)
    step = Phrase(_STEPS[choice.step], {"variable": choice.variable, "names": ", ".join(choice.names)})
    return Phrase(_SET_UP, {"step": step}) if choice.is_set_up_by_comm_id else step
