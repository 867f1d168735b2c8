"""What a sentence says is done: `Training finished` speaks of the run, `Rollout collection finished` of an act."""

from allready.evidence.log import closing_words as wording
from allready.patterns import compiled

_DONE = r"(?i)\b(?:finished|finishing|completed?|done|succeeded|success(?:ful(?:ly)?)?|took)\b"
_CLAUSE = r"[.!?;:,|\]\[(){}\"']|\s[-–—]+\s|="
_PREPOSITION = r"(?i)\b(?:of|for|on|with|in|at|from|to|by|after|using|over)\b"
_WORD = r"[A-Za-z][A-Za-z_-]*"
_OTHERS = frozenset(
    (
        *(
            "a",
            "an",
            "the",
            "all",
            "and",
            "our",
            "your",
            "this",
            "that",
            "it",
            "info",
            "debug",
            "now",
            "just",
            "already",
        ),
        *("is", "are", "was", "were", "has", "have", "had", "been", "be", "being", "fully", "finally", "successfully"),
        *("normally", "cleanly", "gracefully", "exit", "exits", "exited", "ended", "ends", "ran", "terminated"),
    )
)
"""Words between a subject and its verb that name nothing."""

_WHOLE = (
    r"(?i)(?:(?:pre-?|re|fine-?)?train(?:ing|er)?|fine-?tun(?:e|ing)|distillation|run|jobs?|experiments?|scripts?|programs?|"
    r"pipelines?|workflows?|workloads?|applications?|execution|simulation|process(?:es)?|everything|optimi[sz]ation|"
    r"learning|loop|session|shutdown|sweep|study|fit(?:ting)?|main|work|tasks?|epochs|steps|iterations|ranks|workers|nodes|group)"
)


def is_of_an_act(text: str) -> bool:
    """Whether what is done is named, and is not the whole of the work."""
    plain = wording.without_paths(text)
    match = compiled(_DONE).search(plain)
    if match is None or not plain.isascii():
        return False
    subject = _names(compiled(_PREPOSITION).split(compiled(_CLAUSE).split(plain[: match.start()])[-1])[0])
    if subject:
        return compiled(_WHOLE).fullmatch(subject[-1]) is None or _is_act(plain[match.end() :])
    behind = compiled(_PREPOSITION).split(compiled(_CLAUSE).split(plain[match.end() :])[0])[0]
    named = _names(behind)
    return bool(named) and not any(compiled(_WHOLE).fullmatch(word) for word in named)


def _is_act(behind: str) -> bool:
    """Whether a verb says what was finished: `All ranks finished saving`."""
    words = _names(compiled(_PREPOSITION).split(compiled(_CLAUSE).split(behind)[0])[0])
    return bool(words) and words[0].lower().endswith("ing") and compiled(_WHOLE).fullmatch(words[0]) is None


def _names(clause: str) -> list[str]:
    return [word for word in compiled(_WORD).findall(clause) if word.lower() not in _OTHERS]
