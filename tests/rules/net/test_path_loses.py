from random import Random
from typing import Any

from allready.judging.engine import judge
from allready.judging.loading import load
from allready.model import Confidence, DatagramProbe, FaultClass, Severity
from allready.model.fill import fill
from allready.rules.net._losses import Sent
from tests.fleets import check, fleet
from tests.rules.net.made import SILENT, not_looked_at, reached, second_network, stuck

SENT: dict[str, Any] = {"num_segments": 1500}
RESENT: dict[str, Any] = {"num_segments": 1600, "num_retransmits": 90}
LOST = {"bursts_sent": (100, 100), "bursts_received": (93, 96)}
WHOLE = {"bursts_sent": (100, 100), "bursts_received": (100, 100)}
PAIRS = [(a, b) for a in range(3) for b in range(3) if a != b]


def lossy(*links: tuple[int, int], datagrams: dict[str, Any] | None = None, **more: Any) -> Any:
    """Three nodes; these directions lose packets."""
    paths = {pair: (RESENT if pair in links else SENT) | more.get("paths", {}).get(pair, {}) for pair in PAIRS}
    return reached(3, paths=paths, datagrams=dict.fromkeys(links, datagrams or LOST))


def test_names_the_node_whose_paths_all_lose_packets() -> None:
    [hit] = check("NET019", lossy((0, 1), (1, 0), (1, 2), (2, 1))).hits
    assert (hit.culprits.nodes, hit.confidence) == ((1,), Confidence.CERTAIN)
    assert (hit.values["num"], hit.values["total"], hit.values["interface"]) == (44, 800, "eth0")


def test_says_of_two_nodes_that_they_lose_packets() -> None:
    pairs = [(a, b) for a in range(5) for b in range(5) if a != b]
    bad = [pair for pair in pairs if {1, 3} & {*pair}]
    paths = {pair: RESENT if pair in bad else SENT for pair in pairs}
    [hit] = check("NET019", reached(5, paths=paths, datagrams=dict.fromkeys(bad, LOST))).hits
    assert hit.culprits.nodes == (1, 3)
    assert fill("{who} {who:loses/lose}", hit.values) == "node 1 (gpu1), 3 (gpu3) lose"
    [hit] = check("NET019", lossy((0, 1), (1, 0))).hits
    assert fill("{who} {who:loses/lose}", hit.values) == "link 0 (gpu0) -> 1 (gpu1) loses"
    for links, words in (([(0, 1)], "on 1 direction (0"), ([(0, 1), (1, 0)], "on 2 directions (0")):
        [hit] = check("NET019", lossy(*links)).hits
        assert words in fill(load()["NET019"].message, hit.values)


def test_names_the_node_that_loses_packets_one_way_only() -> None:
    for links in ([(0, 1), (2, 1)], [(1, 0), (1, 2)]):
        [hit] = check("NET019", lossy(*links)).hits
        assert (hit.culprits.nodes, set(hit.culprits.links)) == ((1,), set(links))


def test_names_the_node_also_where_a_path_was_not_counted_or_is_slow_as_well() -> None:
    """Seen: two lossy nodes of five, the time over before some bursts; and a lossy node beside a slow one."""
    uncounted = lossy((0, 1), (1, 2), (2, 1), paths={(1, 0): {"num_segments": 986, "num_retransmits": 223}})
    [hit] = check("NET019", uncounted).hits
    assert hit.culprits.nodes == (1,)
    once = reached(
        3,
        paths={pair: RESENT if 1 in pair else SENT for pair in PAIRS},
        datagrams={pair: LOST for pair in PAIRS if 1 in pair} | {(2, 1): LOST | {"bursts_received": (93, 100)}},
    )
    [hit] = check("NET019", once).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((1,), ((0, 1), (1, 0), (1, 2)))


