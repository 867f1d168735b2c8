import re
from importlib import resources

import pytest

from allready.model import Confidence, Severity, Status
from allready.report.matrix import LETTERS, OUTCOMES
from allready.rules.registry import placeholders
from allready.text.ui import table

EN, ZH = table("en", "report"), table("zh", "report")


def test_both_languages_have_the_same_texts() -> None:
    assert EN.keys() == ZH.keys()


@pytest.mark.parametrize("name", sorted(EN))
def test_both_languages_have_the_same_placeholders(name: str) -> None:
    assert placeholders(EN[name]) == placeholders(ZH[name])


def test_every_text_that_is_used_exists_and_every_text_is_used() -> None:
    package = resources.files("allready.report")
    files = [f for f in package.iterdir() if f.name.endswith(".py")]
    files.append(package / "templates" / "report.html.j2")
    source = "\n".join(f.read_text(encoding="utf-8") for f in files)
    words = set(re.findall(r"[\"']([a-z0-9_]+)[\"']", source))
    built = {f"status_{s}" for s in Status} | {f"severity_{s}" for s in Severity}
    built |= {f"confidence_{c}" for c in Confidence} | {f"outcome_{o}" for o in OUTCOMES}
    built |= {f"stage_{o}" for o in ("ok", "failed", "hung", "wrong", "skipped")}
    built |= {f"roll_state_{s}" for s in ("here", "missing", "refused", "lost")}
    built |= {n for n in EN if n.startswith("group_")} | {f"{n}_one" for n in ("num_nodes", "num_ranks")}
    built |= {f"fact_{name}" for name in re.findall(r"_named\(\"([a-z0-9_]+)\"", source)}
    built |= {f"fact_{name}" for name in re.findall(r"\(\"([a-z_]+_sockets)\"", source)}
    assert built <= EN.keys()
    assert set(re.findall(r"\bt\(\s*\"([a-z0-9_]+)\"", source)) <= EN.keys()
    assert set(re.findall(r"\bT\(\"([a-z0-9_]+)\"[,)]", source)) <= EN.keys()
    assert EN.keys() - built - words == set()


def test_every_outcome_has_a_letter_of_its_own() -> None:
    assert set(LETTERS) == set(OUTCOMES)
    assert len(set(LETTERS.values())) == len(OUTCOMES)
