"""The compiled part of the scanner gives what Python gives; without it everything goes on."""

import io
import random
from collections.abc import Iterator
from pathlib import Path

import foreign_lines
import make_logs
import numpy as np
import pytest
from tools.build_native import SOURCES, check_platform, compiled

from allready.evidence.inputs import Found, Source, find, unpack
from allready.evidence.lines import line_buffer, line_counts
from allready.evidence.lines import native as native_module
from allready.evidence.lines.anchors import LINE_ANCHORS
from allready.evidence.lines.chunk import Lines
from allready.evidence.lines.forms import APART, MARKED, PLAIN, Forms
from allready.evidence.lines.line_buffer import process_of, without_numbers
from allready.evidence.lines.literals import Literals
from allready.evidence.lines.marks import PADDING, Marker
from allready.evidence.lines.model import LIMITS, LineLimits, Scanned
from allready.evidence.lines.native import Native, native
from allready.evidence.lines.residue import ResidueReader
from allready.evidence.lines.scan import scan
from allready.evidence.lines.templates import Rows
from allready.names import NO_NATIVE_VARIABLE
from allready.signatures import table
from tests.evidence.lines.logs import operation
from tests.evidence.lines.test_forms import TIGHT, made_up

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[3]
SOURCE = SOURCES[0]
FIXTURES = ROOT / "tests" / "fixtures"
MAX_BYTES = 3_000_000
KINDS = (
    "--kind mixed --ranks 1", "--kind mixed --ranks 64", "--kind mixed --ranks 64 --timestamps", "--kind training",
    "--kind words", "--kind bars", "--ranks 1 --iterations", "--ranks 8 --interleaved",
    "--ranks 8 --interleaved --timestamps", "--kind tqdm",
    *(f"--kind {kind}" for kind in foreign_lines.KINDS),
    *(f"--kind mixed --ranks 8 --as {form}" for form in ("prefixes", "kubernetes", "crlf")),
)  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of this source, whatever is installed."""
    path = tmp_path_factory.mktemp("native") / "native.lib"
    reason = compiled(ROOT / SOURCE, path)
    if reason:
        pytest.skip(f"cannot be compiled here: {reason}")
    return path


@pytest.fixture
def engine(library: Path, monkeypatch: pytest.MonkeyPatch) -> Native:
    monkeypatch.setattr(native_module, "LIBRARY", library)
    monkeypatch.delenv(NO_NATIVE_VARIABLE, raising=False)
    found = native()
    assert found is not None
    return found


def _difference(data: bytes, limits: LineLimits = LIMITS, chunk_bytes: int = 1 << 16) -> list[str]:
    one, other = (
        scan(
            io.BytesIO(data),
            limits=limits,
            chunk_bytes=max(chunk_bytes, 2 * limits.line_bytes),
            use_native=use_native,
            use_lane=False,
        )
        for use_native in (True, False)
    )
    return [name for name in Scanned.__struct_fields__ if getattr(one, name) != getattr(other, name)]


def _recorded() -> Iterator[tuple[str, bytes]]:
    """Everything that the fixtures hold, archives opened."""
    for found in find([str(FIXTURES)]):
        for source in unpack(found) if isinstance(found, Found) else ():
            if isinstance(source, Source):
                with source.open() as stream:
                    yield source.label, stream.read(MAX_BYTES)


@pytest.mark.parametrize("line", [b"step %d loss 0.1\r\n", b"%d " + b"x" * 9_000 + b"\n"], ids=["CRLF", "long"])
def test_a_log_of_lines_without_forms_is_read(engine: Native, line: bytes) -> None:
    """Lines that end with CR LF have the form of others, very long ones have none; all of them are read."""
    data = b"".join(line % n for n in range(600))
    assert _difference(data) == []
    assert scan(io.BytesIO(data)).num_lines == 600


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.slow)])
def test_recorded_runs_give_the_same(engine: Native, every: int) -> None:
    """What is found in a log decides its verdict, so that is the same too."""
    wrong, num, whole = {}, 0, bytearray()
    for label, data in _recorded():
        num += 1
        if num % every:
            continue
        if fields := _difference(data, chunk_bytes=1 << 20):
            wrong[label] = fields
        if len(whole) < MAX_BYTES and len(data) < 200_000:
            whole += data
    assert num > 300
    wrong |= {f"all, {limits}": fields for limits in (LIMITS, TIGHT) if (fields := _difference(bytes(whole), limits))}
    assert wrong == {}


def test_made_up_logs_give_the_same(engine: Native, tmp_path: Path) -> None:
    wrong = {}
    for options in KINDS:
        folder = tmp_path / options.replace(" ", "")
        make_logs.make(make_logs.parser().parse_args(["--bytes", "100KB", "--out", str(folder), *options.split()]))
        for path in folder.iterdir():
            if fields := _difference(path.read_bytes()):
                wrong[options] = fields
    for seed in range(4):
        for limits in (LIMITS, TIGHT):
            if fields := _difference(made_up(seed), limits):
                wrong[f"{seed} {limits}"] = fields
    assert wrong == {}


def test_operations_of_many_processes_give_the_same(engine: Native) -> None:
    """More templates of one layout than are kept apart by the number of elements, which may be too large to pack."""
    rng = random.Random(8)
    texts = [
        operation(
            rng,
            count=rng.choice((7, 8, 10**13 + 1, 10**13 + 2)),
            pid=4_000 + rng.randrange(300),
            name="AllReduce",
            tail="0x5618a0b0",
        )
        for n in range(4_000)
    ]
    data = "".join(f"{text}\n" for text in texts).encode()
    assert _difference(data) == []
    assert scan(io.BytesIO(data)).num_coll == 4_000


_STARTS = (
    b"NET/IB : No device found.", b"Trees [0] %d/-1/-1->1", b"Channel %d/1 : 0[0] -> 1[1]", b"Init COMPLETE %d",
    b"comm 0x55ab%d0 rank 3", b"NCCL_%d set by environment", b"Connection refused %d", b"Using network Socket",
)  # fmt: skip


@pytest.mark.parametrize("bounds", [(50_000, 1 << 23), (700, 300)], ids=["", "tight"])
def test_many_processes_in_one_log_give_the_same(
    engine: Native, monkeypatch: pytest.MonkeyPatch, bounds: tuple[int, int]
) -> None:
    """Each starts with the same lines; tight: of a process and a form there are more pairs than are counted."""
    monkeypatch.setattr(line_buffer, "_MAX_KEYS", bounds[0])
    monkeypatch.setattr(line_counts, "_MAX_CELLS", bounds[1])
    rng = random.Random(11)
    lines = []
    for rank in range(300):
        host, pid, comm = f"gpu{rank // 8:03}", rng.randrange(100, 200_000), f"0x55{rng.randrange(16**8):08x}"
        front = f"{host}:{pid}:{pid} [{rank % 8}] NCCL INFO ".encode()
        starts = (start % rank if b"%" in start else start for start in _STARTS)
        lines += [(rank + at, front + start) for at, start in enumerate(starts)]
        lines += [
            (rank + n * 40, operation(rng, host=host, pid=pid, comm=comm, name="AllReduce", number=n).encode())
            for n in range(4)
        ]
    lines.sort(key=lambda line: line[0])
    data = b"\n".join(text for _, text in lines) + b"\n"
    limits = LineLimits(uninformative_lines=2, processes=280)
    assert _difference(data, limits, 1 << 17) == []
    plainly = scan(io.BytesIO(data), limits=limits, use_forms=False, use_native=False)
    found = scan(io.BytesIO(data), limits=limits, chunk_bytes=1 << 17)
    assert (found.num_coll, len(found.streams), len(found.last_lines)) == (1_200, 300, 280)
    assert (found.lines, found.repeats, found.streams) == (plainly.lines, plainly.repeats, plainly.streams)


def _lines(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A buffer with these lines, where they begin, their lengths, and all of them."""
    data = np.frombuffer(b"".join(text + b"\n" for text in texts) + b"\n" * 4_096, np.uint8)
    lengths = np.array([len(text) for text in texts], np.int64)
    starts = np.cumsum(lengths + 1) - lengths - 1
    return data, starts, lengths, np.arange(len(texts))


