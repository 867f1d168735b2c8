from allready.model import Confidence
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.net.made import not_looked_at, reached, stuck, with_eth0

SMALL_ONLY = {"received_bytes": (92,)}
UP_TO_1428 = {"received_bytes": (92, 1428)}


def test_names_the_direction_in_which_large_packets_vanish() -> None:
    paths = {(0, 1): stuck(1400, 64), (1, 0): stuck(1400, 64)}
    [hit] = check("NET002", reached(2, paths=paths, datagrams={(0, 1): SMALL_ONLY})).hits
    assert (hit.culprits.links, hit.culprits.nodes) == (((0, 1),), ())
    assert hit.confidence is Confidence.CERTAIN
    assert (hit.values["passed_bytes"], hit.values["stuck_bytes"], hit.values["packet_bytes"]) == (64, 1400, 92)


def test_takes_tcp_s_word_for_the_direction_without_datagrams() -> None:
    case = reached(
        2, paths={(0, 1): stuck(9000, 64, 1400)}, datagrams={(0, 1): {"sent_bytes": (), "received_bytes": ()}}
    )
    [hit] = check("NET002", case).hits
    assert (hit.culprits.links, hit.confidence) == (((0, 1),), Confidence.LIKELY)


def test_names_the_node_that_all_such_paths_share() -> None:
    paths = {(a, 2): stuck(9000, 64, 1400) for a in (0, 1, 3)}
    [hit] = check("NET002", reached(4, paths=paths, datagrams=dict.fromkeys(paths, UP_TO_1428))).hits
    assert hit.culprits.nodes == (2,)
    assert hit.culprits.links == ((0, 2), (1, 2), (3, 2))


def test_blames_no_node_when_the_whole_network_is_like_that() -> None:
    paths = {(a, b): stuck(9000, 64, 1400) for a in range(4) for b in range(4) if a != b}
    [hit] = check("NET002", reached(4, paths=paths, datagrams=dict.fromkeys(paths, UP_TO_1428))).hits
    assert hit.culprits.nodes == ()
    assert len(hit.culprits.links) == 12


@cases(
    ("received", "mtu"), [((92,), 1280), ((92, 1428), 1400), ((92, 1428, 1500), 1500), ((92, 1428, 1500, 4000), 4000)]
)
def test_advises_an_mtu_that_is_known_to_pass(received: tuple[int, ...], mtu: int) -> None:
    sizes = (92, 1428, 1500, 4000, 9000)
    case = reached(
        2, paths={(0, 1): stuck(9000, 64)}, datagrams={(0, 1): {"sent_bytes": sizes, "received_bytes": received}}
    )
    [hit] = check("NET002", case).hits
    assert hit.values["command"] == f"ip link set dev eth0 mtu {mtu}"


def test_never_advises_an_mtu_that_is_known_not_to_pass() -> None:
    datagrams = {(0, 1): {"sent_bytes": (92, 576, 1280, 1400), "received_bytes": (92, 576)}}
    [hit] = check("NET002", reached(2, paths={(0, 1): stuck(1400, 64)}, datagrams=datagrams)).hits
    assert hit.values["command"] == "ip link set dev eth0 mtu 576"


def test_does_not_take_a_slow_link_for_a_black_hole() -> None:
    # 9,000 B passed over an MTU of 9,000: packets of full size do get through.
    case = reached(2, paths={(0, 1): stuck(2**20, 64, 1400, 9000)})
    assert check("NET002", case).state == "clear"
    assert check("NET008", case).state == "hit"


def test_suspects_packets_that_only_1_mib_fills_when_the_mtu_is_larger() -> None:
    wide = {r: with_eth0(r, mtu_bytes=65520) for r in (0, 1)}
    case = reached(2, paths={(0, 1): stuck(2**20, 64, 1400, 9000)}, net=wide)
    assert check("NET002", case).state == "hit"
    assert check("NET008", case).state == "clear"


def test_is_clear_when_only_a_datagram_was_lost() -> None:
    assert check("NET002", reached(2, datagrams={(0, 1): {"received_bytes": (92, 1500, 9000)}})).state == "clear"
    assert check("NET002", reached(2, datagrams={(0, 1): UP_TO_1428})).state == "clear"


def test_is_clear_when_all_payloads_return() -> None:
    assert check("NET002", fleet(4)).state == "clear"


def test_is_not_checked_without_probes() -> None:
    assert check("NET002", not_looked_at()).state == "not_checked"


def test_black_holes_of_several_sizes_are_told_apart_where_no_node_has_them_all() -> None:
    """Seen: jumbo frames, 1500 on the way to node 1 and 4000 on the way to node 2 of three."""
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    paths = {pair: stuck(9000, 64, 1400) for pair in pairs}
    sizes = (92, 1400, 1500, 4000, 9000)
    datagrams = {pair: {"sent_bytes": sizes, "received_bytes": sizes[:3] if 1 in pair else sizes[:4]} for pair in pairs}
    hits = {
        hit.values["packet_bytes"]: hit for hit in check("NET002", reached(3, paths=paths, datagrams=datagrams)).hits
    }
    assert {size: (hit.culprits.nodes, len(hit.culprits.links)) for size, hit in hits.items()} == {
        1500: ((1,), 4),
        4000: ((), 2),
    }
    assert "mtu 4000" in str(hits[4000].values["command"])
