"""Compiles the C files of the package while it is installed or built, where there is a C compiler.

`native.c` has the inner loops of the log scanner, `nccl_calls.c` the loop of `allready bench --path nccl`.  Without a
compiler, or with ALLREADY_NO_NATIVE=1, the package is installed as before, for every platform, and both are slower.
CC: the compiler and its options.  ALLREADY_WHEEL_PLATFORM: the platform in the wheel's name, as in
`manylinux_2_17_x86_64`; then compiling must succeed and no library may need a newer C library than that.
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

PACKAGE = Path("src", "allready")
SOURCES = (PACKAGE / "evidence" / "lines" / "native.c", PACKAGE / "preflight" / "collectives" / "nccl_calls.c")
"""Each becomes a library beside it, with the suffix .lib."""
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
        built = {source: Path(self._folder.name, source.name).with_suffix(".lib") for source in SOURCES}
        reason = next(filter(None, (compiled(root / source, target) for source, target in built.items())), "")
        if reason:
            self._folder.cleanup()
            if platform:
                raise RuntimeError(f"a wheel for {platform} needs the compiled parts: {reason}")
            self.app.display_warning(
                f"the scanner of logs and bench --path nccl are not compiled, and slower: {reason}"
            )
            return
        if version == "editable":
            for source, target in built.items():
                place_whole(target, (root / source).with_suffix(".lib"))
            return
        for target in built.values():
            check_platform(target.read_bytes(), platform)
        platform = platform or re.sub(r"[-.]", "_", sysconfig.get_platform())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        for source, target in built.items():
            inside = source.with_suffix(".lib").relative_to(PACKAGE.parent)
            build_data["force_include"][str(target)] = inside.as_posix()

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
        raise RuntimeError(f"a compiled part needs glibc 2.{newest}, which {platform} does not promise")
