"""Hosts whose answers were recorded elsewhere or made up."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from allready.errors import FactUnavailable
from allready.facts.env import select_for_saving
from allready.facts.host import Host

T = TypeVar("T")


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

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:  # noqa: ARG002 - the interface's
        answer = self._answer("commands", shlex.join(argv))
        if not isinstance(answer, str):
            raise FactUnavailable(f"{shlex.join(argv)}: the saved answer is not a text")
        return answer

    def probe(self, name: str, *, timeout_s: float) -> Any:  # noqa: ARG002
        return self._answer("probes", name)

    def resolve(self, name: str, *, timeout_s: float) -> tuple[str, ...]:  # noqa: ARG002
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


class RecordingHost:
    """Passes everything on to another host and keeps the answers; `saved()` is what `SavedHost` takes.

    Of the environment only the families of `allready.facts.env` and the names that collectors ask for are kept,
    secrets removed.
    """

    def __init__(self, inner: Host) -> None:
        self._inner = inner
        self._answers: dict[str, dict[str, Any]] = {
            "files": {},
            "dirs": {},
            "commands": {},
            "probes": {},
            "names": {},
        }

    @property
    def environ(self) -> Mapping[str, str]:
        return self._inner.environ

    def read(self, path: str) -> str:
        return self._keep("files", path, lambda: self._inner.read(path))

    def listdir(self, path: str) -> tuple[str, ...]:
        return self._keep("dirs", path, lambda: self._inner.listdir(path))

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        return self._keep("commands", shlex.join(argv), lambda: self._inner.run(argv, timeout_s=timeout_s))

    def probe(self, name: str, *, timeout_s: float) -> Any:
        return self._keep("probes", name, lambda: self._inner.probe(name, timeout_s=timeout_s))

    def resolve(self, name: str, *, timeout_s: float) -> tuple[str, ...]:
        return self._keep("names", name, lambda: self._inner.resolve(name, timeout_s=timeout_s))

    def saved(self) -> dict[str, dict[str, Any]]:
        """All answers so far, JSON-able."""
        parts = {
            part: {key: list(value) if isinstance(value, tuple) else value for key, value in answers.copy().items()}
            for part, answers in self._answers.items()
        }
        return {**parts, "environ": select_for_saving(self._inner.environ)}

    def _keep(self, part: str, key: str, ask: Callable[[], T]) -> T:
        try:
            answer = ask()
        except FactUnavailable as error:
            self._answers[part][key] = {"unavailable": str(error)}
            raise
        self._answers[part][key] = answer
        return answer
