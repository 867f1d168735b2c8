from msgspec.structs import replace

from allready.model import Confidence, SourceRecord
from tests.fleets import commands
from tests.rules.runs import ask, death


def test_tells_the_exit_code_when_nothing_else_is_known() -> None:
    [hit] = ask("DTH004", deaths=(death(2, "exit", exit_code=3),)).hits
    assert (hit.culprits.ranks, hit.values["exit_code"], hit.confidence) == ((2,), 3, Confidence.LIKELY)


def test_a_traceback_at_the_same_moment_says_more() -> None:
    assert ask("DTH004", deaths=(death(2, "exit", exit_code=1), death(2))).state == "clear"


def test_an_exit_that_a_launcher_asked_for_is_none() -> None:
    assert ask("DTH004", deaths=(death(2, "exit", exit_code=1, by_launcher=True),)).state == "clear"


def test_nobody_died() -> None:
    assert ask("DTH004").state == "clear"


def test_the_last_words_before_the_code_are_quoted() -> None:
    words = "train.py: the shard list is empty"
    [hit] = ask("DTH004", deaths=(death(0, "exit", exit_code=2, last_words=words),)).hits
    assert (hit.values["words"], hit.culprits.ranks) == (words, (0,))
    assert words in hit.evidence[0].text


def test_without_a_reason_the_last_line_of_the_rank_s_own_output_is_quoted() -> None:
    def quoted(*sources: SourceRecord) -> object:
        [hit] = ask("DTH004", deaths=(death(1, "exit", exit_code=1),), sources=sources).hits
        return hit.values["words"]

    own = SourceRecord(path="node0/rank1/out.log", kind="log", rank=1, last_line="bad config")
    other = SourceRecord(path="node0/rank0/out.log", kind="log", rank=0, last_line="step 7")
    assert quoted(other, own) == "bad config"
    assert quoted(other) is quoted() is None
    assert quoted(own, replace(own, path="attempt_0/1/stdout.log", last_line="older")) is None


def test_the_command_shows_the_rank_s_own_output_where_it_is_a_file() -> None:
    def told(path: str) -> list[str]:
        own = SourceRecord(path=path, kind="log", rank=1, last_line="bad config")
        [hit] = ask("DTH004", deaths=(death(1, "exit", exit_code=1),), sources=(own,)).hits
        return commands("DTH004", hit)

    assert told("attempt0/node0/rank1/out.log") == ["tail -n 50 attempt0/node0/rank1/out.log"]
    assert told("my run/rank1.log") == ["tail -n 50 'my run/rank1.log'"]
    assert told("run.tar.xz!run/rank1.log") == []


def test_a_traceback_of_nobody_known_says_more_than_codes_in_a_launchers_order() -> None:
    nameless = death(None, time_s=None, pid=None)
    told = death(2, "exit", exit_code=1, first=True, time_s=None)
    assert ask("DTH004", deaths=(nameless, told)).state == "clear"
    [hit] = ask("DTH001", deaths=(nameless, told)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.LIKELY)


def test_last_words_that_a_line_of_the_tables_knows_are_told_by_that_finding() -> None:
    words = "ModuleNotFoundError: No module named 'flash_attn'"
    assert ask("DTH004", deaths=(death(0, "exit", exit_code=1, last_words=words),)).state == "clear"


def test_nobody_stands_out_where_all_left_with_the_words_of_a_victim() -> None:
    words = "tensorflow.python.framework.errors_impl.UnknownError:  ncclCommInitRank failed: unhandled system error"
    all_of_them = tuple(death(rank, "exit", exit_code=1, last_words=words) for rank in range(4))
    assert ask("DTH004", deaths=all_of_them).state == "clear"
    assert ask("DTH004", deaths=all_of_them[:2], expected_ranks=0).state == "clear"
    [hit] = ask("DTH004", deaths=all_of_them[:3]).hits  # then the words may be of a rank that they left alone
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.POSSIBLE)
    other = tuple(death(rank, "exit", exit_code=1, last_words="error: no such file") for rank in range(4))
    assert ask("DTH004", deaths=other).hits


def test_of_most_ranks_none_stands_out() -> None:
    def accused(ranks: int) -> tuple[tuple[int, ...], Confidence | None]:
        [hit] = ask("DTH004", deaths=tuple(death(rank, "exit", exit_code=99) for rank in range(ranks))).hits
        return hit.culprits.ranks, hit.confidence

    assert accused(1) == ((0,), Confidence.LIKELY)
    assert accused(2) == ((0, 1), Confidence.LIKELY)
    assert accused(3) == accused(4) == ((), Confidence.POSSIBLE)
