"""What is read of a log depends on no envelope that a collector put around its lines."""

import functools
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from allready.evidence.growth import Growth
from allready.evidence.inputs import find
from allready.evidence.inputs.envelopes import Opened, envelope_of
from allready.evidence.lines.native import native
from allready.evidence.readers import read_found
from allready.evidence.reading import Reading
from allready.names import NO_NATIVE_VARIABLE
from tests.cases import cases
from tests.evidence.inputs.contents import contents
from tests.recorded.archives import diagnosed, named, unpacked

pytestmark = pytest.mark.thorough

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def stamp(number: int) -> str:
    return f"2026-07-01T10:{number // 600 % 60:02d}:{number // 10 % 60:02d}.{number % 10}00000000Z"


def docker(lines: Sequence[str]) -> str:
    return "".join(
        json.dumps({"log": f"{line}\n", "stream": ("stdout", "stderr")[number % 2], "time": stamp(number)}) + "\n"
        for number, line in enumerate(lines)
    )


def compact(lines: Sequence[str]) -> str:
    return "".join(
        json.dumps({"time": stamp(number), "log": f"{line}\n"}, separators=(",", ":"), ensure_ascii=False) + "\n"
        for number, line in enumerate(lines)
    )


def cri(lines: Sequence[str]) -> str:
    return "".join(f"{stamp(number)} stdout F {line}\n" for number, line in enumerate(lines))


def cri_in_pieces(lines: Sequence[str]) -> str:
    return "".join(
        f"{stamp(number)} stderr P {line[:30]}\n{stamp(number)} stderr F {line[30:]}\n"
        for number, line in enumerate(lines)
    )


def cloudwatch(lines: Sequence[str]) -> str:
    return "".join(json.dumps({"timestamp": 17_800_000 + n, "message": line}) + "\n" for n, line in enumerate(lines))


def google(lines: Sequence[str]) -> str:
    return "".join(
        json.dumps({"resource": {"labels": {"pod": "p"}}, "textPayload": line, "timestamp": stamp(n)}) + "\n"
        for n, line in enumerate(lines)
    )


def loki(lines: Sequence[str]) -> str:
    inner = docker(lines).splitlines()
    return "".join(
        json.dumps({"labels": {"pod": "p"}, "line": line, "timestamp": stamp(n)}) + "\n" for n, line in enumerate(inner)
    )


def colours(lines: Sequence[str]) -> str:
    return "".join(f"\x1b[32m{line}\x1b[0m\n" for line in lines)


def colours_in_docker(lines: Sequence[str]) -> str:
    return docker(colours(lines).splitlines())


ENVELOPES: tuple[Callable[[Sequence[str]], str], ...] = (
    docker,
    compact,
    cri,
    cri_in_pieces,
    cloudwatch,
    google,
    loki,
    colours,
    colours_in_docker,
)


PLAIN = FIXTURES / "lines" / "two_meshes.log"


def reading_of(path: Path) -> Reading:
    (found,) = [reading for item in find([str(path)]) for reading in read_found(item)]  # type: ignore[arg-type]
    return found


def operations(reading: Reading) -> list[object]:
    return [(one.origin.host, one.origin.pid, one.comm, one.shapes, one.counts) for one in reading.op_streams]


@functools.cache
def plain_reading(*, native: bool) -> Reading:
    """Of the log in no envelope; `native` is whether the compiled scanner is in use."""
    del native
    return reading_of(PLAIN)


