"""What an agent gives a rank."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allready.live import run_paths
from allready.live.environment import beacon_environment, installed_torch, rank_environment
from tests.cases import cases


def test_the_ring_is_shortened_where_the_user_has_no_wish() -> None:
    assert beacon_environment({}) == {"TORCH_FR_BUFFER_SIZE": "512"}
    assert beacon_environment({}, torch_version="2.13.0+cpu") == {"TORCH_FR_BUFFER_SIZE": "512"}
    assert beacon_environment({}, torch_version="2.8.0") == {"TORCH_FR_BUFFER_SIZE": "512"}
    assert beacon_environment({}, torch_version="2.4.1+cu121") == {"TORCH_NCCL_TRACE_BUFFER_SIZE": "512"}
    assert beacon_environment({}, torch_version="a build of mine") == {"TORCH_FR_BUFFER_SIZE": "512"}


@cases("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
@cases("value", ["0", "2000", ""])
def test_what_the_user_set_stands(name: str, value: str) -> None:
    assert beacon_environment({name: value}) == {}


@pytest.mark.torch
@pytest.mark.newest
def test_torch_warns_of_nothing_that_we_set() -> None:
    """The older name gives a line in the output of every rank."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_")}
    program = (
        "import torch.distributed as d; from torch._C import _distributed_c10d as c\n"
        "d.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1)\n"
        "import torch; d.all_reduce(torch.ones(1)); c._dump_fr_trace_json(True, False); d.destroy_process_group()"
    )
    added = beacon_environment(env, torch_version=installed_torch())
    done = subprocess.run(
        [sys.executable, "-c", program], env=env | added, capture_output=True, timeout=100, check=True, text=True
    )
    assert "deprecated" not in done.stderr


@pytest.mark.torch
@pytest.mark.newest
def test_the_installed_torch_is_found_without_importing_it() -> None:
    version = installed_torch()
    assert version is not None
    assert version.startswith("2.")


def test_every_rank_has_its_own_folder(tmp_path: Path) -> None:
    first, second = (rank_environment(tmp_path, r) for r in (0, 1))
    assert first["ALLREADY_RANK_DIR"] == str(run_paths.rank_dir(tmp_path, 0)) != second["ALLREADY_RANK_DIR"]
    assert first["ALLREADY_PARENT_PID"] == str(os.getpid())
    assert rank_environment(tmp_path, 0, parent_pid=7)["ALLREADY_PARENT_PID"] == "7"