def test_spurious_repetitions_of_a_fast_path_are_no_queue() -> None:
    """Seen: segments that leave as one packet of 64 KiB are repeated together, also on a healthy path."""
    fast = {pair: {"throughput_gb_per_s": 0.3} for pair in PAIRS}
    paths = {pair: SENT | fast[pair] for pair in PAIRS} | {(0, 2): RESENT | fast[0, 2]}
    paths |= {pair: RESENT | fast[pair] for pair in PAIRS if 1 in pair}
    datagrams = {pair: LOST for pair in PAIRS if 1 in pair} | {(0, 2): WHOLE}
    [hit] = check("NET019", reached(3, paths=paths, datagrams=datagrams)).hits
    assert (hit.culprits.nodes, len(hit.culprits.links)) == ((1,), 4)


def test_a_queue_is_behind_an_end_of_which_every_path_is_slow() -> None:
    """Seen: a slow node and a lossy one of five; the path to the slow one explains no loss on the way to the other."""
    pairs = [(a, b) for a in range(5) for b in range(5) if a != b]
    paths = {pair: SENT | {"throughput_gb_per_s": 0.1} for pair in pairs}
    crawls = {"throughput_gb_per_s": 0.00045, "num_segments": 300, "num_retransmits": 75}
    paths |= {pair: crawls for pair in pairs if 1 in pair}
    paths |= {pair: RESENT | {"throughput_gb_per_s": 0.0016} for pair in pairs if 3 in pair and 1 not in pair}
    datagrams = {pair: WHOLE for pair in pairs if 1 in pair} | {pair: LOST for pair in pairs if 3 in pair}
    case = reached(5, paths=paths, datagrams=datagrams)
    [loss] = check("NET019", case).hits
    assert loss.culprits.nodes == (3,)
    assert {pair for pair in pairs if 3 in pair and 1 not in pair} <= set(loss.culprits.links)
    [slow] = check("NET017", case).hits
    assert 1 in slow.culprits.nodes


def test_a_node_that_loses_packets_in_one_of_its_networks_is_named_with_the_interface() -> None:
    links = [pair for pair in PAIRS if 1 in pair]
    paths = {pair: RESENT if pair in links else SENT for pair in PAIRS}
    [hit] = check("NET019", second_network(3, paths=paths, datagrams=dict.fromkeys(links, LOST))).hits
    assert (hit.culprits.nodes, hit.values["interface"]) == ((1,), "eth1")
    assert (hit.values["num"], hit.values["total"]) == (44, 800)


def test_names_only_the_path_when_both_nodes_are_fine_elsewhere() -> None:
    [hit] = check("NET019", lossy((0, 1), (1, 0))).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((0, 1), (1, 0)))


def test_a_full_queue_before_a_slow_link_is_no_random_loss() -> None:
    """TCP repeats what the queue dropped; the few small packets that come later all arrive."""
    assert check("NET019", lossy((0, 1), (1, 0), (1, 2), (2, 1), datagrams=WHOLE)).state == "clear"


def test_another_transfer_that_fills_a_queue_during_one_burst_is_no_random_loss() -> None:
    once = {"bursts_sent": (100, 100), "bursts_received": (60, 100)}
    assert check("NET019", lossy((0, 1), datagrams=once)).state == "clear"


def test_a_queue_that_another_transfer_keeps_full_is_no_random_loss() -> None:
    """Seen: three nodes, one at 4 Mbit/s; its other sender repeated as many segments and lost no datagram."""
    slow, fast = 3.6 / 8e3, 0.25
    rates = {pair: {"throughput_gb_per_s": slow if 1 in pair else fast} for pair in PAIRS}
    resent = {pair: rates[pair] | {"num_segments": 400, "num_retransmits": 140} for pair in PAIRS if 1 in pair}
    datagrams = dict.fromkeys(resent, WHOLE) | {(2, 1): {"bursts_sent": (100, 100), "bursts_received": (85, 76)}}
    paths = {pair: SENT | rates[pair] for pair in PAIRS} | resent
    assert check("NET019", reached(3, paths=paths, datagrams=datagrams)).state == "clear"
    alone = paths | {(0, 1): SENT | {"throughput_gb_per_s": fast}}  # the other way into node 1 is fast
    [hit] = check("NET019", reached(3, paths=alone, datagrams=datagrams)).hits
    assert hit.culprits.links == ((2, 1),)


