"""Every value of the rules' proofs that is a word of ours is written in the reader's language."""

import importlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allready.cli import bundle
from allready.judging import engine
from allready.judging.analysis import Analysis
from allready.judging.registry import Rule
from allready.model import Absence, Evidence, Finding, Fleet, ProcessState
from allready.text.catalog import in_words, say_source, words
from tests.rules.test_proof import calls_of

pytestmark = pytest.mark.thorough

FOLDER = Path(__file__).parent
WORDS = re.compile(r"[a-z][a-z_ ]+(, [a-z_ ]+)*")
"""Values of small letters only: longer ones are sentences, names and numbers have others."""
_NAMED = (
    "backend base baseline better by call called cloud command direction example file first function group here hint "
    "kind master module name odd of_rest operation others own owner part reset stage step theirs tool usual value "
    "warning who words text frames site interface device detail error names platform"
)
NAMES = frozenset(_NAMED.split())
"""Values that name something: an operation, a group, a function, a variable's value, a program; or that are quoted."""
NAMES_OF_OTHERS = {
    "what": {"clock_nanosleep"},
    "counts": {"row remapping failure"},  # as nvidia-smi has it
    "service": {"ssh"},
    "error": {"odd words"},
    "outcome": {"nccl_small hung"},
    "phase": {"network", "topology"},  # of NCCL's start, as its lines name them
}


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    """Those of all tests of rules that need no fixture."""
    found: list[Finding] = []
    asked = engine._run

    def recorded(rule: Rule, fleet: Fleet, case: Analysis) -> engine.RuleOutcome:
        outcome = asked(rule, fleet, case)
        found.extend(engine.finding_of(rule, hit) for hit in outcome.hits)
        return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_run", recorded)
        for path in sorted(FOLDER.glob("*/test_*.py")):
            for call in calls_of(importlib.import_module(f"tests.rules.{path.parent.name}.{path.stem}")):
                call()
    return found


def english(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The words of ours that stay English in Chinese."""
    shown = in_words(values, "zh")
    for name, value in values.items():
        is_word = WORDS.fullmatch(value) and name not in NAMES and value not in NAMES_OF_OTHERS.get(name, ())
        if is_word and shown[name] == value:
            yield name, value


def test_no_value_and_no_source_that_is_a_word_of_ours_is_english_in_a_chinese_report(findings: list[Finding]) -> None:
    assert len({finding.code for finding in findings}) > 250
    wrong = defaultdict(set)
    for finding in findings:
        items: tuple[Finding | Evidence, ...] = (finding, *finding.evidence)
        for item in items:
            read = {name: value for name, value in item.values.items() if name not in item.phrases}
            for name, value in english(read):
                wrong[f"[{name}] {value!r}"].add(finding.code)
    assert not wrong, "rules/words.toml lacks:\n" + "\n".join(f"{k}: {sorted(v)}" for k, v in sorted(wrong.items()))


def test_words_of_enumerations_are_all_there() -> None:
    known = words("zh")
    every = [*(("state", str(state)) for state in ProcessState), *(("why", str(why)) for why in Absence)]
    missing = [(name, value) for name, value in every if value not in known[name]]
    assert not missing


def test_every_source_of_the_table_is_one_that_a_rule_states(findings: list[Finding]) -> None:
    sources = {item.source for finding in findings for item in finding.evidence}
    sources |= set(re.findall(r'source="([^"]+)"', Path(bundle.__file__).read_text(encoding="utf-8")))  # of its parts
    unused = set(words("zh")["source"]) - sources
    assert not unused, unused
    [seen] = {say_source(i, "zh") for f in findings for i in f.evidence if i.source == "attempts to reach node 0"}
    assert seen == "连接节点 0 的尝试"