def test_forms_are_those_of_python(engine: Native) -> None:
    """Lines have one number if and only if they differ in numbers only."""
    rng = random.Random(3)
    texts = [bytes(rng.choices(b"00012x9afg -", k=rng.randrange(40))) for _ in range(6_000)]
    texts += [b"abc" * num + b"%d" % num + b"\x80/:@" * (num % 3) for num in range(900)]
    lines, table = _lines(texts), engine.table()
    kinds = np.zeros(len(texts) + 1, np.uint8)
    numbers, hashes, num_new, *_ = engine.forms(*lines, table, kinds)
    assert num_new == int(np.count_nonzero(numbers < 0))
    by_hash: dict[int, set[bytes]] = {}
    by_form: dict[bytes, set[int]] = {}
    for text, number, hashed in zip(texts, numbers.tolist(), hashes.tolist(), strict=True):
        form = without_numbers(text)
        if number == 0:
            assert len(form) > 1_024
            continue
        by_hash.setdefault(hashed, set()).add(form)
        by_form.setdefault(form, set()).add(hashed)
    assert len(by_form) > 2_000
    assert {hashed: forms for hashed, forms in by_hash.items() if len(forms) > 1} == {}
    assert {form: some for form, some in by_form.items() if len(some) > 1} == {}
    keys = np.array(sorted(by_hash), np.uint64)
    table.add(keys, np.arange(1, len(keys) + 1))
    again, _, num_new, *_ = engine.forms(*lines, table, kinds)
    assert num_new == 0
    assert again.tolist() == [
        int(np.searchsorted(keys, h)) + 1 if n else 0 for h, n in zip(hashes, numbers, strict=True)
    ]


