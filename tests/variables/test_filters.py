import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allready.variables import filters
from allready.variables.filters import (
    Filter,
    FilterEntry,
    exact_flaws,
    exact_names,
    flaws,
    more_than_meant,
    parse,
    ucx_selects,
)
from tests.cases import cases

CARDS = ["lo", "eth0", "eth1", "eth10", "docker0", "ib0"]


def selected(value: str) -> list[str]:
    return [name for name in CARDS if parse(value).selects(name)]


@cases(
    "value, names",
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("^eth", ["lo", "docker0", "ib0"]),
        ("^=eth1", ["lo", "eth0", "eth10", "docker0", "ib0"]),
        ("^lo,docker", ["eth0", "eth1", "eth10", "ib0"]),
        ("eth0,ib", ["eth0", "ib0"]),
        ("eth0, ib0", ["eth0"]),
        ("", CARDS),
        ("^", []),
        ("=", CARDS),
        ("bond", []),
        ("eth0:1", ["eth0"]),
        (",eth0,", ["eth0"]),
    ],
)
def test_nccl(value: str, names: list[str]) -> None:
    assert selected(value) == names


@cases(
    "value, device, port, expected",
    [
        ("mlx5_0:1", "mlx5_0", 1, True),
        ("mlx5_0:1", "mlx5_0", 2, False),
        ("mlx5_0", "mlx5_0", 2, True),
        ("=mlx5_0:1", "mlx5_0", 1, True),
        ("^mlx5_0:1", "mlx5_0", 1, False),
        ("^mlx5_0:1", "mlx5_0", 2, True),
        ("mlx5_0:1:2:0", "mlx5_0", 1, True),
        ("mlx5", "mlx5_7", 1, True),
    ],
)
def test_devices_may_have_a_port(value: str, device: str, port: int, expected: bool) -> None:
    assert parse(value).selects(device, port) is expected


def test_what_is_read() -> None:
    assert parse("^=a:1,b") == Filter(exclude=True, exact=True, entries=(FilterEntry("a", 1), FilterEntry("b")))


@cases(
    "value, kinds",
    [
        ("eth0", []),
        ("^=eth0,eth1", []),
        ("eth0, eth1", ["blank"]),
        ("^lo,^docker", ["mark-inside"]),
        ("=^lo", ["mark-order"]),
        ("eth0,", ["empty-entry"]),
        ("mlx5_0:a", ["bad-port"]),
    ],
)
def test_flaws(value: str, kinds: list[str]) -> None:
    assert [flaw.kind for flaw in flaws(value)] == kinds


def test_gloo_knows_exact_names_only() -> None:
    assert exact_names("eth0,eth1,") == ["eth0", "eth1"]
    assert [f.kind for f in exact_flaws("^lo,eth0 ,=a,,b")] == ["foreign-mark", "blank", "foreign-mark", "empty-entry"]


def test_ucx() -> None:
    there = ["mlx5_0:1", "mlx5_1:1", "eth0"]
    assert ucx_selects("mlx5_0:1", there) == ["mlx5_0:1"]
    assert ucx_selects("^mlx5_0:1", there) == ["mlx5_1:1", "eth0"]
    assert ucx_selects("all", there) == ucx_selects("mlx5*", there) == there


def test_a_full_name_that_is_a_prefix() -> None:
    assert more_than_meant("eth1", CARDS) == {"eth1": ["eth10"]}
    assert more_than_meant("eth", CARDS) == {}
    assert more_than_meant("=eth1", CARDS) == {}


LETTERS = st.text(alphabet="^=,: .ethml5x_019\n\x00é", max_size=60)


@given(LETTERS, LETTERS)
@settings(max_examples=300, deadline=None)
def test_any_text_can_be_read_as_a_filter(value: str, name: str) -> None:
    wanted = parse(value)
    assert wanted.selects(name) in {True, False}
    assert wanted.exclude == value.startswith("^")
    flaws(value), exact_flaws(value), more_than_meant(value, [name, value]), ucx_selects(value, [name])
    assert len(wanted.entries) <= filters.MAX_ENTRIES


@pytest.mark.thorough
@given(
    st.lists(st.from_regex(r"[a-z]{1,6}[0-9]{0,2}", fullmatch=True), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_what_is_left_out_and_what_is_chosen_are_complements(names: list[str], exact: bool, exclude: bool) -> None:
    body = ("=" if exact else "") + ",".join(names)
    assert flaws(body) == []
    for card in CARDS:
        assert parse(body).selects(card) != parse("^" + body).selects(card)
    value = ("^" if exclude else "") + body
    assert all(parse(value).selects(name) != exclude for name in names)
