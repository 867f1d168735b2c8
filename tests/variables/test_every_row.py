"""Every row whose values are known: what it documents is right, and what is none of it is found by the lint."""

from collections.abc import Iterator

import pytest

from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.variables import table
from allready.variables.table import Syntax, Type, Variable
from allready.variables.values import check
from tests.cases import cases
from tests.fleets import fleet
from tests.rules.variables.made import script, software

WITHOUT_FORM = {Type.TEXT, Type.PLUGIN}
"""Any text is a value of these."""
ROWS = sorted((r for r in table.load().values() if not r.is_folk and r.type not in WITHOUT_FORM), key=lambda r: r.name)
VARIABLES = [row for row in ROWS if not row.name.startswith("--")]
GOOD = {
    Type.ADDRESS: ("10.0.0.1:1234", "[fd00::1]:1234"), Type.PORT: ("29500",), Type.CIDR: ("10.0.0.0/16",),
    Type.HOST: ("node0", "10.0.0.1", "fd00::1"), Type.CPUS: ("0-7,16", "3"), Type.PATH: ("/tmp/x", "relative"),
    Type.GPUS: ("0", "0,1"), Type.IFNAMES: ("eth0", "^lo,docker", "=eth0"), Type.EXACT_IFNAMES: ("eth0", "eth0,eth1"),
    Type.HCAS: ("mlx5_0", "=mlx5_0:1"), Type.UCX_DEVICES: ("mlx5_0:1", "all"), Type.FLAGS: ("--xla_dump_to=/tmp/x",),
}  # fmt: skip
BAD = {
    Type.ADDRESS: ("10.0.0.1", "host:port", "host:99999"), Type.PORT: ("port", "70000"),
    Type.HOST: ("http://node0", "two words"), Type.CIDR: ("10.0.0.0/99", "net"), Type.CPUS: ("many", "0..7"),
    Type.PATH: ("~/x",), Type.GPUS: ("first", "0,0"), Type.IFNAMES: ("eth0, eth1", "eth*"),
    Type.EXACT_IFNAMES: ("^lo", "=eth0"), Type.HCAS: ("mlx5_0, mlx5_1", "mlx5_*"),
    Type.UCX_DEVICES: ("mlx5_0, mlx5_1",), Type.FLAGS: ("xla_dump_to=/tmp/x",), Type.FORM: ("?!",),
    Type.ALGO: ("NoSuchWord",), Type.OPTIONS: ("a b c",), Type.LIST: ("NoSuchWord", "?!"),
    Type.ENUM: ("NoSuchWord", "?!", "99999"), Type.SIZE: ("big",), Type.INT: ("many",), Type.FLOAT: ("much",),
}  # fmt: skip
SWITCHES = {
    Syntax.NUMBER: (("0", "1"), ("yes", "5", "1;")), Syntax.PARAM: (("0", "1", "TRUE"), ("2", "on")),
    Syntax.SWITCH: (("0", "on", "true"), ("2", "y")), Syntax.WORDS: (("0", "1", "true", "Yes"), ("on", "2", "")),
    Syntax.ONE: (("0", "1"), ("true", "2")), Syntax.PYTHON: (("0", "1"), ("true",)),
    Syntax.JAX: (("0", "1", "True", "off"), ("2", "maybe", "")), Syntax.PRESENCE: (("1",), ("0", "false")),
}  # fmt: skip

OPTIONS = {"True|False": "True", "native|cudaMallocAsync": "cudaMallocAsync", r"0?\.\d*[1-9]\d*": "0.8"} | {
    r"0?\.\d+|[01](?:\.0*)?": "0.9"
}
"""A value of each form that does not take 64."""


def good(row: Variable) -> Iterator[str]:
    """Values that the row says are right."""
    if row.type is Type.BOOL:
        assert row.syntax is not None
        yield from SWITCHES[row.syntax][0]
    elif row.type in {Type.INT, Type.SIZE, Type.FLOAT}:
        low, high = row.range or (0, 8)
        yield from (f"{number:g}" for number in (low, high) if number is not None and abs(number) < 1e6)
    elif row.type is Type.OPTIONS:
        yield from (f"{name}:{OPTIONS.get(row.forms.get(name, ''), '64')}" for name in row.values)
    else:
        yield from GOOD.get(row.type, row.values)
    if row.type in {Type.ENUM, Type.FORM, Type.LIST} and row.default in row.values:
        yield row.default


def bad(row: Variable) -> Iterator[str]:
    """Values that are none of it."""
    if row.type is Type.BOOL:
        assert row.syntax is not None
        yield from SWITCHES[row.syntax][1]
        return
    if row.open:
        yield from row.meant or ()
        yield from (f"{word}x" for word in row.values if len(word) > 3)
        return
    yield from BAD[row.type]
    yield from (f"{name}:{value}" for name in row.forms for value in ("nonsense", "yes", "-3", ""))
    if row.range is not None:
        low, high = row.range
        yield from () if low is None else (f"{low - 3:g}",)
        yield from () if high is None else (f"{high * 2 + 1:.0f}",)


def by_name(row: Variable) -> str:
    return row.name


@cases("row", ROWS, ids=by_name)
def test_what_is_documented_is_right(row: Variable) -> None:
    assert {value: found for value in good(row) if (found := check(row, value))} == {}


BY_OTHER_RULES = {Type.IFNAMES, Type.EXACT_IFNAMES, Type.HCAS, Type.UCX_DEVICES}
"""Filters have rules of their own: VAR015, VAR016, VAR019."""


@cases("row", [r for r in ROWS if r.type not in BY_OTHER_RULES], ids=by_name)
def test_what_is_none_of_it_is_wrong(row: Variable) -> None:
    if row.name == "NVIDIA_VISIBLE_DEVICES":
        pytest.skip("the container runtime takes names of any kind")
    assert [value for value in bad(row) if not check(row, value)] == []


def test_the_lint_finds_a_bad_value_of_every_variable_and_none_in_good_ones() -> None:
    """The whole way: a line of a script, its reader, the rules."""
    installed = {0: software(torch="2.15.0", nccl="2.32.3", jax="0.12.0", jaxlib="0.12.0")}
    rules = [rule for rule in load_area("variables") if rule.code in VALUES]
    assert len(rules) == len(VALUES)

    def found(values: dict[str, str]) -> set[str]:
        lines = (f"export {name}='{value}'" for name, value in values.items())
        findings, _ = judge(fleet(1, settings=script(*lines), software=installed), rules)
        return {name for f in findings for name in f.culprits.variables}

    wrong = {row.name: value for row in VARIABLES for value in [next(bad(row), "")] if value}
    assert len(wrong) > 400
    assert sorted(wrong.keys() - found(wrong)) == ["NVIDIA_VISIBLE_DEVICES"]
    right = {row.name: value for row in VARIABLES for value in [next(good(row), "")] if value}
    assert found(right) == set()


VALUES = ("VAR008", "VAR009", "VAR010", "VAR011", "VAR012", "VAR013", "VAR014", "VAR015", "VAR016", "VAR019", "VAR033")
