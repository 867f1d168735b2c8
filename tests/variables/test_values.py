import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allready.variables import table
from allready.variables.table import Type
from allready.variables.values import ProblemKind, check, is_debug_value, is_on, number
from tests.cases import cases

ROWS = sorted(table.load().values(), key=lambda row: row.name)


@cases(
    "text, expected",
    [
        ("8", 8), ("8M", 8), (" 8", 8), ("0x10", 16), ("-1", -1), ("+3", 3), ("true", None), ("", None), ("x8", None),
        ("9" * 5000, int("9" * 30)),
    ],
)  # fmt: skip
def test_a_number_is_its_leading_digits(text: str, expected: int | None) -> None:
    assert number(text) == expected


@cases(
    "name, value, kind, better",
    [
        ("NCCL_IB_DISABLE", "true", ProblemKind.READ_AS_ZERO, "1"),
        ("NCCL_BUFFSIZE", "8M", ProblemKind.CUT_OFF, "8388608"),
        ("NCCL_BUFFSIZE", "4k", ProblemKind.CUT_OFF, "4096"),
        ("TORCH_NCCL_BLOCKING_WAIT", "on", ProblemKind.STOPS, "1"),
        ("TORCH_NCCL_BLOCKING_WAIT", "off", ProblemKind.STOPS, "0"),
        ("TORCH_SHOW_CPP_STACKTRACES", "true", ProblemKind.WITHOUT_EFFECT, "1"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "0", ProblemKind.STILL_ON, ""),
        ("NCCL_IB_TIMEOUT", "99", ProblemKind.OUT_OF_RANGE, "1..31"),
        ("NCCL_P2P_LEVEL", "nvl", ProblemKind.WRONG_CASE, "NVL"),
        ("NCCL_SOCKET_IFNAME", '"eth0"', ProblemKind.LITERAL_QUOTES, "eth0"),
        ("NCCL_TOPO_FILE", "~/a.xml", ProblemKind.LITERAL_TILDE, "/home/USER/a.xml"),
        ("MASTER_PORT", "http", ProblemKind.STOPS, ""),
        ("NCCL_COMM_ID", "host", ProblemKind.MALFORMED, "HOST:PORT"),
    ],
)
def test_what_is_wrong_and_what_is_meant(name: str, value: str, kind: ProblemKind, better: str) -> None:
    [problem] = check(table.load()[name], value)
    assert (problem.kind, problem.better) == (kind, better)


def test_switches_are_on_as_their_readers_understand_them() -> None:
    rows = table.load()
    assert is_on(rows["NCCL_IB_DISABLE"], "2")
    assert not is_on(rows["NCCL_IB_DISABLE"], "true")
    assert is_on(rows["TORCH_NCCL_BLOCKING_WAIT"], "Yes")
    assert not is_on(rows["TORCH_SHOW_CPP_STACKTRACES"], "true")
    assert is_on(rows["PYTORCH_NO_CUDA_MEMORY_CACHING"], "0")


def test_values_for_debugging() -> None:
    rows = table.load()
    assert is_debug_value(rows["NCCL_DEBUG"], "info")
    assert not is_debug_value(rows["NCCL_DEBUG"], "WARN")
    assert is_debug_value(rows["NCCL_DEBUG_SUBSYS"], "INIT,COLL")
    assert not is_debug_value(rows["NCCL_DEBUG_SUBSYS"], "^COLL")


def test_defaults_that_are_plain_values_are_right() -> None:
    for row in ROWS:
        is_plain = row.default[:1].isalnum() and not set(row.default) & set(" ,") and row.default != "auto"
        if is_plain and row.type in {Type.BOOL, Type.INT, Type.SIZE, Type.ENUM}:
            assert [p for p in check(row, row.default) if p.kind is ProblemKind.STOPS] == [], row.name


@pytest.mark.thorough
@given(st.sampled_from(ROWS), st.text(max_size=80))
@settings(max_examples=1000, deadline=None)
def test_any_value_has_an_answer(row: table.Variable, value: str) -> None:
    for problem in check(row, value):
        assert problem.kind in ProblemKind
    assert is_on(row, value) in {True, False}
    assert is_debug_value(row, value) in {True, False}


def test_only_readers_that_know_it_leave_out_what_a_list_names() -> None:
    """JAX takes `^cpu` for a platform of that name."""
    [problem] = check(table.load()["JAX_PLATFORMS"], "^cpu")
    assert problem.kind is ProblemKind.UNKNOWN_WORD
    for name, value in (("UCX_TLS", "^tcp"), ("FI_PROVIDER", "^tcp"), ("NCCL_DEBUG_SUBSYS", "^NET")):
        assert not list(check(table.load()[name], value)), name


def test_an_option_without_its_unit() -> None:
    [problem] = check(table.load()["PYTORCH_CUDA_ALLOC_CONF"], "max_split_size:128")
    assert (problem.part, problem.better) == ("max_split_size", "max_split_size_mb")
