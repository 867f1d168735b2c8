"""Compiles `native.c` of the scanner while the package is installed or built, where there is a C compiler.

Without one, or with ALLREADY_NO_NATIVE=1, the package is installed as before, for every platform, and the scanner is
slower.  CC: the compiler and its options.  ALLREADY_WHEEL_PLATFORM: the platform in the wheel's name, as in
`manylinux_2_17_x86_64`; then compiling must succeed and the library must need no newer C library than that.
"""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src", "allready", "evidence", "lines", "native.c")
LIBRARY = "native.lib"
OPTIONS = ("-O3", "-shared", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off")
COMPILE_S = 120.0
_GLIBC = re.compile(rb"GLIBC_2\.(\d+)")


class NativeHook(BuildHookInterface[Any]):
    """For wheels; editable ones get the library beside its source."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root, platform = Path(self.root), os.environ.get("ALLREADY_WHEEL_PLATFORM", "")
        self._folder = tempfile.TemporaryDirectory(prefix="allready-native-")
        built = Path(self._folder.name, LIBRARY)
        reason = compiled(root / SOURCE, built)
        if reason:
            self._folder.cleanup()
            if platform:
                raise RuntimeError(f"a wheel for {platform} needs the compiled scanner: {reason}")
            self.app.display_warning(f"the scanner of logs is not compiled, and slower: {reason}")
            return
        if version == "editable":
            place_whole(built, (root / SOURCE).with_name(LIBRARY))
            return
        check_platform(built.read_bytes(), platform)
        platform = platform or re.sub(r"[-.]", "_", sysconfig.get_platform())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][str(built)] = f"allready/evidence/lines/{LIBRARY}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if self.target_name == "wheel":
            self._folder.cleanup()


def compiled(source: Path, target: Path) -> str:
    """Compile the library; why it could not be done, or nothing."""
    if os.environ.get("ALLREADY_NO_NATIVE"):
        return "ALLREADY_NO_NATIVE is set"
    if os.name != "posix":
        return f"not known how on {sys.platform}"
    argv = [*shlex.split(os.environ.get("CC") or "cc"), *OPTIONS, "-o", str(target), str(source)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, timeout=COMPILE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{argv[0]}: {error}"
    if done.returncode or not target.is_file():
        return f"{argv[0]} ended with exit code {done.returncode}: {' '.join(done.stderr.split())[:300]}"
    return ""


def place_whole(built: Path, target: Path) -> None:
    """Put the library where a process may have the old one open."""
    beside = target.with_suffix(f".{os.getpid()}")
    beside.write_bytes(built.read_bytes())
    beside.chmod(0o755)
    beside.replace(target)


def check_platform(library: bytes, platform: str) -> None:
    """Raises RuntimeError: the library needs a newer C library than the platform promises."""
    promised = re.match(r"manylinux_2_(\d+)_", platform)
    newest = max((int(found) for found in _GLIBC.findall(library)), default=0)
    if promised and newest > int(promised[1]):
        raise RuntimeError(f"the compiled scanner needs glibc 2.{newest}, which {platform} does not promise")
