"""Any sequences: what is found is right by a plain comparison, and nothing raises."""

import pickle
import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from allready.evidence.operations.codes import CHUNK, raw_codes
from allready.evidence.reading import OpShape
from tests.evidence.operations.streams import AG, AR, SMALL, process, shape, stream, whole, whole_job
from tests.judging.joined import joined_operations

SHAPES = st.sampled_from([AR, AG, SMALL, shape("send", root=1), shape("recv", root=0), shape("all_reduce", -1)])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from([AR, AG, SMALL]), max_size=30), min_size=2, max_size=4))
def test_the_first_difference_is_where_a_plain_comparison_finds_it(sequences: list[list[OpShape]]) -> None:
    found = joined_operations(*whole_job(sequences)).mismatches
    expected = next(
        (i for i in range(max(map(len, sequences))) if len({s[i] for s in sequences if len(s) > i}) > 1), None
    )
    assert [m.seq for m in found] == ([] if expected is None else [expected + 1])
    for mismatch in found:
        assert set(mismatch.missing) == {r for r, s in enumerate(sequences) if len(s) <= mismatch.seq - 1}
        assert len(mismatch.odd) * 2 <= len(mismatch.by_rank) or len({*mismatch.by_rank.values()}) > 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(SHAPES, max_size=12), min_size=1, max_size=4),
    st.dictionaries(st.integers(0, 5), st.integers(-2, 20)),
)
def test_any_mixture_with_any_markers_is_survived(sequences: list[list[OpShape]], marks: dict[int, int]) -> None:
    streams, processes = whole_job(sequences)
    for item in streams:
        item.marks = marks
    pickle.loads(pickle.dumps(joined_operations(streams, processes)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=30) | st.binary(max_size=30).map(zlib.compress), max_size=4))
def test_broken_blocks_are_survived(blocks: list[bytes]) -> None:
    broken = stream([AR, AG], 0, nranks=2)
    broken.blocks = blocks
    processes = [process(r, whole(r, nranks=2)) for r in range(2)]
    joined_operations([broken, stream([AR, AG], 1, nranks=2)], processes)


def test_a_block_that_blows_up_is_read_in_portions() -> None:
    bomb = stream([AR], 0)
    bomb.blocks = [zlib.compress(bytes(50_000_000))]
    first = next(raw_codes(bomb))
    assert len(first) <= CHUNK
