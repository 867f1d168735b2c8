from allready.model import CommRecord, Transport
from tests.rules.runs import ask, process

P2P = Transport(src=0, dst=1, how="P2P/CUMEM", direction="send")
SHM = Transport(src=0, dst=1, how="SHM/direct", direction="send")


def test_warns_of_host_memory_between_gpus_of_one_node() -> None:
    [hit] = ask("FAB001", processes=(process(0, transports=(SHM,)),)).hits
    assert (hit.values["ranks"], hit.values["how"], hit.culprits.variables) == ("0", "SHM/direct", ())


def test_names_the_variable_that_asked_for_it() -> None:
    [hit] = ask("FAB001", processes=(process(0, transports=(SHM,), env={"NCCL_P2P_DISABLE": "1"}),)).hits
    assert hit.culprits.variables == ("NCCL_P2P_DISABLE",)


def test_peer_to_peer_is_fine() -> None:
    assert ask("FAB001", processes=(process(0, transports=(P2P,)),)).state == "clear"


def test_the_network_between_nodes_is_fine() -> None:
    away = Transport(src=1, dst=2, how="NET/Socket/0", direction="send")
    assert ask("FAB001", processes=(process(1, transports=(away,)),)).state == "clear"


def test_without_knowing_nodes_nothing_is_said() -> None:
    assert ask("FAB001", processes=(process(0, transports=(SHM,)),), node_of_rank={}).state == "clear"


def test_ranks_of_a_smaller_group_are_not_those_of_the_job() -> None:
    """In a group of ranks 0 and 2 the second one is called 1."""
    whole = CommRecord(comm="0xa", rank=0, nranks=4, init_completed=True)
    pair = CommRecord(comm="0xb", rank=0, nranks=2, parent="0xa", init_completed=True)
    away = Transport(src=0, dst=1, how="NET/Socket/0", direction="send", comm="0xb")
    unknown = Transport(src=0, dst=1, how="NET/Socket/0", direction="send")
    assert ask("FAB001", processes=(process(0, comms=(whole, pair), transports=(away, unknown)),)).state == "clear"
    slow = Transport(src=0, dst=1, how="SHM/direct", direction="send", comm="0xa")
    assert ask("FAB001", processes=(process(0, comms=(whole, pair), transports=(slow,)),)).state == "hit"
