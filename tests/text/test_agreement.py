"""Words agree with how many ranks or nodes a sentence names."""

import re

import msgspec

from allready.judging.loading import load
from allready.judging.places import Place, ranks_at
from allready.model.fill import Several, agreeing, fill, joined, placeholders, plain, said, steps_of
from allready.text import catalog

NAMING = ("who", "absent", "left", "missing", "ranks", "links")
"""Values that name one rank, node or path, or several."""
NUMBERED = re.compile(r"\{(\w+):([^/{}]*)/([^/{}]*)\}")
FIXED = re.compile(r"(?<!of )(?<!between )(?<!on )\{who\}(?: all)? (?:is|was|has|does|[a-z]{2,}(?<!s)(?<!u)s)\b")
"""A verb that goes with one only."""
TAKEN_BACK = re.compile(r"\{who\} [^{;:]*\b(?:its own|itself|waits? for it|this rank)\b")
"""So does such a pronoun, in the clause of which they are the subject."""
WHO = {
    1: ranks_at([2], {2: Place(host="gpu04", pid=1193)}),
    2: ranks_at([2, 3], {r: Place(host="gpu04", pid=1190 + r) for r in (2, 3)}),
    40: ranks_at(range(40), {r: Place(host=f"gpu0{r // 8}", pid=1000 + r) for r in range(40)}),
}


def templates() -> dict[str, list[str]]:
    """The English sentences of each code that have values."""
    return {
        code: [t for t in (rule.message, *(s.explanation for s in rule.steps)) if placeholders(t)]
        for code, rule in load().items()
    }


def test_names_of_one_of_two_and_of_forty_ranks() -> None:
    assert WHO == {
        1: "rank 2 (gpu04, pid 1193)",
        2: "rank 2 (gpu04, pid 1192), rank 3 (gpu04, pid 1193)",
        40: "rank 0-39 (gpu00, gpu01, gpu02, gpu03, gpu04)",
    }
    assert {num: isinstance(who, Several) for num, who in WHO.items()} == {1: False, 2: True, 40: True}
    assert (type(joined(["a"])), joined(["a", "b"])) == (str, Several("a, b"))


def test_every_sentence_is_filled_for_one_two_and_forty() -> None:
    wrong = []
    for code, texts in templates().items():
        for template in texts:
            values = dict.fromkeys(placeholders(template), "x")
            for num, who in WHO.items():
                text = agreeing(template, values | {name: who for name in NAMING if name in values})
                chosen = [found[2 if num == 1 else 3] for found in NUMBERED.finditer(template)]
                wrong += [f"{code}, {num}: no {words!r}: {text}" for words in chosen if words not in text]
    assert not wrong, "\n".join(wrong)


def test_no_verb_or_pronoun_is_for_one_only() -> None:
    wrong = [
        f"{code}: {template}"
        for code, texts in templates().items()
        for template in texts
        if FIXED.search(template) or TAKEN_BACK.search(template)
    ]
    assert not wrong, "write {who:is/are}:\n" + "\n".join(wrong)


PRONOUN = re.compile(r"\{\w+:[^{}]*\b(?:it|its|itself|this)\b[^{}]*/")
"""English chooses a pronoun by how many a value names."""
ONE_IN_CHINESE = re.compile("它(?!们)|[该这]个? ?(?:rank|节点)")


def test_chinese_has_no_singular_pronoun_where_english_chooses_one() -> None:
    """Values of findings and of saved reports are plain texts: a sentence of another language fits any number."""
    wrong, num = [], 0
    for code, rule in load().items():
        entry = catalog._codes("zh").get(code, {})
        english = [rule.message, *(s.explanation for s in rule.steps)]
        chinese = [entry.get("message", ""), *(s.explanation for s in steps_of(entry))]
        for ours, other in zip(english, chinese, strict=False):
            num += bool(PRONOUN.search(ours))
            wrong += [f"{code}: {other}"] if PRONOUN.search(ours) and ONE_IN_CHINESE.search(other) else []
            wrong += [f"{code}: {other}"] if NUMBERED.search(other) else []
    assert num > 20
    assert not wrong, "\n".join(wrong)


def test_no_form_of_a_phrase_chooses_words_by_a_number() -> None:
    """Its values are data, which does not say how many they name; JSON has no text of another type."""
    assert msgspec.json.encode(said("{who}", who=WHO[2])) == msgspec.json.encode(said("{who}", who=str(WHO[2])))
    forms = catalog.evidence_forms("zh")
    assert not [form for pair in forms.items() for form in pair if NUMBERED.search(form)]


def test_what_is_for_one_only_is_found() -> None:
    for wrong in ("{who} is stopped", "{who} sends no heartbeat", "{who} has waited", "{who} all was"):
        assert FIXED.search(wrong), wrong
    for right in ("{who} {who:is/are} stopped", "{who} waited in {call}", "{who}: its rank is", "node of {who}: was"):
        assert not FIXED.search(right), right
    assert TAKEN_BACK.search("{who} cannot resolve its own name")


def test_of_an_unknown_number_it_is_one_and_no_sentence_shows_the_choice() -> None:
    template = "{who} {who:was/were} stopped[[; {waiting} waited for {who:it/them}]]"
    assert fill(template, {"who": None, "waiting": None}) == "a process was stopped"
    assert fill(template, {"who": WHO[2], "waiting": "rank 0"}).endswith("were stopped; rank 0 waited for them")
    assert plain(template) == "{who} was stopped; {waiting} waited for it"
    assert agreeing("{other:it/them}", {"other": "rank 1-2"}) == "it"


def test_a_rank_without_a_node_is_named_with_its_host_among_many() -> None:
    assert ranks_at(range(4), {r: Place(host="gpu1") for r in range(3)}) == "rank 0-3 (gpu1)"
    assert str(ranks_at(range(99), {r: Place(host=f"g{r}") for r in range(99)})).endswith(", g13, g14, g15, …)")