@pytest.mark.parametrize("native", [True, False])
@cases("envelope", ENVELOPES)
def test_operations_and_events_are_those_of_the_plain_log(
    envelope: Callable[[Sequence[str]], str], native: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr("allready.evidence.lines.scan.native", lambda: None)
    path = tmp_path / "two_meshes.log"
    path.write_text(envelope(PLAIN.read_text().splitlines()))
    one, two = plain_reading(native=native), reading_of(path)
    assert sum(stream.num_operations for stream in one.op_streams) == 127
    assert operations(two) == operations(one)
    assert two.source.num_unknown == one.source.num_unknown
    events = [[(e.signature, e.text, e.origin.rank) for e in reading.events] for reading in (one, two)]
    assert events[1] == events[0]
    if envelope is not cri_in_pieces:
        assert [e.origin.line for e in two.events] == [e.origin.line for e in one.events]
        assert [s.last_line for s in two.op_streams] == [s.last_line for s in one.op_streams]


def zap(line: str, number: int) -> dict[str, object]:
    return {"level": "info", "ts": 17_800_000.5 + number, "caller": "run.go:22", "msg": line}


def logrus(line: str, number: int) -> dict[str, object]:
    return {"level": "info", "msg": line, "time": stamp(number)}


def journald(line: str, number: int) -> dict[str, object]:
    return {"__REALTIME_TIMESTAMP": str(17_800_000 + number), "_PID": "7", "PRIORITY": "6", "MESSAGE": line}


def nested(line: str, number: int) -> dict[str, object]:
    return {"insertId": str(number), "jsonPayload": {"attrs": {}, "message": line}, "timestamp": stamp(number)}


Record = Callable[[str, int], dict[str, object]]


@cases("record", [zap, logrus, journald, nested])
def test_records_of_loggers_are_read_as_the_lines_in_them(record: Record, tmp_path: Path) -> None:
    plain = FIXTURES / "lines" / "two_meshes.log"
    lines = plain.read_text().splitlines()
    path = tmp_path / "two_meshes.log"
    path.write_text("".join(json.dumps(record(line, n)) + "\n" for n, line in enumerate(lines)))
    one, two = reading_of(plain), reading_of(path)
    assert operations(two) == operations(one)
    assert [(e.signature, e.text, e.origin.line) for e in two.events] == [
        (e.signature, e.text, e.origin.line) for e in one.events
    ]


def aws(lines: Sequence[str]) -> object:
    events = [{"timestamp": n, "message": line, "ingestionTime": n} for n, line in enumerate(lines)]
    return {"events": events, "nextForwardToken": "f/3"}


def gcloud(lines: Sequence[str]) -> object:
    return [{"insertId": "i", "textPayload": line, "timestamp": stamp(n)} for n, line in enumerate(lines)]


@pytest.mark.parametrize("document", [aws, gcloud])
def test_a_document_of_records_is_read_as_the_lines_in_it(
    document: Callable[[Sequence[str]], object], tmp_path: Path
) -> None:
    plain = FIXTURES / "lines" / "two_meshes.log"
    path = tmp_path / "events.json"
    path.write_text(json.dumps(document(plain.read_text().splitlines()), indent=4))
    one, two = reading_of(plain), reading_of(path)
    assert operations(two) == operations(one)
    written = path.read_text().splitlines()
    assert [e.signature for e in two.events] == [e.signature for e in one.events]
    assert all(json.dumps(e.text)[1:-1] in written[(e.origin.line or 0) - 1] for e in two.events)


def in_one_line(lines: Sequence[str]) -> str:
    return json.dumps(aws(lines), separators=(",", ":"))


def in_one_line_newest_first(lines: Sequence[str]) -> str:
    records = gcloud(lines)
    assert isinstance(records, list)
    return json.dumps(records[::-1])


@pytest.mark.parametrize("document", [in_one_line, in_one_line_newest_first])
def test_a_document_in_one_line_is_read_as_the_lines_in_it(
    document: Callable[[Sequence[str]], str], tmp_path: Path
) -> None:
    plain = FIXTURES / "lines" / "two_meshes.log"
    lines = plain.read_text().splitlines()
    path = tmp_path / "events.json"
    path.write_text(document(lines))
    assert contents(path).data[str(path)].decode().splitlines() == lines
    one, two = reading_of(plain), reading_of(path)
    assert operations(two) == operations(one)
    assert [e.signature for e in two.events] == [e.signature for e in one.events] != []
    assert {e.origin.line for e in two.events} == {1}


def console(lines: Sequence[str]) -> str:
    """What `gcloud` prints of a training job, newest first."""
    rows = [
        f"ERROR   2026-07-01 10:{n // 60:02d}:{n % 60:02d} +0000       workerpool0-0   {x}" for n, x in enumerate(lines)
    ]
    return "\n".join(rows[::-1]) + "\n"


def document_newest_first(lines: Sequence[str]) -> str:
    records = gcloud(lines)
    assert isinstance(records, list)
    return json.dumps(records[::-1], indent=2)


def stamped(lines: Sequence[str]) -> str:
    return "".join(f"2026-07-01T10:{n // 60:02d}:{n % 60:02d}Z {line}\n" for n, line in enumerate(lines) if line)


TRACE = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    main()",
    '  File "train.py", line 9, in main',
    "    labels = batch.pop('labels')",
    "KeyError: 'labels'",
]


