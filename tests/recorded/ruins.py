"""What tests of recorded ruins share: unpack one, diagnose it, name whom the verdict names."""

import json
import tarfile
from pathlib import Path
from typing import Any

from allready.cli.main import main


def diagnosed(source: Path, tmp_path: Path, *more: str) -> dict[str, Any]:
    """The report on a folder."""
    target = tmp_path / "report.json"
    main(["diagnose", str(source), "--json", str(target), "-q", *more])
    report: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return report


def named(verdict: dict[str, Any]) -> dict[str, Any]:
    """The culprits that are not empty."""
    return {key: value for key, value in verdict["culprits"].items() if value}


def unpacked(archive: Path, tmp_path: Path) -> Path:
    """The folder with what stands in a recording."""
    folder = tmp_path / archive.name.partition(".")[0]
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder
