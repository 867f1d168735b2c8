from allready.model import Severity
from tests.rules.runs import ask, process


def running(*versions: str, name: str = "nccl") -> tuple[object, ...]:
    return tuple(process(r, versions={name: v}) for r, v in enumerate(versions))


def test_names_the_rank_with_another_nccl() -> None:
    [hit] = ask("FAB003", processes=running("2.28.9", "2.28.9", "2.27.5", "2.28.9")).hits
    assert (hit.culprits.ranks, hit.values["odd"], hit.values["usual"]) == ((2,), "2.27.5", "2.28.9")


def test_blames_nobody_on_a_tie() -> None:
    [hit] = ask("FAB003", processes=running("2.28.9", "2.28.9", "2.27.5", "2.27.5")).hits
    assert not hit.culprits


def test_another_driver_is_a_warning() -> None:
    [hit] = ask("FAB003", processes=running("1", "1", "2", "1", name="cuda-driver")).hits
    assert hit.severity is Severity.WARNING


def test_equal_versions_are_fine() -> None:
    assert ask("FAB003", processes=running("2.28.9", "2.28.9")).state == "clear"
