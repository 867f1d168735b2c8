"""Archives: whole, cut at any byte, hostile."""

import bz2
import gzip
import importlib
import io
import lzma
import os
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allready.evidence.inputs import Found, InputLimits, Source, find, unpack
from allready.evidence.inputs.tar import BLOCK
from allready.model import SourceRecord
from allready.model.fill import in_english
from tests.cases import cases
from tests.clock import Stopwatch
from tests.evidence.inputs.contents import contents, make_tar, make_zip

pytestmark = pytest.mark.thorough

ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"

LINES = b"".join(
    b"gpu%02d:%d:%d [0] NCCL INFO AllReduce: opCount %x sendbuff 0x7f%08x\n" % (i % 8, i, i, i, i * 7919)
    for i in range(6_000)
)
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress,
    "zst": lambda data: bytes(importlib.import_module(ZSTD).compress(data)),
}  # fmt: skip
FILES = [("run/a.log", LINES), ("run/empty.log", b""), ("run/" + "long" * 60 + "/b.log", b"b\n" * 300)]
GOOD = dict(FILES)


WORDS = "step 1 \N{FULL BLOCK}\U0001f525\r\nRuntimeError: \u663e\u5b58\u4e0d\u8db3\n"


@pytest.mark.parametrize("form", ["utf-16-le", "utf-16-be"])
def test_a_log_in_utf_16_is_read_as_any_other(form: str, tmp_path: Path) -> None:
    """As a shell of Windows writes it, also compressed, and cut in the middle of a character."""
    whole = f"\ufeff{WORDS * 9_000}".encode(form)
    path, packed, cut = (tmp_path / name for name in ("x.log", "y", "z.log"))
    path.write_bytes(whole)
    packed.write_bytes(gzip.compress(whole))
    cut.write_bytes(whole[:-5])
    text = (WORDS * 9_000).encode()
    assert contents(path).data == {str(path): text}
    assert contents(packed).data == {str(packed): text}
    assert contents(cut).data == {str(cut): text[:-7] + "\ufffd".encode()}


def test_what_only_begins_like_utf_16_stays_as_it_is(tmp_path: Path) -> None:
    for number, data in enumerate((b"\xff\xfe", b"\xff\xfe" + 9 * b"\x00\x00a", b"\xfe\xff" + 50 * b"\xd8\x01\x00a")):
        path = tmp_path / str(number)
        path.write_bytes(data)
        assert contents(path).data == {str(path): data if number else b""}


