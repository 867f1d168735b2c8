"""What the table says about XLA's flags, held against XLA itself."""

import importlib.metadata
import json
import subprocess
import sys

import pytest

from allready.variables import table, values
from tests.rules.variables.made import clear, here, software

GIVEN = ("=TRUE", "=8M", "=3", "")
FLAGS = (
    "--xla_gpu_enable_latency_hiding_scheduler",
    "--xla_force_host_platform_device_count",
    "--xla_dump_hlo_pass_re",
)
NAMES = {
    "--xla_gpu_make_it_fast=true": True, "--xla_gpu_enable_latency_hiding=true": True,
    "--xla_gpu_enable_async_collectives=true": True, "--xla_gpu_enable_priority_fusion=true": True,
    "--xla_gpu_ftz=true": False, "--xla_cpu_use_xnnpack=true": False, "--xla_llvm_disable_expensive_passes=true": False,
}  # fmt: skip
"""Flags, and whether the XLA of the last release of jaxlib for this Python lacks them."""
PROGRAM = """
import json, os, sys
import jax
taken = {}
for flag in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.environ["XLA_FLAGS"] = flag
        try:
            jax.devices("cpu")
        except BaseException:
            os._exit(1)
        os._exit(0)
    taken[flag] = os.waitpid(child, 0)[1] == 0
print(json.dumps(taken))
"""


@pytest.mark.thorough
def test_xla_ends_at_the_values_that_are_called_wrong_and_takes_the_others() -> None:
    """Every flag is given to the real library, in a process of its own: it ends at what it cannot read."""
    pytest.importorskip("jax")
    given = [*NAMES, *(flag + value for flag in FLAGS for value in GIVEN)]
    environ = {"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=120,
        env=environ,
    )
    taken = json.loads(done.stdout)
    assert set(taken.values()) == {True, False}, done.stderr[-500:]
    variable = table.load()["XLA_FLAGS"]
    installed = software(jaxlib=importlib.metadata.version("jaxlib"))
    judged = {
        flag: not values.check(variable, flag) and clear("VAR033", here(XLA_FLAGS=flag), software=installed)
        for flag in given
    }
    assert {flag: not taken[flag] for flag in NAMES} == NAMES
    assert {f: judged[f] for f in given if judged[f] != taken[f]} == {}


def test_the_types_agree_with_the_rows() -> None:
    for name, kind in table.flag_types().items():
        row = table.load().get(name)
        if row is not None and row.type is not table.Type.TEXT:
            assert (kind is table.Type.BOOL) == (row.type is table.Type.BOOL), name
