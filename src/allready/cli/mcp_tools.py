"""The tools that `allready mcp` offers: arguments checked, a command of allready run, its JSON made small."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DESCRIPTION = (
    "Finds the rank or node at fault, the cause and the fix when a distributed PyTorch or JAX job fails to start, "
    "hangs, times out or is slow. Begin with diagnose on the folder of logs: it names all of them "
    "with the evidence. All tools only read."
)
DIAGNOSE_S = 300.0
QUICK_S = 60.0
DOCTOR_S = 20.0
"""For the facts of this machine: an agent can wait longer than the command does by itself, and gets a whole answer."""
MAX_CHARS = 24_000
MAX_TEXT_CHARS = 1500
MAX_PATHS = 64
MAX_LINE_CHARS = 20_000
MAX_ANSWER_BYTES = 64 << 20

_KEPT = (
    "code",
    "severity",
    "fault_class",
    "confidence",
    "title",
    "message",
    "sentence",
    "culprits",
    "remedies",
    "file",
    "line",
)


class ToolError(ValueError):
    """What the agent asked for cannot be done; the text says why."""


class Tools:
    """Each public method is a tool; its docstring is what an agent reads about it.

    roots: folders, resolved, below which files may be read.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)

    def all(self) -> list[Callable[..., str]]:
        """The tools."""
        return [self.diagnose, self.explain_line, self.doctor, self.env_lint, self.env_explain, self.explain]

    def diagnose(self, paths: list[str], since: str = "", language: str = "en") -> str:
        """Say who is at fault, why, and what to do, from what a distributed run left behind.

        Give all of it at once: folders, logs of all ranks and nodes, flight-recorder dumps, RAS answers, stacks, kernel
        logs, archives, and bundles of `allready bundle`. The kind of each file is found from its content.

        Args:
            paths: files and folders below the folders that this server may read.
            since: ignore earlier lines, for example "11:51" or "10m" before the end.
            language: "en" or "zh".
        """
        words = ["diagnose", *self._within(), "--lang", _language(language)]
        words += [f"--since={since}"] if since else []
        return _as_text(_report(_asked([*words, "--json", "-", "--", *self._paths(paths)], DIAGNOSE_S), language))

    def explain_line(self, text: str) -> str:
        """Explain one line of a log, or the lines of one message such as a traceback.

        Args:
            text: the line as it stands in the log.
        """
        if not text.strip() or len(text) > MAX_LINE_CHARS:
            raise ToolError(f"give a text of 1 to {MAX_LINE_CHARS} characters")
        return _as_text(_asked(["diagnose", "--json", "-", f"--explain-line={text}"], QUICK_S))

    def doctor(self, facts: str = "", nnodes: int = 0, language: str = "en") -> str:
        """Examine the machine that this server runs on: network, GPUs, limits, storage, imports, variables.

        Takes a few seconds; on a busy machine up to 20.

        Args:
            facts: judge saved facts instead: a file of `allready doctor --save`, a report.json or a bundle.
            nnodes: judge it as one of so many nodes; 0 for alone.
            language: "en" or "zh".
        """
        words = ["doctor", f"--timeout={DOCTOR_S:.0f}", "--json", "-", "--lang", _language(language)]
        words += ["--from", self._paths([facts])[0]] if facts else []
        words += ["--nnodes", str(int(nnodes))] if nnodes > 0 else []
        return _as_text(_report(_asked(words, QUICK_S), language))

    def env_lint(self, files: list[str], language: str = "en") -> str:
        """Find wrong settings of NCCL, PyTorch, Gloo, JAX and CUDA variables, each with file, line and remedy.

        Args:
            files: scripts, batch files, Dockerfiles, manifests, .env files, or a bundle.
            language: "en" or "zh".
        """
        if not files:
            raise ToolError("name at least one file")
        words = ["env", "lint", "--json", "-", "--lang", _language(language), "--", *self._paths(files)]
        body = _asked(words, QUICK_S)
        zh = language == "zh"
        body["findings"] = [_finding({**f, **_chinese(f)} if zh else f) for f in body.get("findings", ())]
        return _as_text(body)

    def env_explain(self, name: str, value: str = "", language: str = "en") -> str:
        """Explain an environment variable: type, default, who reads it since when, what goes wrong with it.

        Args:
            name: NCCL_IB_TIMEOUT, TORCH_NCCL_TRACE_BUFFER_SIZE, ...
            value: also say what this value means on this machine.
            language: "en" or "zh".
        """
        words = ["env", "explain", "--json", "-", "--lang", _language(language)]
        words += [f"--value={value[:1024]}"] if value else []
        return _as_text(_asked([*words, "--", name[:128]], QUICK_S))

    def explain(self, code: str, language: str = "en") -> str:
        """Print the page of a finding: what it checks, why it matters, how to check by hand, when it is harmless.

        Args:
            code: NET003, HNG002, ...
            language: "en" or "zh".
        """
        return _as_text(_asked(["explain", "--json", "-", "--lang", _language(language), "--", code[:128]], QUICK_S))

    def _within(self) -> list[str]:
        return [word for root in self._roots for word in ("--within", str(root))]

    def _paths(self, paths: Sequence[str]) -> list[str]:
        """The real paths, all of them below the folders that may be read.

        Raises:
            ToolError: one is not, or does not exist.
        """
        if not self._roots:
            raise ToolError("this server may read no files: it was started without --root DIR")
        if not 0 < len(paths) <= MAX_PATHS:
            raise ToolError(f"name 1 to {MAX_PATHS} files or folders")
        return [self._path(path) for path in paths]

    def _path(self, path: str) -> str:
        named = Path(path)
        tries = [named] if named.is_absolute() else [root / named for root in self._roots]
        allowed = ", ".join(map(str, self._roots))
        for one in tries:
            try:
                real = one.resolve(strict=True)
            except (OSError, ValueError, RuntimeError):
                continue
            if any(real.is_relative_to(root) for root in self._roots):
                return str(real)
        # Whether something exists elsewhere is not to be found out here.
        raise ToolError(f"{path[:200]!r}: not found below {allowed}")


