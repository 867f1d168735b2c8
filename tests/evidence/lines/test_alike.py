"""Lines recognised by a parsed one are what parsing them gives."""

import random

import numpy as np

from allready.evidence.lines.alike import Alike
from allready.evidence.lines.coll import parse
from tests.cases import cases
from tests.evidence.lines.logs import operation

FRONTS = (
    "", "[3]: ", "2026-11-30 14:02:11.25 r3 ", "1764511331.123 ", "1764511331x ", "11764511331 x", "[1,12]<stdout>:",
)  # fmt: skip
TAILS = ("0x5618a0b0", "(nil)", "0x5618 task 12 globalrank 5", "0x5618 seq=0x1f")


def _alike(example: bytes, texts: list[bytes]) -> tuple[Alike, list[bool]]:
    line = parse(example)
    assert line is not None
    alike = Alike(line, example)
    return alike, alike.of(np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), -1)).tolist()


@cases("front", FRONTS)
@cases("tail", TAILS)
def test_a_line_that_is_alike_has_what_parsing_it_gives(front: str, tail: str) -> None:
    rng = random.Random(front + tail)
    example = operation(rng, front=front, number=0x1F, count=262_144, name="AllReduce", tail=tail).encode()
    texts = []
    for _ in range(120):
        changed = bytearray(example)
        for _ in range(rng.choice((1, 1, 2, 6))):
            changed[rng.randrange(len(changed))] = (
                rng.choice(b"0123456789abcdefox: .[]-(A") if rng.random() < 0.9 else 10
            )
        for at in rng.sample(range(len(changed)), 40):  # mostly another number, which most lines survive
            if chr(changed[at]).isdigit() and rng.random() < 0.3:
                changed[at] = rng.choice(b"0123456789")
        texts.append(bytes(changed))
    alike, found = _alike(example, texts)
    assert 0 < sum(found) < len(found)
    for text in (text for text, is_alike in zip(texts, found, strict=True) if is_alike):
        assert alike.parsed(text) == parse(text)


def test_another_rank_is_alike_and_another_operation_is_not() -> None:
    line = b"gpu01:4711:4790 [3] NCCL INFO AllReduce: opCount 1f sendbuff 0x7f41 recvbuff 0x7f42 count 10 datatype 9 "
    line += b"op 4 root 0 comm 0x55aa [nranks=8] stream 0x5618"
    others = {
        line.replace(b"gpu01:4711:4790 [3]", b"cpu-2:5811:6790 [7]").replace(b"0x55aa", b"0x1f00"): True,
        line.replace(b"count 10 datatype 9", b"count 99 datatype 7"): True,
        line.replace(b"AllReduce", b"AllGather"): False,
        line.replace(b"comm 0x55aa", b"comm 0x55aA"): False,
        line.replace(b"recvbuff 0x7f42", b"recvbuff 1x7f42"): False,
        line.replace(b"root 0", b"root -"): False,
        line.replace(b"gpu01", b"gp 01"): False,
    }
    _, found = _alike(line, [*others])
    assert found == [*others.values()]
    assert [parse(other) is not None for other, is_alike in others.items() if is_alike] == [True, True]


def test_lines_of_one_stream_have_one_key() -> None:
    rng = random.Random(3)
    texts = [
        operation(rng, pid=pid, number=7, count=count, name="AllReduce", tail="(nil)").encode()
        for pid, count in ((4711, 1), (4711, 4), (4712, 4), (4711, 4))
    ]
    alike, found = _alike(texts[0], texts)
    assert all(found)
    who, what = alike.keys(np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), -1))
    assert (who[0] == who[1] == who[3], who[0] == who[2]) == (True, False)
    assert len({parse(text).shape for text in texts}) == len(set(what))  # type: ignore[union-attr]
