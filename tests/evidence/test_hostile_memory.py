"""Small files that become large once they are decoded: `diagnose` as a process, and how much memory it takes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MAX_BYTES = 300 << 20
RAS = '{"nccl_version":"2.28.3","cuda_driver_version":1,"communicators_count":1,"communicators":['
THREAD = '{"pid":1,"thread_id":1,"thread_name":"M","os_thread_id":2,"active":true,"owns_gil":false,"frames":['
PICKLE = b"\x80\x02}q\x00(X\x07\x00\x00\x00versionq\x01X\x04\x00\x00\x002.10q\x02X\x07\x00\x00\x00entriesq\x03]q\x04("
TABLE = "# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor)\n"
REPORT = {
    "schema": "allready.report/1", "tool_version": "1", "command": "check", "started": "2026-01-01T00:00:00+00:00",
    "duration_s": 1, "world": {"num_nodes": 1, "world_size": 1, "nodes": []}, "status": "healthy", "verdict": None,
    "findings": [], "not_checked": [],
}  # fmt: skip

FILES: dict[str, Callable[[], bytes]] = {
    "report.json": lambda: (json.dumps(REPORT)[:-1] + ',"facts":{"0":[' + "[]," * 5_000_000 + "[]]}}").encode(),
    "py-spy.json": lambda: ("[" + THREAD + "{}," * 7_000_000 + "{}]}]").encode(),
    "ras.json": lambda: (RAS + "[]," * 12_000_000 + "[]]}").encode(),
    "ras-cut.json": lambda: (RAS + '"' + "\\" * 30_000_001).encode(),
    "ras.txt": lambda: (
        "NCCL version 2.28.3 compiled with CUDA 12.8\nCUDA runtime version 12080, driver version 12080\n\nJob summary\n"
        + "  (Nodes:0)\n" * 800_000
    ).encode(),
    "fr_0": lambda: PICKLE + b"}NNs" * 4_150_000 + b"eu.",
    "table.txt": lambda: (TABLE + "\n" * 3_000_000).encode(),
}


RUN = """
import os, subprocess, sys
process = subprocess.Popen([sys.executable, "-m", "allready", *sys.argv[1:]], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
process.returncode = os.waitstatus_to_exitcode(status)
print(process.returncode, used.ru_maxrss)
"""
"""A process of its own starts what is measured: the kernel counts the memory of who starts a process as the process's
own, and this one may be large (torch)."""


@pytest.mark.thorough
@pytest.mark.jobs
@pytest.mark.parametrize("name", FILES)
def test_what_grows_when_it_is_decoded_stays_under_a_bound(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name]())
    command = ["diagnose", str(tmp_path / name), "-q", "--json", str(tmp_path / "out.json")]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
    )
    exit_code, peak_kib = map(int, done.stdout.split())
    assert exit_code in {0, 1, 3}, done.stderr
    assert peak_kib * 1024 < MAX_BYTES