def _language(language: str) -> str:
    if language not in {"en", "zh"}:
        raise ToolError('language is "en" or "zh"')
    return language


def _asked(words: Sequence[str], limit_s: float) -> dict[str, Any]:
    """The JSON that a command of allready writes to standard output.

    Raises:
        ToolError: it wrote none, or not in time.
    """
    from allready.proc.command import run_command

    argv = [sys.executable, "-P", "-m", "allready", *words]
    try:
        done = run_command(argv, timeout_s=limit_s, cwd="/", env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"})
    except subprocess.TimeoutExpired:
        raise ToolError(f"no answer within {limit_s:.0f} s") from None
    try:
        body = json.loads(done.stdout[:MAX_ANSWER_BYTES])
    except (ValueError, RecursionError):
        why = done.stderr.decode(errors="replace").strip()[-MAX_TEXT_CHARS:]
        raise ToolError(why or f"no answer (exit code {done.returncode})") from None
    return body if isinstance(body, dict) else {"answer": body}


def _report(body: dict[str, Any], language: str) -> dict[str, Any]:
    """The rank or node at fault, the cause, what to do; then what else was found, and what was not checked."""
    from msgspec import MsgspecError, convert, to_builtins

    from allready.model import Finding
    from allready.text.catalog import say, say_evidence, say_remedies, say_source

    findings: list[dict[str, Any]] = []
    for row in body.get("findings", ()):
        finding = dict(row)
        with contextlib.suppress(MsgspecError):  # of another version: as it is
            found = convert(row, Finding)
            finding["title"], finding["message"] = say(found, "title", language), say(found, "message", language)
            finding["evidence"] = [
                {**to_builtins(item), "source": say_source(item, language), "text": say_evidence(item, language)}
                for item in found.evidence
            ]
            finding["remedies"] = to_builtins(say_remedies(found, language))
        findings.append(finding)
    verdict = body.get("verdict") or {}
    chosen = [f for f in findings if (f["code"], f["culprits"]) == (verdict.get("code"), verdict.get("culprits"))][:1]
    return {
        "status": body.get("status"),
        "world": {key: body.get("world", {}).get(key) for key in ("num_nodes", "world_size")},
        "verdict": _finding(chosen[0], with_evidence=True) if chosen else _finding(verdict) or None,
        "findings": [_finding(finding) for finding in findings if finding not in chosen],
        "not_checked": sorted({str(item.get("why", "")) for item in body.get("not_checked", ())}),
        "notes": list(body.get("notes", ())),
    }


def _finding(finding: dict[str, Any], *, with_evidence: bool = False) -> dict[str, Any]:
    kept = {key: finding[key] for key in _KEPT if finding.get(key) not in (None, [], {}, "")}
    if with_evidence:
        kept["evidence"] = [
            {key: row[key] for key in ("source", "node_rank", "time", "text") if row.get(key) not in (None, "")}
            for row in finding.get("evidence", ())[:12]
        ]
    return kept


def _chinese(finding: dict[str, Any]) -> dict[str, Any]:
    return {key: finding[f"{key}_zh"] for key in ("title", "message", "remedies") if finding.get(f"{key}_zh")}


def _as_text(body: dict[str, Any]) -> str:
    """The JSON, at most `MAX_CHARS` long: long texts are cut, then lists from their ends, which is reported."""
    body = _cut_texts(body)
    left_out: dict[str, int] = {}
    text = json.dumps(body, ensure_ascii=False, indent=1)
    while len(text) > MAX_CHARS:
        lists = [(len(json.dumps(value)), key) for key, value in body.items() if isinstance(value, list) and value]
        if not lists:
            return text[:MAX_CHARS] + "\n[cut]"
        key = max(lists)[1]
        keep = len(body[key]) // 2
        left_out[key] = left_out.get(key, 0) + len(body[key]) - keep
        body[key] = body[key][:keep]
        text = json.dumps({**body, "left_out": left_out}, ensure_ascii=False, indent=1)
    return text


def _cut_texts(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT_CHARS else f"{value[:MAX_TEXT_CHARS]} [cut]"
    if isinstance(value, dict):
        return {key: _cut_texts(inner) for key, inner in value.items()}
    return [_cut_texts(inner) for inner in value] if isinstance(value, list) else value
