from allready.judging.loading import load
from allready.model import Confidence, Death, Event, Role, Severity
from allready.model.fill import fill_steps
from allready.text.catalog import remedy_text
from tests.rules.runs import ask, at, death, event, group


def test_names_the_rank_that_raised_and_not_those_that_lost_it() -> None:
    lost = death(0, text="DistBackendError: NCCL error", is_collective_error=True)
    ended = death(3, "signal", signal="SIGTERM", by_launcher=True)
    [hit] = ask("DTH001", deaths=(lost, death(2, site="train.py:22"), ended)).hits
    assert hit.culprits.ranks == (2,)
    assert (hit.values["error"], str(hit.values["site"])) == ("ValueError: bad sample", "train.py:22")
    assert hit.severity in {None, Severity.BLOCKER}


def test_the_first_of_two_exceptions_is_the_cause() -> None:
    [hit] = ask("DTH001", deaths=(death(1, time_s=1010.0), death(3, time_s=1000.0))).hits
    assert hit.culprits.ranks == (3,)


def test_two_at_the_same_moment_are_both_named() -> None:
    [hit] = ask("DTH001", deaths=(death(1, time_s=1000.5), death(3, time_s=1000.0))).hits
    assert hit.culprits.ranks == (1, 3)


def test_of_several_the_error_and_the_line_are_told_that_all_have() -> None:
    def told(*deaths: Death) -> tuple[object, object]:
        [hit] = ask("DTH001", deaths=deaths).hits
        assert hit.culprits.ranks == (1, 3)
        return hit.values["error"], hit.values["site"] and str(hit.values["site"])

    first = death(1, text="ValueError: bad sample 7", site="train.py:22")
    assert told(first, death(3, text="ValueError: bad sample 7")) == ("ValueError: bad sample 7", "train.py:22")
    assert told(first, death(3, text="ValueError: bad sample 9", site="train.py:22")) == ("ValueError", "train.py:22")
    assert told(first, death(3, text="KeyError: 'x'", site="data.py:4")) == (None, None)


def test_where_the_words_differ_those_of_the_first_stand_in_the_sentence() -> None:
    def first(*deaths: Death) -> object:
        [hit] = ask("DTH001", deaths=deaths).hits
        return hit.values["first"]

    one = death(1, text="ValueError: bad sample 7")
    assert first(one, death(3, text="ValueError: bad sample 9")) == "bad sample 7"
    assert first(one, death(3, text="KeyError: 'x'")) == "ValueError: bad sample 7"
    assert first(one, death(3, text="ValueError: bad sample 7")) is None


def test_an_error_of_the_library_alone_is_no_exception_of_its_own() -> None:
    assert ask("DTH001", deaths=(death(0, is_collective_error=True),)).state == "clear"


def test_who_raises_after_the_others_gave_up_waiting_is_not_the_cause() -> None:
    late = event("torch.watchdog_timeout", 0, time_s=1000.0)
    assert ask("DTH001", events=(late,), deaths=(death(2, time_s=1005.0),)).state == "clear"
    assert ask("DTH001", events=(late,), deaths=(death(2, time_s=990.0),)).state == "hit"


def test_nobody_died() -> None:
    assert ask("DTH001", progress=(group({0: at(3)}),)).state == "clear"


ECHO = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_0': 1}"


def test_who_only_says_that_something_else_failed_is_not_the_cause() -> None:
    [hit] = ask("DTH001", deaths=(death(1, text=ECHO, time_s=1000.0), death(3, time_s=1001.0))).hits
    assert hit.culprits.ranks == (3,)
    root = event("cuda.out_of_memory", 2, role=Role.ROOT)
    assert ask("DTH001", deaths=(death(1, text=ECHO),), events=(root,)).state == "clear"
    [hit] = ask("DTH001", deaths=(death(1, text=ECHO),)).hits
    assert hit.culprits.ranks == (1,)


def test_a_traceback_that_may_have_been_caught_accuses_nobody_and_no_job_that_ended_well() -> None:
    maybe = death(1, is_open=True)
    [hit] = ask("DTH001", deaths=(maybe,)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.LIKELY)
    assert ask("DTH001", deaths=(maybe,), ended_well=frozenset(range(4))).state == "clear"


def test_torchruns_decorator_is_advice_for_torchruns_ranks_only() -> None:
    def told(*events: Event) -> str:
        [hit] = ask("DTH001", deaths=(death(2, site="train.py:22"),), events=events).hits
        return remedy_text(fill_steps(load()["DTH001"].steps, hit.values), "en")

    assert "decorate" not in told()  # JAX, mpirun, allready run: nothing reads what it writes
    assert "decorate main()" in told(event("elastic.child_failed", None, role=Role.RECORD))


def test_the_same_exception_on_most_ranks_accuses_none_of_them() -> None:
    site = "vocabulary.py:58 count_file"
    first = death(1, site=site, time_s=1000.0, first=True)
    later = [death(rank, site=site, time_s=1002.0) for rank in (0, 2, 3)]
    [hit] = ask("DTH001", deaths=(first, *later), expected_ranks=4).hits
    assert hit.culprits.ranks == ()
    elsewhere = [death(rank, site="train.py:9", time_s=1002.0) for rank in (0, 2, 3)]
    [hit] = ask("DTH001", deaths=(first, *elsewhere), expected_ranks=4).hits
    assert hit.culprits.ranks == (1,)
    [hit] = ask("DTH001", deaths=(first, *later[:2]), expected_ranks=16).hits
    assert hit.culprits.ranks == (1,)


def test_the_same_words_of_a_library_on_most_ranks_accuse_none_of_them() -> None:
    """Where every frame is a library's no place of the program is known."""
    words = "RuntimeError: FlashAttention forward only supports head dimension at most 256"
    same = [death(r, text=words, site=None, time_s=1000.5) for r in range(4)]
    same[2] = death(2, text=words, site=None, first=True, time_s=1000.0)
    [hit] = ask("DTH001", deaths=tuple(same)).hits
    assert (hit.culprits.ranks, hit.values["error"]) == ((), words)
    alone = (same[2], *(death(r, text="KeyError: 'x'", site=None, time_s=1030.0) for r in (0, 1, 3)))
    [hit] = ask("DTH001", deaths=alone).hits
    assert hit.culprits.ranks == (2,)
