from allready.model import FactMissing, UsageFacts, Volume
from tests.fleets import GIB, check, fleet


def test_names_the_node_and_the_folder_that_does_not_answer() -> None:
    usage = UsageFacts(silent_folders=("/home/ann",))
    [hit] = check("LIM009", fleet(2, usage={1: usage})).hits
    assert (hit.culprits.nodes, hit.values["paths"]) == ((1,), "/home/ann")


def test_a_full_file_system_that_answers_is_clear() -> None:
    full = UsageFacts(volumes=(Volume(path="/home/ann", total_bytes=GIB, free_bytes=0),))
    assert check("LIM009", fleet(2, usage={0: full, 1: full})).state == "clear"


def test_one_that_cannot_be_asked_is_clear() -> None:
    assert check("LIM009", fleet(1, usage={0: UsageFacts()})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("LIM009", fleet(1, usage={0: FactMissing("not read in time")})).unchecked == {0: "not read in time"}