_SEGMENTS = [
    b"", b" 12%|##  | 3/25", b" 50%|## | 12/25 0x1f", b"Iteration 7 of 9", b"step 3", b"max_steps 12", b"a" * 9_000,
    b"Traceback (most recent call last):", b"h:1:2 [0] NCCL INFO 5", b"RuntimeError: CUDA error", b"b" * 1_100,
    b"x%d" * 40,
]  # fmt: skip


def _kinds_of(texts: list[bytes], engine: Native | None) -> list[int]:
    """What the forms of lines are, once they were seen."""
    reader = ResidueReader(Marker(), None, LIMITS.clip_bytes, engine)
    known = Forms(reader.anchors, reader.blocks, engine)
    data = b"".join(text + b"\n" for text in texts)
    rows = Rows(bytearray(data + b"\n" * 4_096))
    _, starts, lengths, at = _lines(texts)
    lines = Lines(rows.buffer, rows, 0, 0, starts, lengths, engine)
    for _ in range(2):
        numbers = known.of(lines, at)
    assert numbers is not None
    return [int(kind) for kind in known.kinds[numbers]]


def test_forms_that_come_once_among_many_are_learnt_when_they_come_again(engine: Native) -> None:
    """A sample of text in a log would fill the table with forms of which no line comes again."""
    rng = random.Random(11)
    texts = ["".join(rng.choices("abcdefghij", k=12)).encode() for _ in range(600)]
    some = [b"step of all %d" % n for n in range(1_000)] + texts
    data, starts, lengths, at = _lines(some)
    rows = Rows(bytearray(data.tobytes()))
    lines = Lines(rows.buffer, rows, 0, 0, starts, lengths, engine)
    known = Forms(lambda _, __: np.empty(0, np.int64), lambda _, __: np.empty(0, np.int64), engine)
    before = len(known.forms)
    first = known.of(lines, at)
    assert first is not None
    assert len(known.forms) == before + 1
    assert (first[:1_000] == before).all()
    assert (first[1_000:] == 0).all()
    again = known.of(lines, at)
    assert again is not None
    assert len(known.forms) == before + 1 + len(texts)
    assert len(set(again[1_000:].tolist())) == len(texts)


