from hypothesis import given, settings
from hypothesis import strategies as st

from allready.variables import table
from allready.variables.names import nearest
from tests.cases import cases


@cases(
    "wrong, right",
    [
        ("NCCL_DEUBG", "NCCL_DEBUG"),
        ("NCCL_DEBUGS", "NCCL_DEBUG"),
        ("NCCL_DEBU", "NCCL_DEBUG"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("NCCL_DISABLE_IB", "NCCL_IB_DISABLE"),
        ("GLOO_IFNAME_SOCKET", "GLOO_SOCKET_IFNAME"),
        ("--xla_dump_too", "--xla_dump_to"),
    ],
)
def test_a_slip_has_the_right_name_in_front(wrong: str, right: str) -> None:
    assert nearest(wrong)[0] == right


@cases("name", ["HOME", "PATH", "A", "", "MY_OWN_VARIABLE", "SLURM_JOB_ID", "N" * 300])
def test_other_names_are_near_to_none(name: str) -> None:
    assert nearest(name) == []


def test_real_names_are_preferred_to_those_that_nothing_reads() -> None:
    for name in ("NCCL_SOCKET_IFNAMES", "NCCL_IB_TIMEOUTS", "NCCL_P2P_DISABLED"):
        assert not table.load()[nearest(name, most=1)[0]].is_folk


@given(st.text(max_size=100))
@settings(max_examples=200, deadline=None)
def test_any_text_has_an_answer(text: str) -> None:
    assert all(name in table.load() for name in nearest(text))
