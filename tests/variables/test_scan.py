"""The table knows every name in the newest wheels; versions agree with 40 older ones."""

import json
import os
import struct
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

import scan_variables as scan
from allready.variables import table
from allready.variables.versions import is_before, version
from tests.cases import cases

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "variables"
WHEELS: dict[str, list[str]] = json.loads((FIXTURES / "wheels.json").read_text())
HISTORY = json.loads((FIXTURES / "history.json").read_text())

MERGED = {
    "NCCL_NET_PLUGIN", "NCCL_PROFILER_PLUGIN", "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING",
}  # fmt: skip
"""Linkers keep a string that is the end of another one only once, so that these are hidden in some releases."""
OUTSIDE = {"FR_TRACE_VERBOSE_OUTPUT"}
"""Read by a tool that was not in the wheels at first."""


@cases("wheel", list(WHEELS))
def test_no_name_in_the_newest_wheels_is_unknown(wheel: str) -> None:
    assert len(WHEELS[wheel]) > 20
    assert scan.unknown(set(WHEELS[wheel])) == []


@pytest.mark.torch
@pytest.mark.newest
@pytest.mark.thorough
def test_no_name_in_the_torch_that_is_here_is_unknown() -> None:
    """With the NCCL that came with it: what one of them begins to read is found with the release that does."""
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    found = scan.names_of_installed(Path(spec.origin).parents[1])
    assert len(found["torch"]) > 60
    assert {folder: scan.unknown(names) for folder, names in found.items()} == {folder: [] for folder in found}


@cases("owner, name", [(o, n) for o in HISTORY for n in HISTORY[o]["names"] if n in table.load()])
def test_since_and_removed_agree_with_released_wheels(owner: str, name: str) -> None:
    row = table.load()[name]
    if row.owner != owner or name in MERGED | OUTSIDE:
        return
    seen = [version(text) for text in HISTORY[owner]["versions"]]
    first, last = (version(text) for text in HISTORY[owner]["names"][name].split())
    before = [v for v in seen if is_before(v, first)]
    after = [v for v in seen if is_before(last, v)]
    if row.since:
        assert not is_before(first, version(row.since)), f"already in {first}"
        assert not before or is_before(before[-1], version(row.since)), f"not yet in {before[-1]}"
    else:
        assert not before, f"since {first}"
    if after:
        assert row.removed, f"not in {after[0]}"
        assert is_before(last, version(row.removed))
        assert not is_before(after[0], version(row.removed))
    else:
        assert not row.removed


def test_names_in_binaries() -> None:
    data = (
        b"x\0NCCL_DEBUG\0ncclParam\0\x04\0NCCL_ALGO\0TORCH_NCCL_X\0NCCL_%s\0NCCL_LOG text\0"
        b":00.0NCCL_NET\0_N_19NCCL_MODEE\0"
    )
    assert scan.names_of_data(data, ("NCCL",)) == {"NCCL_DEBUG", "NCCL_ALGO", "NCCL_NET"}


def test_names_in_python() -> None:
    source = """
a = os.environ.get("A_B", "1")
if "C_D" in os.environ: pass
x = Config(env_name_default="E_F")
G_H = "G_H"
state = bool_state(name="jax_some_option", default=False)
print("NOT_THIS")
"""
    assert scan.names_of_source(source) == {"A_B", "C_D", "E_F", "G_H", "JAX_SOME_OPTION"}


def elf(constants: bytes) -> bytes:
    """A 64-bit file with nothing but constants."""
    names = b"\0.rodata\0.shstrtab\0"
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + bytes(24)
    at = 64 + len(constants) + len(names)
    head += struct.pack("<Q", at) + bytes(10) + struct.pack("<HHH", 64, 3, 2)
    sections = [bytes(64)]
    for name, kind, start, length in ((1, 1, 64, len(constants)), (9, 3, 64 + len(constants), len(names))):
        sections.append(struct.pack("<IIQQQQ", name, kind, 2, 0, start, length).ljust(64, b"\0"))
    return head + constants + names + b"".join(sections)


def made_wheel(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in files.items():
            archive.writestr(member, data)
    return path


def test_a_wheel(tmp_path: Path) -> None:
    wheel = made_wheel(
        tmp_path,
        "torch-9.9.0-cp312-cp312-linux_x86_64.whl",
        {
            "torch/lib/libtorch.so": elf(b"\0NCCL_DEBUG\0"),
            "torch/lib/libother.so": b"\0NCCL_ALGO\0",
            "torch/distributed/a.py": b'os.environ["RANK"]',
            "torch/x.py": b"",
        },
    )
    assert scan.names_of_wheel(wheel) == {"NCCL_DEBUG", "RANK"}


def test_flags_of_releases(tmp_path: Path) -> None:
    one = {"xla/a.so": elf(b"\0xla_gpu_old\0xla_gpu_kept\0"), "xla/b.py": b"xla_gpu_no_binary"}
    wheels = [
        made_wheel(tmp_path, "jaxlib-0.10.0-py3-none-any.whl", {"xla/a.so": elf(b"\0xla_gpu_kept\0notxla_gpu_x\0")}),
        made_wheel(tmp_path, "jaxlib-0.9.0-py3-none-any.whl", one),
    ]
    target = tmp_path / "flags.json"
    assert scan.main(["--flags", str(target), *map(str, wheels)]) == scan.EXIT_KNOWN
    seen = msgspec.json.decode(target.read_bytes(), type=table.FlagsSeen)
    assert seen.releases == ("0.9.0", "0.10.0")
    assert seen.flags == {"--xla_gpu_kept": "0.9.0 0.10.0", "--xla_gpu_old": "0.9.0 0.9.0"}


def test_names_that_are_new_are_listed(tmp_path: Path) -> None:
    wheel = made_wheel(
        tmp_path, "nvidia_nccl_cu13-9.9.9-py3-none-any.whl", {"nvidia/libnccl.so.2": elf(b"\0NCCL_OF_TOMORROW\0")}
    )
    record = tmp_path / "names.json"
    done = subprocess.run(
        [sys.executable, scan.__file__, "--record", str(record), str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "NCCL_OF_TOMORROW" in done.stdout
    assert json.loads(record.read_text()) == {"nvidia_nccl_cu13 9.9.9": ["NCCL_OF_TOMORROW"]}


def test_a_file_that_is_no_wheel(tmp_path: Path) -> None:
    path = tmp_path / "torch-1.0-py3-none-any.whl"
    path.write_bytes(b"not a zip")
    with pytest.raises(ValueError, match="not a wheel"):
        scan.names_of_wheel(path)


@pytest.mark.slow
@cases("wheel", list(WHEELS))
def test_the_record_is_what_the_wheels_have(wheel: str) -> None:
    """With ALLREADY_WHEELS, a folder of downloaded wheels: pip download --no-deps."""
    project, _, number = wheel.rpartition(" ")
    found = sorted(Path(os.environ.get("ALLREADY_WHEELS", "/nonexistent")).glob(f"{project}*-{number}-*.whl"))
    if not found:
        pytest.skip(f"no wheel of {wheel}")
    assert sorted(scan.names_of_wheel(found[-1])) == WHEELS[wheel]