@pytest.mark.parametrize("packer", PACKERS)
class TestCompressed:
    def test_one_file_keeps_its_label(self, packer: str, tmp_path: Path) -> None:
        path = tmp_path / "any-name"
        path.write_bytes(PACKERS[packer](LINES))
        found = contents(path)
        assert found.data == {str(path): LINES}
        assert found.why(path) == ""

    def test_members_one_after_the_other_and_padding_are_read(self, packer: str, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(PACKERS[packer](LINES) + PACKERS[packer](b"") + PACKERS[packer](b"more\n") + bytes(1000))
        assert contents(path).data == {str(path): LINES + b"more\n"}

    def test_rubbish_behind_the_end_is_no_content(self, packer: str, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(PACKERS[packer](LINES) + b"rubbish" * 20)
        assert contents(path).data == {str(path): LINES}

    def test_cut_anywhere_gives_what_was_readable_and_says_so(self, packer: str, tmp_path: Path) -> None:
        whole = PACKERS[packer](LINES)
        path = tmp_path / "x"
        most = 0
        for cut in range(20, len(whole), max(1, len(whole) // 60)):
            path.write_bytes(whole[:cut])
            found = contents(path)
            got = found.data.get(str(path), b"")
            assert LINES.startswith(got)
            assert "it was cut" in found.why(path), cut
            most = max(most, len(got))
        assert most > len(LINES) // 2 or packer in {"bz2", "zst"}  # these come in blocks

    def test_a_wrong_byte_is_told_and_what_came_before_it_is_kept(self, packer: str, tmp_path: Path) -> None:
        whole = bytearray(PACKERS[packer](LINES))
        whole[len(whole) // 2] ^= 0xFF
        path = tmp_path / "x"
        path.write_bytes(whole)
        found = contents(path)
        assert "damaged" in found.why(path) or "cut" in found.why(path)
        assert all(not data or data[:50] == LINES[:50] for data in found.data.values())


@cases("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@cases("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_tar_of_every_kind(mode: str, form: int, tmp_path: Path) -> None:
    path = make_tar(tmp_path / "any-name", FILES, mode, format=form)
    found = contents(path)
    assert found.data == {f"{path}!{name}": data for name, data in FILES}
    assert found.records[str(path)].kind == "archive"
    assert found.why(path) == ""


def test_tar_in_zstd(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(PACKERS["zst"](make_tar(tmp_path / "t", FILES).read_bytes()))
    assert contents(path).data == {f"{path}!{name}": data for name, data in FILES}


def test_without_the_library_for_zstd_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(PACKERS["zst"](LINES))
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "zstd cannot be unpacked here" in contents(path).why(path)
    assert "unpack it first" in contents(path).why(path)


@cases("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
@cases("seekable", [True, False])
def test_zip_of_every_kind(method: int, seekable: bool, tmp_path: Path) -> None:
    path = make_zip(tmp_path / "any-name", FILES, method, seekable=seekable)
    found = contents(path)
    assert found.data == {f"{path}!{name}": data for name, data in FILES}
    assert found.why(path) == ""


def test_zip_members_of_unknown_size_may_hold_the_end_mark(tmp_path: Path) -> None:
    trap = b"PK\x07\x08" + bytes(8) + b"PK\x03\x04" + LINES + b"PK\x07\x08PK\x01\x02"
    path = make_zip(tmp_path / "z", [("trap", trap), ("b", LINES)], zipfile.ZIP_STORED, seekable=False)
    assert contents(path).data == {f"{path}!trap": trap, f"{path}!b": LINES}


def test_an_archive_in_an_archive_is_read_and_no_deeper(tmp_path: Path) -> None:
    inner = make_tar(tmp_path / "inner", FILES, "w:gz").read_bytes()
    packed = gzip.compress(b"packed\n")
    middle = make_zip(tmp_path / "m", [("x.gz", packed), ("plain", b"p\n")], zipfile.ZIP_DEFLATED).read_bytes()
    path = make_tar(tmp_path / "outer", [("i.tgz", inner), ("m.zip", middle), ("x.gz", packed)], "w:gz")
    found = contents(path)
    assert found.data == {
        **{f"{path}!i.tgz!{name}": data for name, data in FILES},
        f"{path}!m.zip!plain": b"p\n",
        f"{path}!x.gz": b"packed\n",
    }
    assert "packed too deep" in found.why(f"{path}!m.zip!x.gz")


def test_names_that_lead_elsewhere_are_only_labels(tmp_path: Path) -> None:
    names = ["/etc/passwd", "../../up.log", "a\nb", "\x1b[2J"]
    before = sorted(tmp_path.rglob("*"))
    files = [(name, b"x\n") for name in names]
    tar_path = make_tar(tmp_path / "t", files)
    zip_path = make_zip(tmp_path / "z", files, zipfile.ZIP_DEFLATED)
    assert set(contents(tar_path).data) == {f"{tar_path}!{name}" for name in names}
    assert set(contents(zip_path).data) == {f"{zip_path}!{name}" for name in names}
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tar_path, zip_path])


def test_links_devices_and_folders_in_a_tar_are_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with tarfile.open(path, "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            header = tarfile.TarInfo(f"odd{kind!r}")
            header.type, header.linkname = kind, "/etc/shadow"
            archive.addfile(header)
        header = tarfile.TarInfo("good")
        header.size = 2
        archive.addfile(header, io.BytesIO(b"g\n"))
    assert contents(path).data == {f"{path}!good": b"g\n"}


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_tar_cut_at_any_block_gives_whole_members_and_part_of_one(mode: str, tmp_path: Path) -> None:
    whole = make_tar(tmp_path / "t", FILES, mode).read_bytes()
    path = tmp_path / "cut"
    step = max(1, len(whole) // 50)
    for cut in (*range(BLOCK, len(whole) - 2 * BLOCK, step), len(whole) - 9):
        path.write_bytes(whole[:cut])
        found = contents(path)
        for label, data in found.data.items():
            assert GOOD[label.split("!")[1]].startswith(data)
        if mode == "w:gz" or cut < len(whole) - 10_240:
            assert any("cut" in found.why(label) for label in {*found.data, str(path)}), cut


def test_zip_cut_anywhere_gives_what_is_there(tmp_path: Path) -> None:
    whole = make_zip(tmp_path / "z", FILES, zipfile.ZIP_DEFLATED).read_bytes()
    path = tmp_path / "cut"
    for cut in range(40, len(whole), max(1, len(whole) // 80)):
        path.write_bytes(whole[:cut])
        for label, data in contents(path).data.items():
            assert GOOD[label.split("!")[1]].startswith(data)


def test_encrypted_members_are_told_and_the_others_read(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "z", [("open", b"o\n"), ("secret", b"s\n"), ("after", b"a\n")], zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x03\x04", 10)
    data[at + 6] |= 1
    path.write_bytes(data)
    found = contents(path)
    assert found.data == {f"{path}!open": b"o\n", f"{path}!after": b"a\n"}
    assert "encrypted" in found.why(f"{path}!secret")


def test_a_method_of_zip_that_we_lack_is_told(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "z", [("odd", b"o\n"), ("after", b"a\n")], zipfile.ZIP_LZMA, seekable=False)
    found = contents(path)
    assert "method 14" in found.why(f"{path}!odd")
    assert "method 14" in found.why(f"{path}!after")
    assert found.why(path) == ""


TIGHT = InputLimits(free_bytes=1 << 20, total_bytes=1 << 30)


def bomb(num_mib: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(b"a" * (1 << 20)) for _ in range(num_mib)), packer.flush()])


def test_a_bomb_is_stopped_by_its_ratio_long_before_its_end(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(bomb(64))
    found = contents(path, limits=TIGHT)
    assert "more than 500 times its size" in found.why(path)
    assert len(found.data[str(path)]) < 40 << 20


def test_a_bomb_in_an_archive_ends_the_archive(tmp_path: Path) -> None:
    member = bytes(64 << 20)
    path = make_zip(tmp_path / "z", [("good", b"g\n"), ("bomb", member), ("after", b"a\n")], zipfile.ZIP_DEFLATED)
    found = contents(path, limits=TIGHT)
    assert found.data[f"{path}!good"] == b"g\n"
    assert "times its size" in found.why(f"{path}!bomb")


def test_a_bomb_inside_a_bomb_is_counted_against_the_file_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(bomb(64)))
    found = contents(path, limits=TIGHT)
    assert "times its size" in found.why(path)
    assert sum(map(len, found.data.values())) < 40 << 20


def test_the_total_is_limited_too(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(os.urandom(3 << 20)))
    found = contents(path, limits=InputLimits(total_bytes=1 << 20))
    assert "the rest was not read" in found.why(path)
    assert len(found.data[str(path)]) <= 1 << 20


def test_the_number_of_members_is_limited(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "t", [(f"{i}", b"") for i in range(50)])
    found = contents(path, limits=InputLimits(num_members=20))
    assert len(found.data) == 20
    assert "more than 20 members" in found.why(path)


def test_logs_that_shrink_a_lot_are_no_bombs(tmp_path: Path) -> None:
    log = b"".join(b"gpu01:1:1 [0] NCCL INFO AllReduce: opCount %x comm 0x55 stream 0x5\n" % i for i in range(60_000))
    for packer, pack in PACKERS.items():
        path = tmp_path / packer
        path.write_bytes(pack(log))
        found = contents(path, limits=InputLimits(free_bytes=1 << 20))
        assert found.why(path) == "", (packer, len(log) / path.stat().st_size)


def test_a_long_name_in_a_tar_takes_no_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    path = tmp_path / "t"
    path.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(BLOCK * 4))
    begun = Stopwatch()
    assert "cut" in contents(path).why(path)
    assert begun.s < 1.0


def test_very_many_tiny_gzip_members_take_no_square_of_time(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(b"") * 20_000 + gzip.compress(b"end\n"))
    begun = Stopwatch()
    assert contents(path).data == {str(path): b"end\n"}
    assert begun.s < 5.0


def test_a_zip_that_says_it_is_larger_than_it_is(tmp_path: Path) -> None:
    fields = struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, 1, 20)
    extra = struct.pack("<HHQQ", 1, 16, 1 << 62, 1 << 62)
    path = tmp_path / "z"
    path.write_bytes(fields + b"n" + extra + LINES)
    found = contents(path)
    assert found.data == {f"{path}!n": LINES}
    assert "cut" in found.why(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.sampled_from(["t", "t.gz", "z", "zs", "zst"]),
    edits=st.lists(st.tuples(st.integers(0, 100_000), st.binary(min_size=1, max_size=12)), max_size=4),
    cut=st.integers(0, 100_000),
)
def test_no_bytes_end_in_a_crash(which: str, edits: list[tuple[int, bytes]], cut: int, tmp_path: Path) -> None:
    small = [("a", b"one\n" * 50), ("b", b"")]
    made = {
        "t": lambda p: make_tar(p, small),
        "t.gz": lambda p: make_tar(p, small, "w:gz"),
        "z": lambda p: make_zip(p, small, zipfile.ZIP_DEFLATED),
        "zs": lambda p: make_zip(p, small, zipfile.ZIP_STORED, seekable=False),
    }
    path = tmp_path / which
    if which == "zst":
        path.write_bytes(PACKERS["zst"](b"one\n" * 500))
    else:
        made[which](path)
    data = bytearray(path.read_bytes())
    for at, patch in edits:
        at %= len(data)
        data[at : at + len(patch)] = patch
    path.write_bytes(data[: cut % (len(data) + 1)] if cut % 3 == 0 else data)
    contents(path, limits=InputLimits(total_bytes=1 << 24))


def one(path: Path) -> Found:
    [found] = [item for item in find([str(path)]) if isinstance(item, Found)]
    return found


def test_a_file_that_grows_has_an_end(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(LINES)
    [source] = list(unpack(one(path)))
    assert isinstance(source, Source)
    for source in unpack(one(path)):
        assert isinstance(source, Source)
        with path.open("ab") as writer, source.open() as stream:
            writer.write(LINES)
            writer.flush()
            assert stream.read() == LINES
        assert source.problem is None


def test_a_file_that_shrinks_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(LINES * 4)
    for source in unpack(one(path)):
        assert isinstance(source, Source)
        os.truncate(path, len(LINES))
        with source.open() as stream:
            assert stream.read() == LINES[:65536] + LINES[65536:]
        assert "shorter while it was read" in in_english(source.problem)


def test_a_file_that_vanished_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(LINES)
    found = one(path)
    path.unlink()
    [record] = list(unpack(found))
    assert isinstance(record, SourceRecord)
    assert record.problem == "it vanished before it was read"


def test_standard_input_may_be_an_archive(tmp_path: Path) -> None:
    script = "from tests.evidence.inputs.contents import contents; print(sorted(contents('-').data))"
    for path in (
        make_tar(tmp_path / "t", FILES, "w:gz"),
        make_zip(tmp_path / "z", FILES, zipfile.ZIP_DEFLATED, seekable=False),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script], input=path.read_bytes(), capture_output=True, timeout=60, check=False
        )
        assert done.stdout.decode().strip() == str(sorted(f"-!{name}" for name, _ in FILES)), done.stderr


def test_what_the_shell_opened_for_us_is_read() -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"piped\n")
        os.close(writing)
        assert contents(f"/dev/fd/{reading}").data == {f"/dev/fd/{reading}": b"piped\n"}
    finally:
        os.close(reading)


ENDLESS_LINE = """
import sys
from allready.evidence.inputs import find, unpack
from allready.model.fill import in_english
most = 0
for found in find(["-"]):
    for source in unpack(found):
        with source.open() as stream:
            while block := stream.read(1 << 20):
                most += len(block)
print(most)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def test_a_stream_of_a_gigabyte_takes_a_few_megabytes() -> None:
    reader = subprocess.Popen(
        [sys.executable, "-c", ENDLESS_LINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False
    )
    assert reader.stdin is not None
    block = b"x" * (1 << 20)
    for _ in range(1024):
        reader.stdin.write(block)
    out, _ = reader.communicate(timeout=60)
    num_bytes, rss_kib = map(int, out.split())
    assert num_bytes == 1 << 30
    assert rss_kib < 80 << 10


def test_the_tail_of_a_plain_file_is_that_of_its_size_when_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(LINES)
    sources = unpack(next(f for f in find([str(path)]) if isinstance(f, Found)))
    source = next(sources)
    assert isinstance(source, Source)
    with path.open("ab") as file:
        file.write(b"later\n")
    assert source.tail(100) == LINES[-100:]
    assert source.tail(10 * len(LINES)) == LINES
    with source.open() as stream:
        assert stream.read() == LINES
    assert list(sources) == []
    assert source.tail(100) == b""


def test_what_lies_in_an_archive_has_no_tail(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(LINES))
    (source,) = unpack(next(f for f in find([str(path)]) if isinstance(f, Found)))
    assert isinstance(source, Source)
    assert source.tail(100) == b""
