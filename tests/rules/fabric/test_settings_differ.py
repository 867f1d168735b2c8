from allready.model import CommRecord
from allready.model.fill import in_english
from tests.rules.runs import ask, process

COMM = (CommRecord(comm="0x1", rank=0, nranks=4, init_started=True),)


def with_env(*values: str | None, name: str = "NCCL_ALGO") -> tuple[object, ...]:
    return tuple(process(r, comms=COMM, env={} if v is None else {name: v}) for r, v in enumerate(values))


def test_names_the_rank_and_the_variable() -> None:
    [hit] = ask("FAB004", processes=with_env("Ring", "Ring", "Tree", "Ring")).hits
    assert (hit.culprits.ranks, hit.culprits.variables) == ((2,), ("NCCL_ALGO",))


def test_not_set_is_a_value_too() -> None:
    [hit] = ask("FAB004", processes=with_env("Ring", None, "Ring", "Ring")).hits
    assert (hit.culprits.ranks, in_english(hit.values["odd"])) == ((1,), "(not set)")


def test_on_a_tie_only_the_variable_is_named() -> None:
    [hit] = ask("FAB004", processes=with_env("Ring", "Ring", "Tree", "Tree")).hits
    assert (hit.culprits.ranks, hit.culprits.variables) == ((), ("NCCL_ALGO",))


def test_interfaces_may_differ_from_node_to_node() -> None:
    assert ask("FAB004", processes=with_env("eth0", "eth0", "eth1", "eth1", name="NCCL_SOCKET_IFNAME")).state == "clear"


def test_what_only_the_processes_with_connections_have_read_is_set_for_the_others_too() -> None:
    """NCCL reads NCCL_NSOCKS_PERTHREAD where it connects to another node, NCCL_ALGO in each process."""

    def read_by(*readers: int, name: str) -> tuple[object, ...]:
        hosts = ("a", "a", "b", "b")
        return tuple(
            process(r, comms=COMM, host=host, env={name: "2"} if r in readers else {}) for r, host in enumerate(hosts)
        )

    assert ask("FAB004", processes=read_by(0, 2, name="NCCL_NSOCKS_PERTHREAD")).state == "clear"
    assert ask("FAB004", processes=read_by(0, 2, name="NCCL_ALGO")).state == "hit"
    assert ask("FAB004", processes=read_by(0, name="NCCL_NSOCKS_PERTHREAD")).state == "hit"  # node b has none
