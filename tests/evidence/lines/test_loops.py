"""Operations that come again are found, and nothing that is another line is taken for one of them."""

import random

import numpy as np

from allready.evidence.lines import coll, loops
from allready.evidence.lines.loops import Segment, loop_of, segments_of
from tests.cases import cases
from tests.evidence.lines import logs


def numbers(text: str) -> np.ndarray:
    return np.array([ord(letter) for letter in text], np.int64)


@cases(
    ("run", "found"),
    [
        ("abababababab", [("ab", True)]),
        ("aaaaaaaaaa", [("a", True)]),
        ("xyzabcabcabcabcabc", [("xyza", False), ("bca", True)]),  # it need not be found where it begins
        ("aabaabaabaab" + "q" + "aabaabaabaab", [("aab", True), ("q", False), ("aab", True)]),
        ("abcdefgh", [("abcdefgh", False)]),
        ("ababababab" * 3 + "c" + "ababababab" * 3 + "c", [("ab", True), ("c", False), ("ab", True), ("c", False)]),
        ("", []),
    ],
)
def test_a_run_is_told_as_loops_and_what_stands_between(run: str, found: list[tuple[str, bool]]) -> None:
    got = [(run[one.first : one.first + one.num], one.is_loop) for one in segments_of(numbers(run))]
    assert got == found


def test_the_longest_loop_is_taken_and_not_the_first_that_seems_one() -> None:
    every_tenth = ("ab" * 10 + "c") * 20
    assert segments_of(numbers(every_tenth))[0] == Segment(0, 21, is_loop=True)


def test_runs_without_end_take_bounded_work() -> None:
    rng = random.Random(0)
    assert len(segments_of(np.array([rng.randrange(3) for _ in range(5000)], np.int64))) <= 30


def lines_of(num: int, *, start: int = 0x3F0, head: str = "gpu01:4711:4711 [0]", comm: str = "0x55aa") -> list[bytes]:
    rng = random.Random(num + start)
    return [
        (
            f"{head} NCCL INFO {name}: opCount {start + i:x} sendbuff 0x7f{rng.randrange(2**40):010x} "
            f"recvbuff 0x7f{rng.randrange(2**40):010x} count {count} datatype 7 op 0 root 0 comm {comm} [nranks=8] "
            "stream (nil)\n"
        ).encode()
        for i in range(num)
        for name, count in [(("AllReduce", 1048576), ("AllGather", 4), ("AllReduce", 1))[i % 3]]
    ]


def loop(texts: list[bytes]) -> loops.LineLoop:
    parsed = [coll.parse(text[:-1]) for text in texts]
    found = loop_of(texts, [line for line in parsed if line is not None])
    assert found is not None
    return found


def bound(known: loops.LineLoop, head: bytes, comm: bytes, num_digits: int) -> loops.BoundLoop:
    sized = known.sized(len(head), len(comm), num_digits)
    return loops.BoundLoop(sized, sized.expected(head, [comm]), (None,), "")


def matched(known: loops.LineLoop, texts: list[bytes], phase: int, comm: bytes = b"0x55aa") -> int:
    data = b"".join(texts)
    first = coll.parse(texts[0][:-1])
    assert first is not None
    start, end = first.variable[0]
    match = bound(known, texts[0][: first.head], comm, end - start).match(
        np.frombuffer(data, np.uint8), 0, len(data), phase
    )
    assert data[: match.end].count(b"\n") == match.num
    return match.num


def test_the_lines_of_another_process_with_longer_names_and_numbers_are_known() -> None:
    known = loop(lines_of(3))
    other = lines_of(900, start=0x11000, head="a-much-longer-name:1234567:1234568 [7]", comm="0x7fdeadbeef00")
    assert matched(known, other, 0, b"0x7fdeadbeef00") == 900
    assert matched(known, other[2:], 2, b"0x7fdeadbeef00") == 898


@cases("place", [0, 1, 40, 899])
@cases(
    ("old", "new"),
    [
        (b"gpu01", b"gpu02"),
        (b":4711 ", b":4712 "),
        (b"comm 0x55aa", b"comm 0x55ab"),
        (b"datatype 7", b"datatype 9"),
        (b"root 0", b"root 1"),
        (b"opCount ", b"opCount  "),
        (b"sendbuff 0x7f", b"sendbuff 0x7z"),
        (b"sendbuff 0x7f", b"sendbuff 0x7\n"),
        (b"stream (nil)", b"stream 0x12ab"),
        (b"nranks=8", b"nranks=9"),
    ],
)
def test_what_differs_ends_a_match_before_its_line(place: int, old: bytes, new: bytes) -> None:
    known = loop(lines_of(3))
    texts = lines_of(900, start=0x1000)
    assert old in texts[place]
    texts[place] = texts[place].replace(old, new)
    whole = lines_of(900, start=0x1000)
    data = b"".join([whole[0], *texts]) if place == 0 else b"".join(texts)
    first = coll.parse(whole[0][:-1])
    assert first is not None
    match = bound(known, whole[0][: first.head], b"0x55aa", 4).match(np.frombuffer(data, np.uint8), 0, len(data), 0)
    # Before a changed first line stands an unchanged one, which is another line of the loop.
    assert match.num == (1 if place == 0 else place)


def test_lines_that_are_cut_are_not_known() -> None:
    known = loop(lines_of(3))
    data = b"".join(lines_of(30, start=0x1000))[:-20] + b"\n"
    first = coll.parse(data.split(b"\n")[0])
    assert first is not None
    assert (
        bound(known, data[: first.head], b"0x55aa", 4).match(np.frombuffer(data, np.uint8), 0, len(data), 0).num == 29
    )


def test_lines_with_something_in_front_or_of_two_heads_make_no_loop() -> None:
    rng = random.Random(0)

    def of(*texts: bytes) -> loops.LineLoop | None:
        parsed = [coll.parse(text[:-1]) for text in texts]
        return loop_of(texts, [line for line in parsed if line is not None])

    plain = logs.operation(rng, pid=1).encode() + b"\n"
    assert of(b"[rank0]: " + plain) is None
    assert of(plain.replace(b"\n", b"\r\n")) is None
    assert of(lines_of(1)[0], lines_of(1, head="gpu02:4711:4711 [0]")[0]) is None
    assert of(*lines_of(loops.MAX_BYTES // 100)) is None
    assert of(*lines_of(2)) is not None