@pytest.mark.parametrize("form", [console, document_newest_first])
def test_what_a_console_prints_newest_first_is_read_from_its_end(
    form: Callable[[Sequence[str]], str], tmp_path: Path
) -> None:
    path = tmp_path / "job.log"
    path.write_text(form(["starting", *TRACE, "ended"]))
    (death,) = reading_of(path).deaths
    assert (death.text, str(death.site)) == ("KeyError: 'labels'", "train.py:9 main")
    assert "Traceback" in path.read_text().splitlines()[(death.origin.line or 0) - 1]


def test_lines_without_a_time_stay_below_the_one_that_has_it(tmp_path: Path) -> None:
    entries = ["".join(f"{line}\n" for line in entry) for entry in (["a"], ["b", "  b2", "b3"], ["c"], ["d"], ["e"])]
    dated = [f"2026-07-01 10:00:{at:02d} {entry}" for at, entry in enumerate(entries)]
    path = tmp_path / "x.log"
    path.write_text("".join(dated[::-1]))
    assert contents(path).data[str(path)].decode() == "".join(dated)


@cases(
    "text",
    [
        stamped(["a", "b", "c", "d", "e", "f"]),
        console(["a", "b", "c", "d", "e"]) + console(["a", "b"]),  # it goes up once
        "2026-07-01 10:00:00 same second\n" * 9,
        "2026-07-01 10:00:02 ckpt\n2026-07-01 10:00:01 ckpt\n2026-07-01 10:00:00 ckpt\n",  # a list of a few files
    ],
)
def test_other_orders_are_left_as_they_are(text: str) -> None:
    assert envelope_of(text.encode()) is None


@pytest.mark.parametrize("text", ['{"msg": "hello", "id": 3}\n' * 3, '{\n    "message": "x",\n    "message": "y"\n}\n'])
def test_what_only_has_such_a_field_is_no_envelope(text: str) -> None:
    assert envelope_of(text.encode()) is None


@pytest.mark.parametrize("run", ["size_mismatch", "eval_branch", "v2_lock"])
def test_the_verdict_on_recorded_operations_is_the_same_in_every_envelope(run: str, tmp_path: Path) -> None:
    folder = unpacked(FIXTURES / "runs" / f"{run}.tar.xz", tmp_path)
    logs = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and b"sendbuff" in (data := path.read_bytes()):
            logs[path] = data.decode().splitlines()
        elif path.is_file():
            path.unlink()  # the logs alone are asked
    assert logs

    def verdict() -> tuple[object, ...]:
        found = diagnosed(folder, tmp_path)["verdict"]
        return found["fault_class"], found["confidence"], found["sentence"], named(found)

    plain = verdict()
    for envelope in ENVELOPES:
        for path, lines in logs.items():
            path.write_text(envelope(lines))
        assert verdict() == plain, envelope


@cases("envelope", ENVELOPES)
def test_a_stack_keeps_its_reader(envelope: Callable[[Sequence[str]], str], tmp_path: Path) -> None:
    text = """Process 1625: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 1625 (idle): "MainThread"
    step (train.py:25)
    <module> (train.py:40)
"""
    path = tmp_path / "x.txt"
    path.write_text(text)
    plain = reading_of(path)
    path.write_text(envelope(text.splitlines()))
    found = reading_of(path)
    assert [stack.threads for stack in found.stacks] == [stack.threads for stack in plain.stacks] != []


