"""A finding that accuses several ranks says of them only what is true of all, and has a command for each."""

from allready.judging.engine import judge
from allready.judging.loading import load
from allready.model import Finding
from allready.model.process import SystemCall
from tests.rules.live.made import behind, job, stack

FUTEX = {"syscall": SystemCall(name="futex"), "wchan": "futex_do_wait"}


def locked(*sites: str) -> Finding:
    """What is found where ranks 0 and 2, on two nodes, wait for locks at these lines."""
    late = [behind(rank, site=site) for rank, site in zip((0, 2), sites, strict=True)]
    stacks = tuple(stack(s.rank, "lock", s.site) for s in late)
    fleet = job(*late, seen={s.rank: FUTEX for s in late}, stacks=stacks)
    [found] = judge(fleet, [load()["LIV003"]])[0]
    return found


def test_each_rank_has_the_command_with_its_own_node_and_pid() -> None:
    found = locked("train.py:30 save", "train.py:30 save")
    assert found.culprits.ranks == (0, 2)
    assert [(r.where, r.command) for r in found.remedies if r.command] == [
        ("gpu0", "py-spy dump --pid 100"),
        ("gpu1", "py-spy dump --pid 102"),
    ]


def test_a_line_is_named_where_it_is_that_of_all() -> None:
    assert "at train.py:30 save" in locked("train.py:30 save", "train.py:30 save").message
    assert "train.py" not in locked("train.py:30 save", "data.py:9 fetch").message


def test_since_is_when_the_last_of_them_was_held_up() -> None:
    late = [behind(r, process_state="stopped", heartbeat_age_s=age) for r, age in ((0, 9.0), (2, 6.0))]
    [found] = judge(job(*late), [load()["LIV001"]])[0]
    [alone] = judge(job(late[1]), [load()["LIV001"]])[0]
    assert found.culprits.ranks == (0, 2)
    assert found.values["since"] == alone.values["since"]
