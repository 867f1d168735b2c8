"""The compiled templates that are kept beside their sources."""

import sys
from pathlib import Path

import pytest
from jinja2 import Environment, FunctionLoader, MemcachedBytecodeCache

from allready.report.compiled import TemplateCache

SOURCE = "{{ who }} fails"


@pytest.fixture(autouse=True)
def may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def shown(folder: Path, *, source: str = SOURCE, maker: str = __file__) -> tuple[str, bool]:
    """What a process of its own shows, and whether it had to compile."""
    compiled: list[str] = []
    environment = Environment(
        loader=FunctionLoader(lambda _: source),
        bytecode_cache=MemcachedBytecodeCache(TemplateCache(maker, folder=folder), prefix=""),
        autoescape=True,
    )
    compile_one = environment._compile

    def watched(code: str, filename: str) -> object:
        compiled.append(filename)
        return compile_one(code, filename)

    environment._compile = watched  # type: ignore[method-assign, assignment]
    return environment.get_template("page").render(who="rank 3"), bool(compiled)


def test_the_second_process_does_not_compile(tmp_path: Path) -> None:
    assert shown(tmp_path / "cache") == ("rank 3 fails", True)
    assert shown(tmp_path / "cache") == ("rank 3 fails", False)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_another_source_or_another_maker_compiles_again(tmp_path: Path) -> None:
    shown(tmp_path)
    assert shown(tmp_path, source="{{ who }} hangs") == ("rank 3 hangs", True)
    (maker := tmp_path / "maker").write_text("other options")
    assert shown(tmp_path, source="{{ who }} hangs", maker=str(maker)) == ("rank 3 hangs", True)


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b"cut"])
def test_a_damaged_file_is_compiled_again(damage: bytes, tmp_path: Path) -> None:
    shown(tmp_path)
    [kept] = tmp_path.iterdir()
    kept.write_bytes(damage if damage != b"cut" else kept.read_bytes()[:-10])
    assert shown(tmp_path) == ("rank 3 fails", True)
    assert shown(tmp_path) == ("rank 3 fails", False)


def test_where_nothing_may_be_written_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert shown(tmp_path / "file") == ("rank 3 fails", True)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert shown(tmp_path / "cache") == ("rank 3 fails", True)
    assert not (tmp_path / "cache").exists()