def test_records_with_several_lines_and_pieces_keep_the_numbers_of_the_file(tmp_path: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: bad sample'
    path = tmp_path / "x.log"
    path.write_text(cloudwatch(["starting", "two\nlines\nmore", "ready", trace, "[rank1]: CUDA out of memory"]))
    assert contents(path).data[str(path)].decode().splitlines() == [
        "starting", "two", "lines", "more", "ready", *trace.splitlines(), "[rank1]: CUDA out of memory",
    ]  # fmt: skip
    reading = reading_of(path)
    assert [(death.origin.line, death.text) for death in reading.deaths] == [(4, "ValueError: bad sample")]
    assert reading.source.num_lines == 5

    pieces = [("a", "stdout"), ("1", "stderr"), ("b\n", "stdout"), ("2\n", "stderr"), ("c\n", "stdout")]
    whole = [("first\n", "stdout")] * 8
    path.write_text("".join(json.dumps({"log": text, "stream": name}) + "\n" for text, name in whole + pieces))
    assert contents(path).data[str(path)] == b"first\n" * 8 + b"\n\nab\n12\nc\n"


def test_damaged_records_pass_as_they_are(tmp_path: Path) -> None:
    good = cloudwatch([f"line {n}" for n in range(200)]).encode().splitlines(keepends=True)
    bad = [
        b'{"message": "cut\n',
        b"no record\n",
        b'{"message": 5}\n',
        b"\n",
        b'{"message": "\xff"}\n',
        b"[" * 9000 + b"\n",
    ]
    path = tmp_path / "x.log"
    path.write_bytes(b"".join([*good, *bad, good[0], b'{"message": "the end"}']))
    text = b"".join(b"line %d\n" % n for n in range(200))
    rest = b"".join([*bad[:4], "\N{REPLACEMENT CHARACTER}\n".encode(), bad[5], b"line 0\nthe end\n"])
    assert contents(path).data[str(path)] == text + rest


@cases(
    ("data", "text"),
    [
        (b"\x1b[32ma\x1b[0m\n\x1b[32mb\x1b[0m\nTraining fin", b"a\nb\nTraining fin"),
        (docker(["a", "b"]).encode() + b'{"log": "Training fin', b'a\nb\n{"log": "Training fin'),
        (docker(["a", "b"]).encode() + b'{"log": "Training fin", "stream": "stdout"}\n', b"a\nb\nTraining fin"),
        (docker(["a", "b"]).encode() + b'{"log": "done\\n", "stream": "stdout"}', b"a\nb\ndone\n"),
    ],
)
def test_a_last_line_that_breaks_off_has_no_end_in_the_text_either(data: bytes, text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(data)
    lines = contents(path).data[str(path)].splitlines(keepends=True)
    assert b"".join(line.split(b"Z ", 1)[-1] for line in lines).replace(b"\n ", b"\n").lstrip() == text


@cases(
    "text",
    [
        '{"loss": 1.5, "step": 3}\n{"loss": 1.4, "step": 4}\n',
        '{"message": {"message": "x", "extraInfo": {"timestamp": "1"}}}\n',
        '{"message": "RuntimeError: x", "errorCode": 1, "timestamp": 5}',
        "1 step\n2 step\n\x1b[32mgreen\x1b[0m\n3 step\n",
        "",
    ],
)
def test_what_has_no_envelope_stays_as_it_is(text: str) -> None:
    assert envelope_of(text.encode()) is None


class Parts:
    """A feed of so many bytes at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data, self._most = data, most

    def read(self, most: int) -> bytes:
        size = min(most, self._most)
        out, self._data = self._data[:size], self._data[size:]
        return out


SOME_TEXT = (
    "a",
    " ",
    "\n",
    "\t",
    '"',
    "\\",
    "é",
    "中",
    "😀",
    "\0",
    "\x1b[31m",
    "/",
    20 * "x",
    "{",
    "\r",
    "\x7f",
    "\u2028",
)
SOME_BYTES = b'"\\{}[]:,0u1eE+-. \x00\x80\xc0\xed\xf4\r'


def some_text(rng: random.Random) -> str:
    return "".join(rng.choices(SOME_TEXT, k=rng.randrange(8)))


def some_value(rng: random.Random, depth: int = 0) -> object:
    plain = (0, -1, 1.5, 1e300, -0.0, 10**22, None, True, some_text(rng))
    if depth > 2 or rng.random() < 0.7:
        return rng.choice(plain)
    values = {some_text(rng): some_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return rng.choice((values, [*values.values()]))


def some_record(rng: random.Random) -> bytes:
    """One line, mostly like Docker's; some with other fields, some damaged."""
    record: dict[str, object] = {"log": some_text(rng) + rng.choice(("\n", "\n", "\n", "")), "stream": "stdout"}
    record["time"] = stamp(rng.randrange(1000))
    if rng.random() < 0.3:
        record[rng.choice(("log", "time", "stream", "x", some_text(rng)))] = some_value(rng)
        del record[rng.choice([*record])]
    items = rng.sample([*record.items()], len(record))
    separators = rng.choice(((",", ":"), (", ", ": ")))
    line = bytearray(json.dumps(dict(items), ensure_ascii=rng.random() < 0.5, separators=separators).encode())
    if rng.random() < 0.1:
        line[rng.randrange(len(line))] = rng.choice(SOME_BYTES)
    return bytes(line) + b"\n"


@pytest.mark.skipif(native() is None, reason="the compiled part of the scanner is not built here")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ends", ["\n", ""])
@pytest.mark.parametrize("layer", ["time", "no time", "colours"])
def test_compiled_or_not_what_is_opened_is_the_same(
    seed: int, ends: str, layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{seed}{ends}{layer}")
    record = {"log": f"NCCL INFO Launch mode Parallel{ends}"} | ({"time": stamp(0)} if layer == "time" else {})
    head = 20 * (json.dumps(record).encode() + b"\n")
    data = head + b"".join(rng.choice((some_record(rng), head)) for _ in range(150))
    if layer == "colours":
        head = 20 * b"\x1b[1mstep 1\x1b[0m\n"
        data = (
            head + bytes(rng.choices(b"\x1b\x1b\x1b[]0;mK?\x07\\a\n /!@Z^_~", k=3000)) + b"\x1b[" + 41 * b"1" + b"m\n"
        )

    def opened() -> tuple[bytes, list[int]]:
        envelope = envelope_of(head)
        assert envelope is not None
        feed, out = Opened(Parts(data, 5000), envelope), b""
        while piece := feed.read(1 << 16):
            out += piece
        return out, [envelope.moves.line_of(number) for number in range(1, 200)] if envelope.moves else []

    compiled = opened()
    monkeypatch.setenv(NO_NATIVE_VARIABLE, "1")
    assert native() is None
    assert opened() == compiled


def test_memory_stays_bounded_whatever_the_lines_are() -> None:
    """A line that never ends, and pieces that never do, are given on."""

    class Endless:
        def __init__(self, piece: bytes) -> None:
            self.piece, self.left = piece, 40

        def read(self, most: int, /) -> bytes:
            self.left -= 1
            return (
                (self.piece * (most // len(self.piece) + 1))[: most // len(self.piece) * len(self.piece)]
                if self.left > 0
                else b""
            )

    piece = json.dumps({"log": "x" * 500, "stream": "stdout"}).encode() + b"\n"
    for more in (b"y" * 100, piece):
        envelope = envelope_of(docker(["a", "b"]).encode())
        assert envelope is not None
        feed = Opened(Endless(more), envelope)
        num = 0
        while out := feed.read(1 << 16):
            num += len(out)
            held = sum(map(len, feed._parts)) + len(msgspec.json.encode(feed._out.decode()))
            assert held < 8 << 20
        assert num > 4 << 20


@pytest.mark.parametrize("envelope", [docker, cloudwatch, loki, cri, colours])
def test_a_log_that_grows_is_read_on_from_where_it_was(
    envelope: Callable[[Sequence[str]], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (FIXTURES / "lines" / "two_meshes.log").read_text().splitlines()
    lines[150] = "two\nlines"
    lines.append("[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    path = tmp_path / "x.log"
    growth = Growth(lambda: find([str(path)]))
    for end in (1, 100, 101, 300, len(lines)):
        path.write_text(envelope(lines[:end]))
        os.utime(path, (end, end))
        growth.poll()
        monkeypatch.setattr("allready.evidence.growth.read_found", None)  # the whole file is read no more
    (reading,) = growth.readings()
    (whole,) = [one for item in find([str(path)]) for one in read_found(item)]  # type: ignore[arg-type]
    assert sum(stream.num_operations for stream in reading.op_streams) == 127
    assert [(e.signature, e.origin.line, e.text) for e in reading.events] == [
        (e.signature, e.origin.line, e.text) for e in whole.events
    ]
    if envelope in {docker, cloudwatch, loki}:
        assert reading.source.num_lines == len(lines)
        assert max(s.last_line or 0 for s in reading.op_streams) <= len(lines)
