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
        ("/tmp/ipykernel_1/1.py:3 <cell line: 3>", CallSite("/tmp/ipykernel_1/1.py", 3, "<cell line: 3>")),
        ("/a b/train.py:31", CallSite("/a b/train.py", 31)),
        ("/a b/train.py", CallSite("/a b/train.py")),
        ("/a b/train.py step", CallSite("/a b/train.py", None, "step")),
        ("C:\\x y\\t.py:3 f", CallSite("C:\\x y\\t.py", 3, "f")),
        ("C:\\x y\\t.py", CallSite("C:\\x y\\t.py")),
        ("<frozen importlib._bootstrap>:241 _find", CallSite("<frozen importlib._bootstrap>", 241, "_find")),
        ("<string>:1 <module>", CallSite("<string>", 1, "<module>")),
        ("train.py:3 f.<locals>.<lambda>", CallSite("train.py", 3, "f.<locals>.<lambda>")),
        ("日本.py:\u0663 f", CallSite("日本.py:\u0663", None, "f")),
        ("train.py:007 f", CallSite("train.py:007", None, "f")),
        (f"x.py:{'9' * 5000} f", CallSite(f"x.py:{'9' * 5000}", None, "f")),
    ],
)
def test_a_place_in_a_program_is_read_as_it_is_written(text: str, site: CallSite) -> None:
    assert CallSite.of(text) == site
    assert str(site) == text
    assert hash(CallSite.of(text)) == hash(site)
