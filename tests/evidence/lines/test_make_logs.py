import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import cases
from tests.evidence.lines import reference

MAKE = Path(__file__).parents[3] / "benchmarks" / "make_logs.py"


def made(folder: Path, *options: str) -> list[Path]:
    subprocess.run(
        [sys.executable, str(MAKE), "--out", str(folder), *options], check=True, timeout=60, capture_output=True
    )
    return sorted(folder.iterdir())


@pytest.mark.thorough
@cases(
    ("options", "num_files", "num_processes"),
    [
        (("--ranks", "3"), 3, 3),
        (("--ranks", "2", "--iterations"), 2, 2),
        (("--ranks", "5", "--interleaved", "--timestamps"), 1, 5),
        (("--ranks", "2", "--front", "{rank}: "), 2, 2),
        (("--kind", "training"), 1, 0),
    ],
)
def test_the_benchmarks_read_what_a_job_would_write(
    options: tuple[str, ...], num_files: int, num_processes: int, tmp_path: Path
) -> None:
    files = made(tmp_path, "--bytes", "1500KB", *options)
    assert len(files) == num_files
    assert 1_400_000 < sum(path.stat().st_size for path in files) < 8_000_000
    streams: dict[reference.Stream, list[reference.Shape]] = {}
    for path in files:
        log = reference.read(path.read_bytes())
        streams |= log.operations
        assert path.read_bytes().endswith(b"\n")
    assert len({(host, pid) for host, pid, _ in streams}) == num_processes
    assert all(len(operations) > 100 for operations in streams.values())
