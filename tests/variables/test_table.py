"""The table of variables says of each row what it has to, in both languages, and does not contradict itself."""

import re

from allready.text.ui import ui
from allready.variables import table
from allready.variables.table import Reader, Syntax, Type, Variable
from allready.variables.values import check
from allready.variables.versions import version
from tests.cases import cases

ROWS = sorted(table.load().values(), key=lambda row: row.name)
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def by_name(row: Variable) -> str:
    return row.name


def test_it_has_what_the_knowledge_had_and_more() -> None:
    assert len(ROWS) > 620
    assert {"NCCL_DEBUG", "TORCH_FR_BUFFER_SIZE", "GLOO_SOCKET_IFNAME", "XLA_FLAGS", "JAX_COORDINATOR_ADDRESS"} <= set(
        table.load()
    )


@cases("row", ROWS, ids=by_name)
def test_a_row_is_whole(row: Variable) -> None:
    assert row.what.endswith((".", ")")), "a sentence"
    assert CHINESE.search(row.what_zh)
    assert bool(row.risk) == bool(row.risk_zh)
    assert bool(row.cost) == bool(row.cost_zh)
    assert not CHINESE.search(row.what + row.risk + row.cost)
    assert not (row.is_folk and row.owner), "names that nothing reads have no owner"
    assert row.is_folk or row.owner or row.readers == (Reader.LAUNCHER,)


@cases("row", ROWS, ids=by_name)
def test_versions_are_in_order(row: Variable) -> None:
    stages = [version(text) for text in (row.since, row.deprecated, row.removed) if text]
    assert all(stages), "every one is a version"
    assert stages == sorted(stages)


@cases("row", ROWS, ids=by_name)
def test_names_that_it_points_to_exist(row: Variable) -> None:
    for name in row.related:
        assert table.find(name) is not None or table.is_elsewhere(name), name
        assert name != row.name
    for name in re.findall(r"(?<!=)\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b", row.use):
        assert table.find(name) is not None, name
    if row.deprecated and table.find(row.use):
        assert not table.load()[row.use].is_folk


@cases("row", ROWS, ids=by_name)
def test_its_own_values_are_right(row: Variable) -> None:
    assert row.type not in {Type.ENUM, Type.LIST, Type.ALGO} or row.values
    assert row.range is None or row.type in {Type.INT, Type.FLOAT, Type.SIZE}
    for value in row.values if row.type in {Type.ENUM, Type.LIST} else ():
        assert check(row, value) == [], value
    for value in row.debug:
        assert value == "*" or row.type in {Type.BOOL, Type.INT, Type.TEXT} or value in row.values, value


@cases("row", [r for r in ROWS if r.type is Type.BOOL and not r.is_folk], ids=by_name)
def test_a_switch_says_how_it_is_read(row: Variable) -> None:
    assert row.syntax is not None
    assert row.syntax is not Syntax.STOI


@cases("kind, language", [(kind, language) for kind in Type for language in ("en", "zh")])
def test_what_a_value_is_can_be_said(kind: Type, language: str) -> None:
    assert ui(f"env.type_{kind.value.replace('-', '_')}", language)


def test_words_that_people_write_mean_words_that_there_are() -> None:
    for row in ROWS:
        assert set(row.meant.values()) <= set(row.values), row.name
        assert not set(row.meant) & set(row.values), row.name
        assert bool(row.pattern) == (row.type is Type.FORM), row.name
        assert not row.open or row.type in {Type.ENUM, Type.LIST}, row.name


def test_ignored_by_is_for_the_back_ends_of_torch() -> None:
    for row in ROWS:
        assert set(row.ignored_by) <= {Reader.NCCL2}, row.name
        assert not set(row.ignored_by) & set(row.readers), row.name


def test_what_the_new_back_end_of_torch_reads() -> None:
    read = {row.name for row in ROWS if Reader.NCCL2 in row.readers and row.name.startswith("TORCH_NCCL_")}
    assert {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_HIGH_PRIORITY"} <= read
    assert not read & {row.name for row in ROWS if row.ignored_by}


def test_folk_names_say_what_does_it() -> None:
    for row in ROWS:
        if row.is_folk:
            assert row.use or "not" in row.what or "no " in row.what.lower() or "nothing" in row.what, row.name


def test_the_lists_of_other_names_do_not_overlap_with_the_table() -> None:
    for entry in (*table.elsewhere(), *table.not_variables()):
        assert entry.why
        assert CHINESE.search(entry.why_zh)
        assert not set(entry.names) & set(table.load()), entry.subsystem
    seen = [name for entry in (*table.elsewhere(), *table.not_variables()) for name in entry.names]
    assert len(seen) == len(set(seen))


def test_flags_are_found_with_and_without_dashes() -> None:
    assert table.find("--xla_dump_to=/tmp/x") is table.find("xla_dump_to") is table.load()["--xla_dump_to"]
    assert table.find("--not_a_flag") is None


def test_what_is_for_debugging_has_its_cost() -> None:
    assert [name for name, row in table.load().items() if row.debug and not (row.cost and row.cost_zh)] == []
