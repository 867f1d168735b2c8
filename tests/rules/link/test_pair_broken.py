from .wires import ARRIVED, DEAD, NOT_ARRIVED, ask


def test_names_both_directions_of_the_pair() -> None:
    [hit] = ask("LNK003", rows={(1, 2): DEAD | NOT_ARRIVED, (2, 1): DEAD | NOT_ARRIVED}).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((1, 2), (2, 1)))
    assert hit.values["segment"] == 96


def test_names_two_pairs_that_have_no_node_in_common() -> None:
    dead = DEAD | NOT_ARRIVED
    [hit] = ask("LNK003", rows={(0, 1): dead, (1, 0): dead, (2, 3): dead, (3, 2): dead}).hits
    assert hit.culprits.links == ((0, 1), (1, 0), (2, 3), (3, 2))


def test_one_direction_that_is_proven_is_left_to_the_other_rule() -> None:
    assert ask("LNK003", rows={(2, 1): DEAD, (1, 2): ARRIVED}).state == "clear"


def test_data_that_is_under_way_for_a_moment_is_healthy() -> None:
    young = DEAD | {"last_received_s": 0.5, "backoff": 2, "rto_s": 0.8}
    assert ask("LNK003", rows={(1, 2): young, (2, 1): young}).state == "clear"


def test_two_that_hear_each_other_lose_packets_and_no_path() -> None:
    heard = DEAD | {"last_received_s": 0.5}
    assert ask("LNK003", rows={(1, 2): heard, (2, 1): heard}).state == "clear"
    assert ask("LNK004", rows={(1, 2): heard, (2, 1): heard}).state == "clear"


def test_is_clear_without_anything_on_its_way() -> None:
    assert ask("LNK003").state == "clear"
