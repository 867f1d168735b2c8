"""`LiveHost`: this machine."""

import encodings.idna  # noqa: F401 - every name resolution needs it; imported in a thread beside others it may fail
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.files import opened, words_of
from allready.facts.import_start import StartedImport

MAX_FILE_BYTES = 16 * 2**20
SYSTEM_DIRS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")
"""Searched after PATH: administrators' tools are often not on a user's PATH."""


class LiveHost:
    """This machine, as this process sees it (its namespaces, its user).  Implements `Host`.

    `begun`: children that import already, by their probe.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, *, begun: Mapping[str, StartedImport] | None = None
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._begun = dict(begun or {})

    @property
    def environ(self) -> Mapping[str, str]:
        return self._environ

    def read(self, path: str) -> str:
        with opened(path) as fd:
            data = fd.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise FactUnavailable("{path}: larger than {most} MiB", path=path, most=MAX_FILE_BYTES >> 20)
        return data.decode(errors="replace")

    def listdir(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(path)))  # noqa: PTH208 - names, not paths
        except (OSError, ValueError) as error:
            raise FactUnavailable("{path}: {error}", path=path, error=words_of(error)) from error

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        return self._run(argv, Path(argv[0]).name, timeout_s)

    def _run(self, argv: Sequence[str], name: str, timeout_s: float) -> str:
        """Args: name: of the command, as an error calls it."""
        program = self._program(argv[0])
        if program is None:
            raise FactUnavailable("{tool}: not installed", tool=argv[0])
        from subprocess import TimeoutExpired

        from allready.proc.command import run_command

        try:
            done = run_command([program, *argv[1:]], timeout_s=timeout_s, env={**self._environ, "LC_ALL": "C"})
        except TimeoutExpired:
            seconds = f"{timeout_s:.1f}"
            raise FactUnavailable("{what}: no answer within {seconds} s", what=name, seconds=seconds) from None
        except (OSError, ValueError) as error:
            raise FactUnavailable("{what}: {error}", what=name, error=words_of(error)) from error
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if code := done.returncode:
            words = err.strip().splitlines() or out.splitlines()[-1:]
            form = "{what}: exit code {code}" if code > 0 else "{what}: signal {code}"
            said = {"error": words[-1].strip()[:300]} if words else {}
            raise FactUnavailable(form + ": {error}" if said else form, what=name, code=abs(code), **said)
        return out

    def probe(self, name: str, *, timeout_s: float) -> Any:
        from allready.facts import probes

        if name == "gpus":
            # -P: a json.py in the user's directory must not be imported in place of the library's.
            text = self._run([sys.executable, "-P", "-m", "allready.facts.nvml"], "NVML", timeout_s)
            return probes.parse_child(text)
        if name.startswith("import:"):
            from allready.facts.import_probe import import_in_child, outcome_of

            if (started := self._begun.pop(name, None)) is not None:
                return outcome_of(started, timeout_s=timeout_s)
            return import_in_child(name, self._environ, timeout_s=timeout_s)
        return probes.answer(name, timeout_s=timeout_s)

    def resolve(self, name: str, *, timeout_s: float) -> tuple[str, ...]:
        import socket

        from allready.facts.tasks import Task

        if not name:
            raise FactUnavailable("the name is empty")
        asked = Task(lambda: socket.getaddrinfo(name, None, type=socket.SOCK_STREAM), "resolver")
        try:
            rows = asked.result(timeout_s=timeout_s)
        except DeadlineExceeded:
            seconds = f"{timeout_s:.1f}"
            raise FactUnavailable("no answer from the resolver within {seconds} s", seconds=seconds) from None
        except socket.gaierror as error:
            raise FactUnavailable("{error}", error=error.strerror or error) from error
        except (OSError, ValueError) as error:  # UnicodeError is a ValueError: not a possible host name
            raise FactUnavailable("{error}", error=words_of(error)) from error
        return tuple(dict.fromkeys(str(row[4][0]).partition("%")[0] for row in rows))

    def _program(self, name: str) -> str | None:
        if "/" in name:
            return name
        for folder in (*self._environ.get("PATH", "").split(os.pathsep), *SYSTEM_DIRS):
            path = f"{folder}/{name}"
            if folder.startswith("/") and os.access(path, os.X_OK) and Path(path).is_file():
                return path
        return None


class Answered(LiveHost):
    """This machine, but of users' files only those that were read before: nothing that may wait is asked again."""

    def __init__(self, files: tuple[tuple[str, str], ...]) -> None:
        super().__init__()
        self._files = dict(files)

    def read(self, path: str) -> str:
        if path in self._files:
            return self._files[path]
        if path.startswith(("/proc/", "/sys/")):
            return super().read(path)
        raise FactUnavailable("{path}: not read", path=path)