def test_segments_between_carriage_returns_decide_together(engine: Native) -> None:
    rng = random.Random(6)
    texts = [b"\r".join(rng.choices(_SEGMENTS[: rng.choice((3, 6, 12))], k=rng.randrange(1, 9))) for _ in range(900)]
    texts = [*(text + rng.choice((b"", b"\r", b"\r\r")) for text in texts), b"\r", b"\r".join(4_000 * [b"5%"])]
    found = _kinds_of(texts, engine)
    of = dict(zip(_SEGMENTS, _kinds_of(4 * _SEGMENTS, None), strict=False)) | {b"5%": PLAIN}
    assert {*of.values()} >= {PLAIN, MARKED, APART}
    for text, kind in zip(texts, found, strict=True):
        segments = text.rstrip(b"\r").split(b"\r")
        if len(segments) > 1:
            kinds = {of[one] for one in segments if one}
            assert kind == (APART if not kinds <= {PLAIN, MARKED} else max(kinds)), text
        elif len(text) < 8_192:
            assert kind == of[segments[0]], text
    assert {kind for text, kind in zip(texts, found, strict=True) if b"\r" in text.rstrip(b"\r")} == {
        PLAIN,
        MARKED,
        APART,
    }
    assert found[-1] == PLAIN


@pytest.mark.parametrize("word", [b"", b"\rRuntimeError: CUDA error 7\r", b"\rstep 31 of 90\r"])
def test_progress_bars_without_a_newline_are_read_as_python_reads_them(engine: Native, word: bytes) -> None:
    """What is worth it is found wherever it stands, across the borders of chunks and pieces too."""
    rng = random.Random(10)
    for _ in range(6):
        bars = [b"\r%3d%%|%-20b| %d/900" % (n % 100, n % 20 * b"#", n) for n in range(12_000)]
        bars.insert(rng.choice((rng.randrange(12_000), 3_640 + rng.randrange(20))), word)
        data = b"".join([b"begin\n" * rng.randrange(2), *bars, b"\nend\n" * rng.randrange(2)])
        assert _difference(data) == []
        assert bool(scan(io.BytesIO(data)).lines) == (b"CUDA" in word)


