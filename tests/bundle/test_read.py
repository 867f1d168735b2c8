"""Bundles of others: whatever the file says, nothing is written outside, and nothing takes more than it may."""

import contextlib
import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allready.bundle import read
from allready.bundle.pack import GeneratedMember, Order, write_bundle
from allready.bundle.read import BundleError, extract, read_bundle
from allready.cli.main import main

GOOD = b'{"schema": "allready.bundle/1", "tool_version": "1", "created": "now"}'


def packed(path: Path, *members: tuple[tarfile.TarInfo | str, bytes]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for about, data in members:
            entry = tarfile.TarInfo(about) if isinstance(about, str) else about
            entry.size = len(data) if entry.isreg() else 0
            archive.addfile(entry, io.BytesIO(data) if entry.isreg() else None)
    return str(path)


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry, b""


def all_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}


def test_what_was_written_is_extracted_again(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("one\n")
    write_bundle(Order(name="b", paths=(str(tmp_path / "a.log"),)), tmp_path / "b.tar.gz")
    assert main(["bundle", "--extract", str(tmp_path / "b.tar.gz"), str(tmp_path / "out"), "-q"]) == 0
    assert all_below(tmp_path / "out") == {"b/manifest.json", "b/files/a.log"}
    assert (tmp_path / "out/b/files/a.log").read_text() == "one\n"
    assert main(["bundle", "--extract", str(tmp_path / "b.tar.gz"), str(tmp_path / "out")]) == 3, "the folder exists"


def test_no_member_leaves_the_folder_or_becomes_anything_but_a_file(tmp_path: Path) -> None:
    hostile: dict[str, list[tuple[tarfile.TarInfo | str, bytes]]] = {
        "above": [("b/../../evil", b"x")],
        "absolute": [(str(tmp_path / "evil"), b"x")],
        "drive": [("c:/evil", b"x")],
        "backslashes": [("b\\..\\..\\evil", b"x")],
        "a line break": [("b/ev\nil", b"x")],
        "long": [("b/" + "x" * 300, b"x")],
        "deep": [("/".join("a" * 40), b"x")],
        "twice": [("b/a", b"x"), ("b/a", b"y")],
        "a folder and a file": [("b/a", b"x"), ("b/a/c", b"y")],
        "link, then through it": [special("b/l", tarfile.SYMTYPE, str(tmp_path)), ("b/l/../../evil", b"x")],
    }
    wrong = []
    for number, (name, members) in enumerate(hostile.items()):
        out = tmp_path / "outs" / str(number)
        out.parent.mkdir(exist_ok=True)
        try:
            extract(packed(tmp_path / "h.tar.gz", *members), out)
            wrong.append(name)
        except (BundleError, OSError):
            pass
    assert not wrong
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h.tar.gz", "outs"]
    odd: list[tuple[tarfile.TarInfo | str, bytes]] = [
        special("b/link", tarfile.SYMTYPE, "/etc/passwd"),
        special("b/hard", tarfile.LNKTYPE, "/etc/passwd"),
        special("b/pipe", tarfile.FIFOTYPE),
        special("b/device", tarfile.CHRTYPE),
    ]
    extract(packed(tmp_path / "odd.tar.gz", *odd, ("b/good", b"x")), tmp_path / "odd")
    assert all_below(tmp_path / "odd") == {"b/good"}


def test_a_member_that_is_there_twice_is_named(tmp_path: Path) -> None:
    for number, second in enumerate(("b/x.txt", "b/x.txt/y")):
        archive = packed(tmp_path / f"{number}.tar.gz", ("b/x.txt", b"1"), (second, b"2"))
        with pytest.raises(BundleError, match=r"two members are called .*x\.txt"):
            extract(archive, tmp_path / str(number))
        assert (tmp_path / str(number) / "b" / "x.txt").read_text() == "1"


def test_a_bundle_that_is_missing_leaves_no_folder_and_a_folder_that_is_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no such file or folder"):
        extract(str(tmp_path / "gone.tar.gz"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(BundleError, match=rf"the folder {tmp_path} cannot be made: File exists"):
        extract(packed(tmp_path / "one.tar.gz", ("b/x.txt", b"1")), tmp_path)


@pytest.mark.thorough
def test_a_bomb_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(read.LIMITS, ratio=50.0, ratio_of={}, free_bytes=1 << 20)
    monkeypatch.setattr(read, "LIMITS", limits)
    bomb = tmp_path / "bomb.tar.gz"
    packed(bomb, ("b/manifest.json", GOOD), ("b/zeros", bytes(48 << 20)))
    with pytest.raises(BundleError, match="times its size"):
        extract(str(bomb), tmp_path / "out")
    assert sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file()) < 48 << 20
    nested = packed(tmp_path / "nested.tar.gz", ("b/manifest.json", GOOD), ("b/inner.tar.gz", bomb.read_bytes()))
    with pytest.raises(BundleError, match="packed too deep"):
        extract(nested, tmp_path / "out2")


def test_what_is_no_bundle_is_a_usage_error(tmp_path: Path) -> None:
    deep = b'{"schema": "allready.bundle/1", "entries": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    files = {
        "gzip": gzip.compress(b"text"),
        "empty": gzip.compress(b""),
        "cut": b"\x1f\x8b\x08" + bytes(3),
        "no manifest": Path(packed(tmp_path / "1", ("b/x", b"1"))).read_bytes(),
        "another manifest": Path(packed(tmp_path / "2", ("b/manifest.json", b"{}"))).read_bytes(),
        "a deep one": Path(packed(tmp_path / "3", ("b/manifest.json", deep))).read_bytes(),
        "facts that are none": Path(
            packed(tmp_path / "4", ("b/manifest.json", GOOD), ("b/facts.json", b"[]"))
        ).read_bytes(),
        "a variable that is none": Path(
            packed(
                tmp_path / "5",
                ("b/manifest.json", GOOD),
                ("b/environment.json", b'{"schema": "allready.environment/1", "variables": {"A": 1}}'),
            )
        ).read_bytes(),
    }
    wrong = {}
    for name, data in files.items():
        (tmp_path / "x.tar.gz").write_bytes(data)
        codes = [main(["doctor", "--from", str(tmp_path / "x.tar.gz")])]
        if name not in {"facts that are none", "gzip", "empty", "cut", "no manifest"}:  # archives that env lint reads
            codes.append(main(["env", "lint", str(tmp_path / "x.tar.gz")]))
        if set(codes) != {2}:
            wrong[name] = codes
    assert not wrong


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_a_bundle_error_and_never_leaves_the_folder(tmp_path: Path, data: st.DataObject) -> None:
    """Names and contents at random, then bytes at random."""
    name = st.text(st.sampled_from("ab./\\\0\n~é%:"), min_size=1, max_size=12)
    members = data.draw(st.lists(st.tuples(name, st.binary(max_size=40)), max_size=4))
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for about, content in [("b/manifest.json", GOOD), *members]:
            entry = tarfile.TarInfo(about)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    raw = bytearray(plain.getvalue())
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        raw[at] ^= data.draw(st.integers(1, 255))
    whole = bytearray(gzip.compress(bytes(raw), mtime=0))
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=2)):
        whole[at] ^= 1
    file, out = tmp_path / "f.tar.gz", tmp_path / f"out{os.urandom(6).hex()}"
    file.write_bytes(whole)
    before = {path.name for path in tmp_path.iterdir()}
    for call in (lambda: extract(str(file), out), lambda: read_bundle(str(file))):
        with contextlib.suppress(BundleError, OSError):
            call()
    assert {path.name for path in tmp_path.iterdir()} - before <= {out.name}
    assert not [path for path in out.rglob("*") if not (path.is_dir() or path.is_file()) or path.is_symlink()]


def test_a_part_that_is_made_is_masked_as_well(tmp_path: Path) -> None:
    part = GeneratedMember(name="report.json", source="x", data=b'{"password": "hunter22"}')
    write_bundle(Order(name="b", parts=(part,)), tmp_path / "b.tar.gz")
    extract(str(tmp_path / "b.tar.gz"), tmp_path / "out")
    assert b"hunter22" not in (tmp_path / "out/b/report.json").read_bytes()


def test_bundles_of_several_machines_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for number, value in enumerate(("Ring", "Tree")):
        made = b'{"schema": "allready.environment/1", "variables": {"NCCL_ALGO": "%s"}}' % value.encode()
        members = (("b/manifest.json", GOOD), ("b/environment.json", made))
        files.append(packed(tmp_path / f"{number}.tar.gz", *members))
    assert main(["env", "lint", "--compare", *files]) == 1
    assert "Ring [0], Tree [1]" in capsys.readouterr().out
    assert main(["env", "lint", *reversed(files)]) == 0
    assert main(["env", "lint", "--compare", files[0]]) == 2
