from msgspec.structs import replace

from allready.model import FactMissing, NodeFacts, NotApplicable, Reachability, ScriptFacts, UncheckedKind
from allready.preflight.check.roll_call import gaps
from allready.text.reasons import reason
from tests.fleets import healthy_node

SCRIPT = ScriptFacts(path="train.py", sha256="ab" * 32, size_bytes=3)
WHOLE = Reachability(paths=(), num_pairs_all=3, num_pairs_planned=3, num_pairs_done=3)


def nodes(**changes: NodeFacts) -> dict[int, NodeFacts]:
    unasked = NotApplicable("no script was named")
    return {n: changes.get(f"n{n}", replace(healthy_node(n, 3), script=unasked)) for n in range(3)}


def test_all_nodes_looked_at_leave_no_gap() -> None:
    assert gaps(nodes(), WHOLE) == {}
    assert gaps(nodes(), None) == {}


def test_a_sample_of_very_many_pairs_is_no_gap() -> None:
    assert gaps(nodes(), replace(WHOLE, num_pairs_all=8128)) == {}


def test_a_node_that_sent_no_facts_is_one() -> None:
    assert gaps(nodes(n2=NodeFacts.none("the node sent no facts within 20 s")), WHOLE) == {
        "facts": reason(UncheckedKind.NODE_UNKNOWN, nodes=2)
    }


def test_pairs_that_were_planned_and_not_tried_are_one() -> None:
    found = gaps(nodes(), replace(WHOLE, num_pairs_done=1))
    assert found == {"reach": reason(UncheckedKind.PAIRS_UNTRIED, done=1, planned=3)}


def test_a_script_that_was_to_be_compared_and_was_not_read_is_one() -> None:
    given = {n: replace(facts, script=SCRIPT) for n, facts in nodes().items()}
    assert gaps(given, WHOLE) == {}
    given[1] = replace(given[1], script=FactMissing("train.py: No such file or directory"))
    assert gaps(given, WHOLE) == {"facts": reason(UncheckedKind.SCRIPT_UNREAD, nodes="1")}
    given[2] = nodes()[2]  # started without the script
    assert gaps(given, WHOLE) == {"facts": reason(UncheckedKind.SCRIPT_UNREAD, nodes="1,2")}
