import inspect
import re
from importlib import resources

from allready.model import Absence, Confidence, P2pStatus, Role, Severity, SignKind, Status
from allready.report.matrix import LETTERS, OUTCOMES
from allready.report.run_words import ACTIVITIES, AREAS, CLASSES, ROLES
from allready.report.timeline import SHAPES
from allready.text import run_events
from allready.text.ui import table

EN, RUN_EN = table("en", "report"), table("en", "run_summary")


def sources() -> str:
    package = resources.files("allready.report")
    files = [f for f in package.iterdir() if f.name.endswith(".py")]
    files += [f for f in (package / "templates").iterdir() if f.name.endswith(".j2")]
    return "\n".join(f.read_text(encoding="utf-8") for f in files)


def test_every_text_that_is_used_exists_and_every_text_is_used() -> None:
    source = sources()
    words = set(re.findall(r"[\"']([a-z0-9_]+)[\"']", source))
    built = {f"status_{s}" for s in Status} | {f"severity_{s}" for s in Severity}
    built |= {f"confidence_{c}" for c in Confidence} | {f"outcome_{o}" for o in OUTCOMES}
    built |= {f"stage_{o}" for o in ("ok", "failed", "hung", "wrong", "skipped")}
    built |= {f"roll_state_{s}" for s in ("here", "missing", "refused", "lost")}
    built |= {n for n in EN if n.startswith("group_")} | {"remedy_place", "every_node"}  # of text/
    built |= {f"fact_{outcome}" for outcome in ("imported", "failed", "died", "silent")}
    built |= {f"fact_p2p_{status}" for status in P2pStatus} | {f"sign_{kind}" for kind in SignKind}
    built |= {f"fact_{name}" for name in re.findall(r"_named\(\"([a-z0-9_]+)\"", source)}
    built |= {f"fact_{name}" for name in re.findall(r"\(\"([a-z_]+_sockets)\"", source)}
    assert built <= EN.keys()
    assert set(re.findall(r"\bt\(\s*\"([a-z0-9_]+)\"", source)) <= EN.keys()
    assert set(re.findall(r"\bT\(\"([a-z0-9_]+)\"[,)]", source)) <= EN.keys()
    assert EN.keys() - built - words == set()


def test_every_outcome_has_a_letter_of_its_own() -> None:
    assert set(LETTERS) == set(OUTCOMES)
    assert len(set(LETTERS.values())) == len(OUTCOMES)


def test_every_text_about_a_run_that_is_used_exists_and_every_one_is_used() -> None:
    source = sources()
    built = (
        {f"role_{role}" for role in ROLES}
        | {f"legend_{role}" for role in SHAPES}
        | {f"absent_{a.name.lower()}" for a in Absence}
    )
    built |= {f"activity_{kind}" for kind in ACTIVITIES} | {f"class_{name}" for name in CLASSES}
    built |= {f"area_{area}" for area in AREAS} | {f"weight_{n}" for n in range(3)}
    built |= {f"init_{state}" for state in ("completed", "started")}
    built |= {f"column_{name}" for name in ("node", "process", "gpu", "init", "network", "last", "stand")}
    assert built <= RUN_EN.keys()
    assert set(re.findall(r"\br\(\s*\"([a-z0-9_]+)\"", source)) <= RUN_EN.keys()
    assert set(re.findall(r"\bR\(\"([a-z0-9_]+)\"[,)]", source)) <= RUN_EN.keys()
    source += inspect.getsource(run_events)
    words = set(re.findall(r"[\"']([a-z0-9_]+)[\"']", source))
    assert RUN_EN.keys() - built - words == set()


def test_every_role_has_a_word_and_every_role_of_a_line_a_mark() -> None:
    assert {str(role) for role in Role} < set(ROLES)
    assert {str(role) for role in Role} | {"death"} == set(SHAPES)
    assert len(set(SHAPES.values())) == len(SHAPES)
