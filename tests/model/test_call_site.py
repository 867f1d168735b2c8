from allready.model.call_site import CallSite
from tests.cases import cases


@cases(
    ("text", "site"),
    [
        ("/job/train.py:31 step", CallSite("/job/train.py", 31, "step")),
        ("/my jobs/a b.py:7 <module>", CallSite("/my jobs/a b.py", 7, "<module>")),
        ("train.py run.<locals>.step", CallSite("train.py", None, "run.<locals>.step")),
        ("train.py:31", CallSite("train.py", 31)),
        ("train.py", CallSite("train.py")),
        ("c:job.py:3 f", CallSite("c:job.py", 3, "f")),
        ("", CallSite("")),
    ],
)
def test_a_place_in_a_program_is_read_as_it_is_written(text: str, site: CallSite) -> None:
    assert CallSite.of(text) == site
    assert str(site) == text
