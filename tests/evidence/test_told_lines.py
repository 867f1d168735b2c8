"""Lines of NCCL that are the same event whoever writes them are not read again; here the real tables know them."""

import io
import random
from collections.abc import Iterator

import pytest

from allready.evidence.lines.scan import scan
from allready.evidence.log import dull
from allready.signatures import table
from tests.cases import cases
from tests.evidence.log.test_dull import files, forget, line, read

__all__ = ["files"]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.mark.thorough
def test_every_recorded_log_gives_the_same_after_all_others(files: dict[str, bytes]) -> None:
    alone = {}
    for name, data in files.items():
        forget()
        alone[name] = read(data, name)
    order = list(files)
    forget()
    for seed in range(2):
        random.Random(seed).shuffle(order)
        assert {name: read(files[name], name) for name in order} == alone
    assert any(meant.said for meant in dull._MEANT.values())
    assert any(meant.readers for meant in dull._MEANT.values())


PROBING = "NET/Plugin: Could not find: libnccl-net.so"
SPEED = "Could not get speed from /sys/class/net/eth9/speed. Defaulting to 10 Gbps."


def said(pid: int) -> bytes:
    words = [
        "NCCL version 2.27.3+cuda12.8",
        PROBING,
        SPEED,
        "CC Off",
        PROBING,
        "comm 0xa rank 1 nRanks 8",
        SPEED,
        "end",
    ]
    return b"".join(line(pid, w) for w in words)


def test_lines_that_are_always_the_same_event_are_told_without_being_read_again() -> None:
    alone = read(said(2), "b")
    assert [(e.text, e.count) for e in alone.events] == [(PROBING, 2), (SPEED, 2)]
    forget()
    read(said(1), "a")
    scanned = scan(io.BytesIO(said(2)), source="b")
    sifted = dull.sift([(one.number, one.text, True) for one in scanned.lines])
    assert [(one.number, one.place, one.meant.said.text) for one in sifted.told if one.meant.said] == [
        (2, 1, PROBING),
        (3, 1, SPEED),
        (5, 1, PROBING),
        (7, 2, SPEED),
    ]
    assert sifted.is_nccls
    assert read(said(2), "b") == alone


def test_an_event_of_one_log_does_not_share_its_values_with_another() -> None:
    first, second = (read(said(pid), "a").events[0] for pid in (1, 2))
    assert first.values == second.values
    assert first.values is not second.values


@cases(
    "words",
    [
        'File "train.py", line 3, in step', "and then[rank3]: Traceback (most recent call last):",
        "half a li gpu7:7:7 [7] NCCL INFO CC Off", "\x1b[31mred\x1b[0m",
    ],
)  # fmt: skip
def test_all_lines_are_read_where_one_of_them_may_concern_another(words: str) -> None:
    lines = said(2).splitlines(keepends=True)
    mixed = b"".join([*lines[:2], line(2, words), *lines[2:]])
    alone = read(mixed, "b")
    forget()
    read(said(1), "a")
    assert read(mixed, "b") == alone
    raw = [(n, text, True) for n, text in enumerate(mixed.splitlines(), start=1)]
    sifted = dull.sift(raw)
    assert sifted.left == raw
    assert not sifted.is_nccls


def test_nothing_is_left_out_where_a_process_has_two_names() -> None:
    def log(pid: int) -> bytes:
        return said(pid) + b"glued" + said(pid)

    alone = read(log(2), "b")
    assert len(alone.processes) == 1
    forget()
    read(said(1), "a")
    assert read(log(2), "b") == alone


def test_what_other_tables_know_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    read(said(1), "a")
    with monkeypatch.context() as patch:
        patch.setattr(table, "by_anchor", tuple)
        assert not read(said(2), "b").events
    assert len(read(said(2), "b").events) == 2
