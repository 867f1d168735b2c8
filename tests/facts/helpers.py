"""Made-up interfaces, and real network namespaces."""

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest

from allready.model import Interface
from tests.conftest import NO_LAB


def interface(name: str, *addresses: str, up: bool = True, **more: Any) -> Interface:
    return Interface(
        name=name,
        is_up=up,
        is_loopback=name == "lo",
        mtu_bytes=1500,
        addresses=addresses,
        kind="loopback" if name == "lo" else "ethernet",
        **more,
    )


LO = interface("lo", "127.0.0.1/8", "::1/128")


def _unshare(*more: str) -> list[str] | None:
    for flags in (["--net"], ["--user", "--map-root-user", "--net"]):
        argv = ["unshare", *flags, *more]
        if shutil.which("unshare") and subprocess.run([*argv, "true"], capture_output=True, timeout=20).returncode == 0:
            return argv
    return None


def in_namespace(script: str, *needs: str, mount: bool = False) -> str:
    """Standard output of a shell script in a network namespace of its own; skips the test where that is impossible.

    $PYTHON is this interpreter.
    """
    argv = _unshare(*(["--mount"] if mount else []))
    lacking = [tool for tool in ("ip", *needs) if shutil.which(tool) is None]
    if argv is None or lacking:
        # Counted with the tests of the lab: tests/conftest.py.
        pytest.skip(f"{NO_LAB}: {f'{lacking[0]} is not installed' if lacking else 'unshare --net is not permitted'}")
    done = subprocess.run(
        [*argv, "bash", "-euc", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin", "PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def json_in_namespace(script: str, *needs: str, mount: bool = False) -> Any:
    """The JSON that the script's last line prints."""
    return json.loads(in_namespace(script, *needs, mount=mount).splitlines()[-1])
