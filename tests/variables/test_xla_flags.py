"""What the table says about XLA's flags, held against XLA itself."""

import json
import subprocess
import sys

import pytest

from allready.variables import table, values

GIVEN = ("=TRUE", "=8M", "=3", "")
FLAGS = (
    "--xla_gpu_enable_latency_hiding_scheduler",
    "--xla_force_host_platform_device_count",
    "--xla_dump_hlo_pass_re",
)
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


def test_xla_ends_at_the_values_that_are_called_wrong_and_takes_the_others() -> None:
    """Every flag is given to the real library, in a process of its own: it ends at what it cannot read."""
    pytest.importorskip("jax")
    given = [flag + value for flag in FLAGS for value in GIVEN]
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
    judged = {flag: not values.check(variable, flag) for flag in given}
    assert {f: judged[f] for f in given if judged[f] != taken[f]} == {}


def test_the_types_agree_with_the_rows() -> None:
    for name, kind in table.flag_types().items():
        row = table.load().get(name)
        if row is not None and row.type is not table.Type.TEXT:
            assert (kind is table.Type.BOOL) == (row.type is table.Type.BOOL), name
