from allready.judging.loading import load
from allready.model import Severity
from allready.model.fill import fill, in_english
from tests.cases import cases
from tests.rules.runs import ask, process


def running(*versions: str, name: str = "nccl") -> tuple[object, ...]:
    return tuple(process(r, versions={name: v}) for r, v in enumerate(versions))


def test_names_the_rank_with_another_nccl() -> None:
    [hit] = ask("FAB003", processes=running("2.28.9", "2.28.9", "2.27.5", "2.28.9")).hits
    shown = [in_english(hit.values[name]) for name in ("odd", "usual")]
    assert (hit.culprits.ranks, shown) == ((2,), ["2.27.5", "2.28.9"])


@cases("versions", ["2.28.9 2.28.9 2.27.5 2.27.5", "2.28.9 2.28.9 2.27.5 2.26.2"])
def test_lists_all_sides_without_a_majority_and_accuses_no_rank(versions: str) -> None:
    [hit] = ask("FAB003", processes=running(*versions.split())).hits
    assert not hit.culprits
    rule = load()["FAB003"]
    for language in ("en", "zh"):
        sentence = fill(rule.text_in(language, "message"), hit.values)
        assert all(f"{version} [" in sentence for version in versions.split()), sentence
        assert "rank 2" not in sentence
        assert "其他" not in sentence
        assert "others" not in sentence
    assert {e.text.split()[-1] for e in hit.evidence} == set(versions.split())


def test_ranks_that_left_no_log_count() -> None:
    versions = running("2.28.9", "2.28.9", "2.27.5")
    [hit] = ask("FAB003", processes=versions, expected_ranks=4).hits
    assert not hit.culprits


def test_another_driver_is_a_warning() -> None:
    [hit] = ask("FAB003", processes=running("1", "1", "2", "1", name="cuda-driver")).hits
    assert hit.severity is Severity.WARNING


def test_equal_versions_are_fine() -> None:
    assert ask("FAB003", processes=running("2.28.9", "2.28.9")).state == "clear"
