from allready.model import FactMissing, NotApplicable, ScriptFacts
from tests.fleets import check, fleet

OTHER = ScriptFacts(path="/home/me/train.py", sha256="cd" * 32, size_bytes=4100)
ELSEWHERE = ScriptFacts(path="/mnt/train.py", sha256="ab" * 32, size_bytes=4096)


def test_names_the_node_that_would_run_another_script() -> None:
    [hit] = check("ENV003", fleet(4, script={1: OTHER})).hits
    assert hit.culprits.nodes == (1,)
    assert hit.values["split"] == "abababababab [0,2,3], cdcdcdcdcdcd [1]"


def test_blames_nobody_on_a_tie() -> None:
    [hit] = check("ENV003", fleet(2, script={1: OTHER})).hits
    assert hit.culprits.nodes == ()


def test_does_not_mind_another_path() -> None:
    assert check("ENV003", fleet(3, script={1: ELSEWHERE})).state == "clear"


def test_is_clear_when_all_have_the_same() -> None:
    assert check("ENV003", fleet(3)).state == "clear"


def test_is_silent_when_no_script_was_named() -> None:
    none = dict.fromkeys(range(3), NotApplicable("no script was named"))
    assert check("ENV003", fleet(3, script=none)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("ENV003", fleet(3, script={2: FactMissing("train.py: no such file")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {2: "train.py: no such file"})
