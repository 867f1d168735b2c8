from tests.rules.runs import ask, process


def using(**networks: str) -> tuple[object, ...]:
    return tuple(process(int(r[1:]), network=n) for r, n in networks.items())


def test_names_the_minority_on_sockets() -> None:
    [hit] = ask("FAB002", processes=using(r0="IB", r1="IB", r2="IB", r3="Socket")).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((3,), (1,))


def test_blames_nobody_on_a_tie() -> None:
    [hit] = ask("FAB002", processes=using(r0="IB", r1="IB", r2="Socket", r3="Socket")).hits
    assert not hit.culprits


def test_sockets_everywhere_are_what_this_machine_has() -> None:
    assert ask("FAB002", processes=using(r0="Socket", r1="Socket")).state == "clear"


def test_nothing_is_known_of_networks() -> None:
    assert ask("FAB002", processes=(process(0),)).state == "clear"