def test_a_queue_that_takes_datagrams_of_every_sender_is_no_random_loss() -> None:
    """Seen: three nodes, 4 Mbit/s into one of them; TCP repeats far more than the datagrams lose."""

    def into_2(resent: dict[tuple[int, int], tuple[int, int]], came: dict[tuple[int, int], tuple[int, int]]) -> Any:
        slow = {(0, 2): 0.704 / 8e3, (1, 2): 3.24 / 8e3}
        paths = {pair: SENT | {"throughput_gb_per_s": 0.1} for pair in PAIRS}
        for pair, (again, of) in resent.items():
            paths[pair] = {"throughput_gb_per_s": slow[pair], "num_segments": of, "num_retransmits": again}
        datagrams = {pair: {"bursts_sent": (100, 100), "bursts_received": counts} for pair, counts in came.items()}
        return reached(3, paths=paths, datagrams=datagrams)

    queue = into_2({(0, 2): (46, 136), (1, 2): (102, 342)}, {(0, 2): (90, 80), (1, 2): (84, 77)})
    assert check("NET019", queue).state == "clear"
    [hit] = check("NET017", queue).hits
    assert hit.culprits.nodes == (2,)
    chance = into_2({(0, 2): (27, 136), (1, 2): (65, 342)}, {(0, 2): (90, 80), (1, 2): (84, 77)})
    [hit] = check("NET019", chance).hits
    assert hit.culprits.nodes == (2,)


def test_a_queue_that_is_full_during_all_bursts_but_the_last_is_no_random_loss() -> None:
    """Seen: three nodes on a busy machine, 4 Mbit/s into one of them, whose senders lost as much of both kinds."""
    slow = {(0, 2): 0.000254, (1, 2): 0.000439}
    paths = {pair: SENT | {"throughput_gb_per_s": 0.1} for pair in PAIRS}
    paths[0, 2] = {"throughput_gb_per_s": slow[0, 2], "num_segments": 195, "num_retransmits": 39}
    paths[1, 2] = {"throughput_gb_per_s": slow[1, 2], "num_segments": 343, "num_retransmits": 123}

    def counted(*last: int) -> Any:
        came = {(0, 2): (70, 73, *last), (1, 2): (72, 67, *last)}
        sent = (100,) * (2 + len(last))
        return reached(
            3, paths=paths, datagrams={k: {"bursts_sent": sent, "bursts_received": c} for k, c in came.items()}
        )

    for last in (100, 98):
        assert check("NET019", counted(last)).state == "clear"
        [hit] = check("NET017", counted(last)).hits
        assert (hit.severity, hit.culprits.nodes) == (Severity.ERROR, (2,))
    for chance in (counted(71), counted(0), counted()):  # a burst that waits in a long queue shows nothing
        [hit] = check("NET019", chance).hits
        assert hit.culprits.nodes == (2,)


def test_a_last_burst_that_loses_as_much_proves_chance_also_where_tcp_repeats_more() -> None:
    """Seen: 15 % at one node of four with segmentation offload; segments of 64 KiB are repeated together."""
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    paths = {pair: SENT | {"throughput_gb_per_s": 0.05} for pair in pairs}
    into = {(0, 1): (0.004743, 889, 136), (2, 1): (0.001064, 850, 218), (3, 1): (0.000565, 477, 159)}
    for pair, (rate, sent, again) in into.items():
        paths[pair] = {"throughput_gb_per_s": rate, "num_segments": sent, "num_retransmits": again}
    three = (100, 100, 100)
    came = {(0, 1): (87, 89, 85), (2, 1): (85, 81, 89), (3, 1): (90, 81, 81)}
    datagrams = {pair: {"bursts_sent": three, "bursts_received": counts} for pair, counts in came.items()}
    [hit] = check("NET019", reached(4, paths=paths, datagrams=datagrams)).hits
    assert (hit.culprits.nodes, set(hit.culprits.links)) == ((1,), set(into))


def drawn(rng: Random, rate: float) -> tuple[int, ...]:
    return tuple(sum(rng.random() >= rate for _ in range(100)) for _ in range(3))


