"""What is installed: the package with its tables and texts, and nothing that only a checkout needs."""

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    [path] = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(path) as wheel:
        return set(wheel.namelist())


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
