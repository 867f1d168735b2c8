from typing import Any

import msgspec

from allready.judging.baseline import compare
from allready.model import CommRecord, Difference, ProcessRecord, RunEvidence, Transport
from allready.text.catalog import label_of, say_text


def process(rank: int, **changes: Any) -> ProcessRecord:
    known: dict[str, Any] = {
        "rank": rank,
        "host": "gpu0",
        "pid": rank,
        "network": "IB",
        "versions": {"nccl": "2.28.9"},
        "env": {"NCCL_ALGO": "Ring"},
        "interfaces": (("eth0", "10.0.0.1<0>"),),
        "op_counts": {"all_reduce": 440},
        "comms": (CommRecord(comm="0x1", rank=rank, nranks=2, comm_id="0xa", init_completed=True),),
    }
    return ProcessRecord(**(known | changes))


def run(*processes: ProcessRecord, **changes: Any) -> RunEvidence:
    return RunEvidence(processes=processes, expected_ranks=len(processes), **changes)


GOOD = run(process(0), process(1))


def only(differences: tuple[Difference, ...]) -> Difference:
    [one] = differences
    return one


def test_equal_runs_do_not_differ() -> None:
    assert compare(GOOD, run(process(0, pid=77, host="gpu9"), process(1, pid=78))) == ()


def test_a_setting_that_one_rank_lost_names_that_rank() -> None:
    found = only(compare(GOOD, run(process(0), process(1, env={}))))
    assert (found.area, found.what, found.bad, found.ranks) == (
        "setting",
        "NCCL_ALGO",
        "Ring (1 rank); (not set) (1 rank)",
        (1,),
    )


def test_what_a_run_lacks_is_no_text_and_is_said_in_the_readers_language() -> None:
    lost = only(compare(GOOD, run(process(0), process(1, env={}))))
    assert say_text(lost, "bad", "zh") == "Ring（1 个 rank）；（未设置）（1 个 rank）"
    assert say_text(lost, "good", "zh") == "Ring"
    same = only(compare(GOOD, run(process(0), process(1, env={"NCCL_ALGO": "(not set)"}))))
    assert (same.bad, say_text(same, "bad", "zh")) == (lost.bad, "Ring（1 个 rank）；(not set)（1 个 rank）")


def test_what_differs_has_a_chinese_name() -> None:
    """But for HCAs and what the run itself has named: variables, libraries, operations, parts of NCCL's timings."""
    comm = CommRecord(comm="0x1", rank=0, nranks=2, init_completed=True, started_s=0.0, completed_s=1.0)
    bad = run(
        *(
            process(
                rank,
                interfaces=(("eth1", "10.1.0.1<0>"),),
                oob=("eth1", "10.1.0.1<0>"),
                plugins=("libnccl-net.so",),
                algorithms=("Ring",),
                num_nodes=2,
                num_channels=dict.fromkeys(("coll", "collnet", "nvls", "p2p", "p2p per peer"), rank),
                network="Socket",
                phases_s={"init total": 9.0, "bootstrap total": 9.0},
                comms=(msgspec.structs.replace(comm, completed_s=9.0),),
                first_time_s=0.0,
                last_time_s=90.0,
            )
            for rank in range(3)
        )
    )
    good = run(
        *(
            process(
                r,
                phases_s={"init total": 1.0, "bootstrap total": 1.0},
                comms=(comm,),
                first_time_s=0.0,
                last_time_s=9.0,
            )
            for r in range(2)
        )
    )
    names = {difference.what for difference in compare(good, bad)}
    assert len(names) >= 14, names
    assert not [name for name in names if label_of("what", name, "zh") == name]


def test_another_version_everywhere_names_no_rank() -> None:
    other = {"nccl": "2.27.5"}
    found = only(compare(GOOD, run(process(0, versions=other), process(1, versions=other))))
    assert (found.area, found.good, found.bad, found.ranks) == ("version", "2.28.9", "2.27.5", ())


def test_the_network_and_the_interface() -> None:
    bad = run(*(process(r, network="Socket", interfaces=(("eth1", "10.1.0.1<0>"),)) for r in range(2)))
    assert {(d.area, d.good, d.bad) for d in compare(GOOD, bad)} == {
        ("network", "IB", "Socket"),
        ("interface", "eth0", "eth1"),
    }


def test_a_transport_that_changed() -> None:
    fast, slow = Transport(src=0, dst=1, how="P2P/CUMEM"), Transport(src=0, dst=1, how="SHM/direct")
    good = run(process(0, transports=(fast,)), process(1))
    found = only(compare(good, run(process(0, transports=(slow,)), process(1))))
    assert (found.area, found.what, found.bad, found.ranks) == ("transport", "0 -> 1", "SHM/direct", (0,))


def test_operations_of_one_rank_that_are_fewer() -> None:
    found = only(compare(GOOD, run(process(0), process(1, op_counts={"all_reduce": 439}))))
    assert (found.area, found.what, found.weight) == ("operations", "all_reduce", 2)


def test_runs_of_different_size_are_compared_by_what_they_have() -> None:
    bigger = run(*(process(r) for r in range(4)))
    found = only(compare(GOOD, bigger))
    assert (found.what, found.good, found.bad) == ("world size", "2", "4")


def test_a_phase_that_takes_longer() -> None:
    def timed(rank: int, seconds: float) -> ProcessRecord:
        return process(rank, phases_s={"init total": seconds})

    good = run(timed(0, 0.5), timed(1, 0.5))
    found = only(compare(good, run(timed(0, 0.5), timed(1, 4.5))))
    assert (found.area, found.what, found.ranks) == ("time", "init total", (1,))
    assert compare(good, run(timed(0, 0.52), timed(1, 0.54))) == ()


def test_the_heaviest_comes_first() -> None:
    bad = run(process(0, num_channels={"coll": 2}), process(1, num_channels={"coll": 2}, env={}))
    good = run(process(0, num_channels={"coll": 4}), process(1, num_channels={"coll": 4}))
    assert [d.area for d in compare(good, bad)] == ["setting", "topology"]


def test_a_run_of_which_nothing_is_known_differs_in_nothing() -> None:
    assert compare(GOOD, RunEvidence()) == ()