def test_more_new_segments_than_one_call_tells(engine: Native) -> None:
    texts = [b"\r".join(b"%b%d" % (bytes([97 + i % 26, 97 + i // 26 % 26, 97 + i // 676]), i) for i in range(9_000))]
    numbers, hashes, num_new, num, num_new_segments, new, places, lengths = engine.forms(
        *_lines(texts), engine.table(), np.zeros(1, np.uint8)
    )
    assert (numbers.tolist(), hashes.tolist(), num_new, num, num_new_segments) == ([-1], [0], 1, 9_000, 9_000)
    assert len(new) == len(places) == len(lengths) == 4_096
    at, end = int(places[-1]), int(places[-1] + lengths[-1])
    assert texts[0][at:end] == texts[0].split(b"\r")[4_095]


def test_processes_are_those_of_python(engine: Native) -> None:
    rng = random.Random(4)
    parts = [b"h1:22:33 ", b"NCCL ", b"[0] ", b"12:13:14 ", b":5:6 ", b"a.b-c_d:1:2 ", b"x", b":", b"12345678901:2:3 "]
    texts = [b"".join(rng.choices(parts, k=rng.randrange(1, 7))) + b"INFO" for _ in range(5_000)]
    texts += [b"h" * 300 + b":1:2 NCCL INFO", b"NCCL INFO h:1:2 ", b""]
    numbers, hashes, _ = engine.processes(*_lines(texts), engine.table())
    names: dict[int, set[str]] = {}
    for text, number, hashed in zip(texts, numbers.tolist(), hashes.tolist(), strict=True):
        found = process_of(text)
        assert (number == 0) == (found is None), text
        if found is not None:
            names.setdefault(hashed, set()).add(found[0])
    assert len(names) > 5
    assert {hashed: some for hashed, some in names.items() if len(some) > 1} == {}


def test_markers_are_those_of_python(engine: Native) -> None:
    rng = random.Random(5)
    parts = [b"step", b"Iter", b"iteration", b"ITERations", b" ", b": ", b"=", b"12", b"5.5", b"7%", b"max_",
             b"global ", b"eval ", b"x", b"9" * 12, b"8" * 13, b"(", b" " * 25, b"1,", b"\r", b"'"]  # fmt: skip
    texts = [b"".join(rng.choices(parts, k=rng.randrange(8))) for _ in range(20_000)]
    lines = _lines(texts)
    data = lines[0].tobytes()
    expected = Marker().find(data, len(data) - PADDING, lines[1])
    found = Marker().find_in(engine, *lines)
    assert len(found.lines) > 400
    assert [column.tolist() for column in found] == [column.tolist() for column in expected]


def test_newlines_and_groups(engine: Native) -> None:
    rng = random.Random(6)
    data = bytes(rng.choices(b"\nab", k=5_000))
    assert engine.newlines(np.frombuffer(data, np.uint8), 4_000).tolist() == [
        at for at, byte in enumerate(data[:4_000]) if byte == 10
    ]
    for num in (0, 1, 3_000, 40):
        keys = np.array([rng.randrange(30) * 10**12 for _ in range(num)], np.int64)
        order, begins = engine.groups(keys)
        groups = [part.tolist() for part in np.split(order, begins[1:])] if num else []
        members: dict[int, list[int]] = {}
        for at, key in enumerate(keys.tolist()):
            members.setdefault(key, []).append(at)
        assert groups == list(members.values())


def test_it_is_not_needed(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_module, "LIBRARY", library)
    monkeypatch.setenv(NO_NATIVE_VARIABLE, "1")
    assert native() is None
    monkeypatch.delenv(NO_NATIVE_VARIABLE)
    assert native() is not None
    broken, older = tmp_path / "broken.lib", tmp_path / "older.lib"
    broken.write_bytes(b"no library")
    (tmp_path / "older.c").write_text("long long allready_version(void) { return 0; }")
    assert compiled(tmp_path / "older.c", older) == ""
    for path in (broken, older, tmp_path / "none.lib"):
        monkeypatch.setattr(native_module, "LIBRARY", path)
        assert native() is None
        assert scan(io.BytesIO(made_up(1))).num_lines == made_up(1).count(b"\n") + 1


def test_why_it_was_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "native.lib"
    for environ, words in (
        ({"ALLREADY_NO_NATIVE": "1"}, "ALLREADY_NO_NATIVE is set"),
        ({"CC": str(tmp_path / "none")}, "No such file"),
        ({"CC": "false"}, "false ended with exit code 1"),
    ):
        with monkeypatch.context() as patch:
            patch.delenv(NO_NATIVE_VARIABLE, raising=False)
            for name, value in environ.items():
                patch.setenv(name, value)
            assert words in compiled(ROOT / SOURCE, target), environ
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_promises_no_older_c_library_than_it_needs() -> None:
    needs = b"\0memcpy\0GLIBC_2.14\0GLIBC_2.2.5\0"
    check_platform(needs, "manylinux_2_17_x86_64")
    check_platform(needs, "")
    with pytest.raises(RuntimeError, match=r"needs glibc 2\.14"):
        check_platform(needs, "manylinux_2_5_x86_64")


def test_long_lines_are_read_piece_by_piece_only_where_something_stands(engine: Native) -> None:
    """What stands at the border of two pieces is found; of pieces with nothing in them none is read."""
    word = next(anchor for anchor in table.anchors() if anchor.isascii() and 20 < len(anchor) < 60).encode()
    plain = b"the answer was longer than before, it writes of no component and of a fortnight " * 60
    for at in (0, 3_990, 4_000, 4_001, 4_399, 4_405, 7_990, len(plain)):
        line = plain[:at] + word + plain[at:] + b" step 7, loss"
        data = b"first\n" + line + b"\n" + plain + b"\n"
        assert _difference(data, TIGHT) == []
        found = scan(io.BytesIO(data), limits=TIGHT, chunk_bytes=1 << 16)
        assert any(word in kept.text for kept in found.lines)
        assert [mark.iteration for mark in found.marks] == [7]
        assert {kept.number for kept in found.lines} == {2}


@pytest.mark.parametrize("seed", range(4))
def test_anchors_are_found_where_numpy_finds_them(engine: Native, seed: int) -> None:
    rng = random.Random(seed)
    anchors = [anchor.encode() for anchor in (*table.anchors(), *LINE_ANCHORS)]
    literals = Literals(anchors)
    words = [rng.choice((rng.choice(anchors), rng.randbytes(rng.randrange(9)))) for _ in range(2000)]
    data = b"".join(words)
    for length in (len(data), len(data) - 1, 700, 3, 0):
        compiled_ones, others = literals.find(data, length, engine), literals.find(data, length)
        assert len(others[0]) > 500 or length < 1000
        for one, other in zip(compiled_ones, others, strict=True):
            assert np.array_equal(one, other)