def bursts(*came: int) -> DatagramProbe:
    sent = (100,) * len(came)
    return DatagramProbe(
        src=0, dst=1, address="10.0.0.2", sent_bytes=(), received_bytes=(), bursts_sent=sent, bursts_received=came
    )


def test_a_few_of_a_hundred_that_are_lost_by_chance_are_random_loss() -> None:
    """Bursts of 100 differ by far more than their share then, and one of three may lose none."""
    rng = Random(3)
    for rate, least in ((0.03, 0.93), (0.04, 0.96), (0.05, 0.98), (0.1, 0.99), (0.3, 0.99)):
        num_found = 0
        for _ in range(400):
            sent = Sent()
            sent.add_bursts(bursts(*drawn(rng, rate)))
            num_found += sent.is_random
        assert num_found >= least * 400, rate


def test_loss_of_3_to_5_of_a_hundred_by_chance_is_found_and_its_node_is_named() -> None:
    """At 3 % one direction of ten loses less than two packets of a hundred, and its node then is not named for sure."""
    rng = Random(5)
    links = [pair for pair in PAIRS if 1 in pair]
    paths = {pair: RESENT if pair in links else SENT for pair in PAIRS}
    num_named = dict.fromkeys((0.03, 0.04, 0.05), 0)
    for rate in (*num_named,) * 5:
        datagrams = {pair: {"bursts_sent": (100,) * 3, "bursts_received": drawn(rng, rate)} for pair in links}
        [hit] = check("NET019", reached(3, paths=paths, datagrams=datagrams)).hits
        assert set(hit.culprits.links) <= set(links)
        num_named[rate] += hit.culprits.nodes == (1,)
    assert num_named[0.05] == 5
    assert num_named[0.04] >= 4


def test_loss_of_one_burst_or_of_all_but_the_last_is_that_of_a_queue() -> None:
    for came in ((60, 100, 100), (100, 88, 100), (88, 100, 99), (70, 73, 100), (70, 73, 98), (93, 92, 100), (93, 100)):
        sent = Sent()
        sent.add_bursts(bursts(*came))
        assert not sent.is_random, came
    for came in ((93, 100, 97), (99, 93, 94), (40, 70, 50), (93, 96), (3, 100, 90)):
        sent = Sent()
        sent.add_bursts(bursts(*came))
        assert sent.is_random == (came != (3, 100, 90)), came


def test_where_a_fifth_is_lost_collectives_are_not_tried() -> None:
    """Seen: 50 % at one node; its connection to node 0 ended in the collectives, and it was called lost."""
    links = [(0, 1), (1, 0), (1, 2), (2, 1)]
    for came, severity in (((50, 46), Severity.BLOCKER), ((70, 72), Severity.BLOCKER), ((85, 88), None)):
        [hit] = check("NET019", lossy(*links, datagrams={"bursts_sent": (100, 100), "bursts_received": came})).hits
        assert (hit.severity, hit.culprits.nodes) == (severity, (1,))


def test_filtered_datagrams_say_nothing() -> None:
    none = {"bursts_sent": (100, 100), "bursts_received": (0, 0)}
    assert check("NET019", lossy((0, 1), datagrams=none)).state == "clear"


def test_blames_no_node_when_all_lose_packets() -> None:
    [hit] = check("NET019", lossy(*PAIRS)).hits
    assert (hit.culprits.nodes, len(hit.culprits.links)) == ((), 6)


def test_connections_that_fail_where_packets_are_lost_at_random_prove_no_filter_and_no_black_hole() -> None:
    heavy = {"bursts_sent": (100, 100), "bursts_received": (70, 68)}
    links = [(0, 1), (1, 0), (1, 2), (2, 1)]
    case = lossy(*links, datagrams=heavy, paths={(0, 1): SILENT, (2, 1): stuck(9000, 64, 1400)})
    findings, _ = judge(case)
    assert [f.code for f in findings if f.fault_class is FaultClass.START_PATH] == []
    assert findings[0].code == "NET019"


def test_is_clear_when_nothing_is_lost() -> None:
    assert check("NET019", fleet(4)).state == "clear"


def test_is_not_checked_without_probes() -> None:
    assert check("NET019", not_looked_at()).state == "not_checked"
