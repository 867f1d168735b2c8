"""Verdicts of all recorded runs: from all files, and from each kind of evidence alone.

    python benchmarks/recorded_verdicts.py verdicts.json
    PYTHONPATH=../before/src python benchmarks/recorded_verdicts.py before.json
    python benchmarks/recorded_verdicts.py verdicts.json --against before.json

Kinds are reported by the names of files.  With --against, what differs is listed: in class or culprits, and in
anything of status, code, class, culprits and confidence.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import re
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures"
KINDS = {
    "report": r"report\.json$", "recorder": r"fr_|.*(?:dump|\.pickle$|trace_)|ring\.jsonl?$", "nccl": r"nccl(?!_tests)",
    "stacks": r"pyspy|stacks", "ras": r"ras", "kernel": r"dmesg|kernel", "output": r"stdout|out|err|.*\.log$",
}  # fmt: skip


def kind_of(path: Path) -> str:
    """What a file is by its name."""
    return next((kind for kind, pattern in KINDS.items() if re.match(pattern, path.name)), "other")


def verdicts_of(archive: Path) -> dict[str, Any]:
    """Name of the run and kind of evidence -> its verdict."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
        files = sorted(p for p in Path(folder).rglob("*") if p.is_file())
        kinds = {kind: [p for p in files if kind_of(p) == kind] for kind in sorted(set(map(kind_of, files)))}
        name = str(archive.relative_to(FIXTURES)).partition(".tar")[0]
        for kind, chosen in {"all": files, **(kinds if len(kinds) > 1 else {})}.items():
            found[f"{name}|{kind}"] = diagnosed(chosen, Path(folder) / "verdict.json")
    return found


def diagnosed(files: list[Path], target: Path) -> dict[str, Any]:
    """Status and verdict that `diagnose` gives these files."""
    from allready.cli.main import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(["diagnose", "-q", "--jobs", "1", "--json", str(target), *map(str, files)])
    report = json.loads(target.read_bytes())
    verdict = report["verdict"] or {}
    return {
        "status": report["status"],
        **{k: verdict.get(k) for k in ("code", "fault_class", "culprits", "confidence")},
    }


def compare(now: dict[str, Any], before: dict[str, Any]) -> None:
    """Print what differs."""
    common = sorted(now.keys() & before.keys())
    differs = [n for n in common if any(now[n][k] != before[n][k] for k in ("fault_class", "culprits"))]
    in_any = [n for n in common if now[n] != before[n]]
    for name in in_any:
        print(f"{name}: {before[name]} -> {now[name]}")
    print(f"{len(common)} compared, {len(differs)} differ in class or culprits, {len(in_any)} in anything")


def main() -> None:
    """Record, and compare where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path, help="verdicts are read from it; made if it is not there")
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    if not arguments.target.exists():
        found: dict[str, Any] = {}
        with multiprocessing.get_context("spawn").Pool() as pool:
            for verdicts in pool.imap_unordered(verdicts_of, sorted(FIXTURES.rglob("*.tar.*"))):
                found |= verdicts
        arguments.target.write_text(json.dumps(dict(sorted(found.items())), indent=0), encoding="utf-8")
        print(f"{len(found)} verdicts")
    if arguments.against is not None:
        compare(json.loads(arguments.target.read_bytes()), json.loads(arguments.against.read_bytes()))


if __name__ == "__main__":
    main()
