"""A host whose answers were recorded elsewhere or made up."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from allready.errors import FactUnavailable


class SavedHost:
    """Answers from a dict; whatever is not in it is unavailable.

    Args of the dict, all optional: "files" {path: text}, "dirs" {path: [names]}, "commands" {shell line: output},
    "probes" {name: answer}, "names" {host name: [addresses]}, "environ" {name: value}.  In place of an answer,
    {"unavailable": why} says why there is none.
    """

    def __init__(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        self._answers = answers

    @property
    def environ(self) -> Mapping[str, str]:
        environ = self._answers.get("environ", {})
        return {str(k): str(v) for k, v in environ.items()} if isinstance(environ, Mapping) else {}

    def read(self, path: str) -> str:
        answer = self._answer("files", path)
        if not isinstance(answer, str):
            raise FactUnavailable(f"{path}: the saved answer is not a text")
        return answer

    def listdir(self, path: str) -> tuple[str, ...]:
        return self._texts("dirs", path)

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        answer = self._answer("commands", shlex.join(argv))
        if not isinstance(answer, str):
            raise FactUnavailable(f"{shlex.join(argv)}: the saved answer is not a text")
        return answer

    def probe(self, name: str, *, timeout_s: float) -> Any:
        return self._answer("probes", name)

    def resolve(self, name: str, *, timeout_s: float) -> tuple[str, ...]:
        return self._texts("names", name)

    def _texts(self, part: str, key: str) -> tuple[str, ...]:
        answer = self._answer(part, key)
        if not isinstance(answer, list | tuple) or not all(isinstance(item, str) for item in answer):
            raise FactUnavailable(f"{key}: the saved answer is not a list of texts")
        return tuple(answer)

    def _answer(self, part: str, key: str) -> Any:
        answers = self._answers.get(part, {})
        if not isinstance(answers, Mapping) or key not in answers:
            raise FactUnavailable(f"{key}: not saved")
        answer = answers[key]
        if isinstance(answer, Mapping) and set(answer) == {"unavailable"}:
            raise FactUnavailable(str(answer["unavailable"]))
        return answer
