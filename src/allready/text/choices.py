"""Why a library chose its interfaces, as a clause in either language."""

from allready.model import InterfaceChoice
from allready.text.ui import ui


def say_choice(choice: InterfaceChoice, language: str = "en") -> str:
    """Which step of the library's search gave this choice: `automatic: all but docker*, lo*`."""
    names = ", ".join(choice.names)
    step = ui(f"report.choice_{choice.step}", language, variable=choice.variable, names=names)
    return ui("report.choice_set_up", language, step=step) if choice.is_set_up_by_comm_id else step
