"""The environment with the newest release of torch, `.venv-newest`, and the tests that run there as well.

    python tools/newest.py setup             make it, or report why not
    python tools/newest.py beside COMMAND    make it while COMMAND runs, then run its tests; the worst exit code of both

NEWEST_TORCH: arguments for pip in place of `newest_torch.txt` (`torch==2.15.0+cpu --index-url ...`); empty: leave it
out.  Where no such build can be had, the disk is too small or the network too slow, that is reported in one line and
counts as success.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINNED = ROOT / "tools" / "newest_torch.txt"
PLACE = ROOT / ".venv-newest"
READY = PLACE / ".ready"
PLAIN = ("filelock", "fsspec", "jinja2", "networkx", "numpy", "sympy", "typing-extensions")
NEEDED_BYTES = 8 << 30
"""3 GB of wheels while they are unpacked, and 4 GB of files."""
SETUP_S, TESTS_S = 1800.0, 900.0
WAIT_S = 300.0
"""For the environment, once the command beside which it is made has ended."""


def main(words: list[str]) -> int:
    """Do what the first word says."""
    if words in (["setup"], ["setup", "--behind"]):
        os.nice(10 * (len(words) - 1))
        return _told(setup())
    if len(words) > 1 and words[0] == "beside":
        return beside(words[1:])
    sys.stderr.write(f"{__doc__}\n")
    return 2


def setup() -> str:
    """Make the environment where it is not there yet; why it cannot be had, else "".

    Raises:
        subprocess.SubprocessError: it could be had, and making it failed.
    """
    chosen = os.environ.get("NEWEST_TORCH")
    if chosen == "":
        return "NEWEST_TORCH is empty"
    wanted = f"{chosen or PINNED.read_text()}\n{(ROOT / 'pyproject.toml').read_text()}"
    if READY.is_file() and READY.read_text() == wanted:
        return ""
    free = shutil.disk_usage(ROOT).free
    if free < NEEDED_BYTES:
        return f"it needs {NEEDED_BYTES >> 30} GB of disk, {free >> 30} GB are free"
    if not (PLACE / "bin" / "python").exists():
        _run([sys.executable, "-m", "venv", str(PLACE)])
    arguments = shlex.split(chosen) if chosen else ["--no-deps", "--requirement", str(PINNED)]
    for some in (arguments, PLAIN, ("--editable", f"{ROOT}[test]")):
        said = _run([*_python(), "-m", "pip", "install", "--quiet", *some], may_fail=True)
        if said:  # no such build, no network, no room: none of it is a fault of what is tested
            return f"pip could not install it: {said.strip().splitlines()[-1][:200]}"
    _run([*_python(), "-c", "import torch.distributed as d; assert d.is_available() and d.is_gloo_available()"])
    READY.write_text(wanted)
    return ""


def beside(command: list[str]) -> int:
    """Run the command while the environment is made, then the tests there."""
    making = subprocess.Popen(
        [sys.executable, __file__, "setup", "--behind"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    said = f"newest torch: left out: it could not be installed {WAIT_S:.0f} s after the other tests\n"
    code = 0
    try:
        first = subprocess.run(command, check=False).returncode
        with contextlib.suppress(subprocess.TimeoutExpired):
            said, _ = making.communicate(timeout=WAIT_S)
            code = making.returncode
    finally:
        if making.poll() is None:
            os.killpg(making.pid, signal.SIGTERM)
            making.wait(30)
        if making.stdout is not None:
            making.stdout.close()
    sys.stdout.write(said)
    sys.stdout.flush()
    if code or not READY.is_file():
        return first or code
    sys.stdout.write(f"tests with the newest torch, in {PLACE.name}:\n")
    sys.stdout.flush()
    tests = [*_python(), "-m", "pytest", "-m", "newest and not slow and not gpu"]
    second = subprocess.run(tests, cwd=ROOT, timeout=TESTS_S, check=False).returncode
    return first or second


def _told(why_not: str) -> int:
    state = f"left out: {why_not}" if why_not else f"is in {PLACE.name}"
    sys.stdout.write(f"newest torch: {state}\n")
    if why_not:
        READY.unlink(missing_ok=True)
    return 0


def _python() -> list[str]:
    return [str(PLACE / "bin" / "python")]


def _run(command: list[str], *, may_fail: bool = False) -> str:
    """What it writes to stderr when it fails and may; "" when all is well."""
    done = subprocess.run(command, cwd=ROOT, timeout=SETUP_S, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    if may_fail:
        return done.stderr or f"exit code {done.returncode}"
    raise subprocess.SubprocessError(f"{shlex.join(command[:4])}: {done.stderr[-2000:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
