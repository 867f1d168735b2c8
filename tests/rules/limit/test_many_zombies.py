from allready.model import FactMissing, PortHolder, UsageFacts
from tests.fleets import check, fleet


def zombies(count: int | None) -> UsageFacts:
    parent = PortHolder(pid=1, command="bash run.sh")
    return UsageFacts(num_zombies=count, zombie_parent=parent if count else None, num_parents_zombies=count or 0)


def test_names_who_does_not_reap_them() -> None:
    [hit] = check("LIM011", fleet(2, usage={1: zombies(400)})).hits
    assert (hit.culprits.nodes, hit.values["parent"], hit.values["own"]) == ((1,), "pid 1 (bash run.sh)", 400)


def test_some_are_usual() -> None:
    for count in (None, 0, 3, 99):
        assert check("LIM011", fleet(1, usage={0: zombies(count)})).state == "clear", count


def test_says_which_node_it_could_not_check() -> None:
    assert check("LIM011", fleet(1, usage={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}


def test_healthy_nodes_are_clear() -> None:
    assert check("LIM011", fleet(3)).state == "clear"
