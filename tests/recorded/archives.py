"""What tests of recorded runs share: unpack one, diagnose it, name whom the verdict names."""

import json
import tarfile
from collections.abc import Iterator, Sequence
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


def told(report: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Fault class, confidence and culprits of the verdict."""
    verdict = report["verdict"]
    return verdict["fault_class"], verdict["confidence"], named(verdict)


def by_kind(archive: Path, kinds: Sequence[str], tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The verdicts on the files whose names begin with each of `kinds` alone, where they are more than possible."""
    folder = unpacked(archive, tmp_path)
    for kind in kinds:
        some = tmp_path / kind
        some.mkdir()
        for path in folder.glob(f"{kind}*"):
            path.rename(some / path.name)
        verdict = diagnosed(some, tmp_path)["verdict"] if any(some.iterdir()) else None
        if verdict is not None and verdict["confidence"] != "possible":
            yield kind, verdict


def unpacked(archive: Path, tmp_path: Path) -> Path:
    """The folder with what stands in a recording."""
    folder = tmp_path / archive.name.partition(".")[0]
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder
