"""What is installed: the package with its tables and texts, and nothing that only a checkout needs."""

import platform
import shutil
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[1]


LIBRARIES = {"allready/evidence/lines/native.lib", "allready/preflight/collectives/nccl_calls.lib"}


def _built(folder: Path) -> tuple[str, set[str]]:
    """The name of a wheel, and the names in it."""
    [path] = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(path) as wheel:
        return Path(path).name, set(wheel.namelist())


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What is in the wheel that is built without a C compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", "/nonexistent/cc")
        name, found = _built(tmp_path_factory.mktemp("wheel"))
    assert name.endswith("-py3-none-any.whl")
    return found


def test_without_a_compiler_the_wheel_is_for_every_platform(names: set[str]) -> None:
    assert not LIBRARIES & names
    assert {name.replace(".lib", ".py") for name in LIBRARIES} <= names


@pytest.mark.jobs
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_with_a_compiler_the_wheel_has_the_compiled_parts(
    tmp_path: Path, names: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("ALLREADY_WHEEL_PLATFORM", f"manylinux_2_17_{platform.machine()}")
    name, found = _built(tmp_path)
    assert name.endswith(f"-py3-none-manylinux_2_17_{platform.machine()}.whl")
    assert found == names | LIBRARIES
    monkeypatch.setenv("CC", "/nonexistent/cc")
    with pytest.raises(RuntimeError, match="needs the compiled parts"):
        _built(tmp_path)


def test_the_wheel_has_code_tables_texts_and_templates(names: set[str]) -> None:
    assert {
        "allready/cli/main.py",
        "allready/py.typed",
        "allready/signatures/nccl.toml",
        "allready/text/zh_CN/net.toml",
        "allready/report/templates/report.css",
    } <= names
    sources = {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src").rglob("*.py")}
    assert sources <= names


def test_the_wheel_has_no_tests_benchmarks_or_documents(names: set[str]) -> None:
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"allready"}
    assert not [name for name in names if "fault_suite" in name or "/score/" in name or name.endswith(".pyc")]
