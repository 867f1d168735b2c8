"""The texts that people read, each with the file it stands in, and the words that must not stand in them."""

import ast
import io
import json
import re
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.text.sources import nodes, trees

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "src" / "allready"


class Word(NamedTuple):
    """A pattern of words, and what to write in its place."""

    pattern: re.Pattern[str]
    instead: str


def _words(rows: Mapping[str, str], flags: int = re.IGNORECASE) -> tuple[Word, ...]:
    return tuple(Word(re.compile(pattern, flags), instead) for pattern, instead in rows.items())


ENGLISH = _words(
    {
        r"\btold\b": "reported, logged, named",
        r"\b(is|are|was|were|be|what|been|it|than|nothing|and) said\b": "reported, printed, logged",
        r"\b(un)?heard\b": "received; no heartbeat",
        r"\b(a|one|each|every|first|last|next|between|two|of|this) looks?\b": "a sample, a poll, a read",
        r"\blook(s|ed)? into\b": "investigate, sample",
        r"\bturns?\b(?! (on|off|it|them|out|into|to)\b)(?![^.]{0,30}\binto\b)(?<!in turn)": "iteration, step, round",
        r"\bcrawl(s|ed|ing)?\b": "be slow, run slowly",
        r"\bmend(s|ed|ing)?\b": "fix",
        r"\b(for )?want of\b": "lack of, out of",
        r"\bby order\b": "terminated by SIGTERM, on request",
        r"\bwho(m|so)?ever\b": "name the rank, node, process or person",
        r"\b(some|no|any|every)body\b": "the rank, node or process; no rank, every node",
        r"\bwithout a word\b": "silently",
        r"\b(last|no|own|further|other's|its|a) words?\b(?! (of|for) (memory|length|one thing))": "output, message",
        r"\bswallow(s|ed|ing)?\b": "drop",
        r"\bdull\b": "known, repeated",
        r"\bruins\b": "what a run left, run summary",
        r"\b(story|stories)\b": "event, sequence of events",
        r"\bto type\b": "to fix; the command",
        r"\bthis very\b": "this",
        r"\b(in|at|from) the second second\b": "after the first second",
        r"\b(is|are) meant\b": "is intentional, means",
        r"\bsurroundings\b": "environment",
        r"\bcrowded\b": "lacks CPU time, CPU contention",
        r"\bst(an|oo)ds? still\b": "is stalled, makes no progress",
        r"\baftermath\b": "run evidence",
        r"\bin good order\b": "cleanly, with exit code 0",
        r"\b(got|gets|getting) on\b|\bnot get on\b": "make progress",
        r"\bof before\b": "previous, until",
        r"\bwho, why\b": "the rank or node at fault, the cause",
    }
)

CHINESE = _words(
    {
        "本地代码": "原生代码",
        "废墟|残骸": "运行留下的文件, 运行摘要",
        "爬行|龟速": "运行缓慢",
        "(?<!责)任何人|没有人|没人|无人(?!值守)|有人|某人|别人|谁也|大家": "写明 rank、节点或进程",
        "吞掉|吞没": "丢弃",
        "一声不响|一言不发|不吭声|没有吭声|无声无息": "没有任何输出",
        "遗言|临终|最后的话": "最后的输出",
        "敲(?!门|网卡|另一台|入)": "执行, 运行",
        "故事": "事件",
        "修补": "修复",
        "聚合操作|聚集操作": "集合通信",
    },
    0,
)

_ALSO_PLAIN = {"meant", "looks?", "look(s", "turns?", " words?", "said", "by order", "to type"}
"""Parts of patterns that have a plain meaning in comments: a word of memory, a task's turn, what an option is for."""
OF_COMMENTS = tuple(word for word in ENGLISH if not any(part in word.pattern.pattern for part in _ALSO_PLAIN))


def _any_of(words: Iterable[Word]) -> re.Pattern[str]:
    """What finds one of them in a text in lower case; to search in both cases takes several times as long."""
    parts = [word.pattern.pattern for word in words]
    at_a_word = [part.removeprefix(r"\b") for part in parts if part.startswith(r"\b")]
    return re.compile("|".join([rf"\b(?:{'|'.join(at_a_word)})", *(p for p in parts if not p.startswith(r"\b"))]))


_ANY = _any_of((*ENGLISH, *CHINESE))
_ANY_OF_COMMENTS = _any_of(OF_COMMENTS)


class Text(NamedTuple):
    """One text: the file, the place in it, and what stands there."""

    file: str
    place: str
    text: str


_PROSE = {"title", "message", "remedy", "page", "explanation", "where"}
_VALUE = re.compile(r"\{\w+\}")
_CODE = re.compile(r"```.*?```|<!--.*?-->|`[^`\n]*`|\]\([^)]*\)|https?://\S+", re.DOTALL)
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”")


def prose(text: str) -> str:
    """Without code, values, addresses and quotations: what others wrote is not ours to change."""
    return _QUOTED.sub('""', _CODE.sub("``", _VALUE.sub("{}", text)))


@cache
def texts() -> tuple[Text, ...]:
    """All of them: rules, signatures, labels, Chinese, help, errors, documents, descriptions of report.json."""
    return (*_of_rules(), *_of_tables(), *_of_help(), *_of_documents(), *_of_sources(), *_of_variables(), *_of_schema())


def _of_rules() -> Iterator[Text]:
    from allready.judging.loading import load

    for code, rule in load().items():
        file = PACKAGE / "rules" / rule.area / f"{rule.name}.py"
        if not file.exists():
            continue  # of a signature, whose table is read below
        name = file.relative_to(CHECKOUT).as_posix()
        yield Text(name, f"{code} title", rule.title)
        yield Text(name, f"{code} message", rule.message)
        for step in rule.steps:
            yield Text(name, f"{code} remedy", f"{step.where} {step.explanation}")
        yield Text(name, f"{code} page", rule.page)


def _of_tables() -> Iterator[Text]:
    for folder in ("signatures", "text/en", "text/zh_CN"):
        for path in sorted((PACKAGE / folder).glob("*.toml")):
            name = path.relative_to(CHECKOUT).as_posix()
            every = path.stem.startswith(("ui_", "usage", "help"))
            for place, text in _strings(tomllib.loads(path.read_text(encoding="utf-8")), "", every=every):
                yield Text(name, place, text)


def _strings(value: Any, place: str, *, every: bool, wanted: bool = False) -> Iterator[tuple[str, str]]:
    """The texts of a table: all of them, or those below a key that holds prose."""
    if isinstance(value, str):
        if every or wanted:
            yield place, value
    elif isinstance(value, Mapping):
        here = value.get("code") or place
        for key, inner in value.items():
            yield from _strings(inner, f"{here}.{key}".strip("."), every=every, wanted=key in _PROSE)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, place, every=every, wanted=wanted)


def _of_help() -> Iterator[Text]:
    import importlib

    from allready.cli.main import COMMANDS, usage

    yield Text("src/allready/cli/main.py", "usage", usage())
    for command, (module, _) in COMMANDS.items():
        import argparse

        imported = importlib.import_module(module)
        parser = argparse.ArgumentParser(prog=f"allready {command}", epilog=getattr(imported, "EPILOG", None))
        imported.add_arguments(parser)
        yield Text(
            f"src/allready/{module.removeprefix('allready.').replace('.', '/')}.py", "help", parser.format_help()
        )


def _of_documents() -> Iterator[Text]:
    files = [
        path for pattern in ("*.md", "docs/*.md", "docs/zh/*.md", "examples/**/*.md") for path in CHECKOUT.glob(pattern)
    ]
    for path in sorted(files):
        yield Text(path.relative_to(CHECKOUT).as_posix(), "text", path.read_text(encoding="utf-8"))
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield Text("pyproject.toml", "description", project["description"])


def _of_sources() -> Iterator[Text]:
    """Texts of more than one word in the code: reasons, errors, lines of logs."""
    for file, tree in trees().items():
        pages = {id(text) for text in _docstrings(tree)}
        for node in nodes(tree, ast.Constant):
            if isinstance(node.value, str) and " " in node.value and id(node) not in pages:
                yield Text(f"src/allready/{file}", f"line {node.lineno}", node.value)


_REMARK = re.compile(r'^[ \t]*[rR]?"""(?:.*?)"""|#[^\n]*', re.DOTALL | re.MULTILINE)
"""What may be a comment or a docstring: to parse all files takes longer than all other tests of texts."""


def python_files() -> list[Path]:
    """All but this one, those of the tests too: a maintainer reads them."""
    folders = ("src", "tests", "tools", "benchmarks", "docs", "examples")
    files = [path for folder in folders for path in sorted((CHECKOUT / folder).rglob("*.py"))]
    return [path for path in files if path != Path(__file__)]


def comments(files: Iterable[Path], root: Path = CHECKOUT) -> Iterator[Text]:
    """The comments and docstrings of those files that may have a word that is never plain."""
    for path in files:
        source = path.read_text(encoding="utf-8")
        if _ANY_OF_COMMENTS.search(" ".join(_REMARK.findall(source)).lower()):
            name = path.relative_to(root).as_posix()
            yield from (Text(name, f"line {line}", text) for line, text in remarks(source))


def remarks(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of the comments and docstrings in a source; comments below each other are one text."""
    for node in _docstrings(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    lines: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            before = lines.pop(token.start[0] - 1, "")
            lines[token.start[0]] = f"{before} {token.string.lstrip('# ')}".strip()
    yield from lines.items()


def _docstrings(tree: ast.AST) -> Iterator[ast.expr]:
    """Also those behind an assignment: texts that nothing uses."""
    return (statement.value for statement in nodes(tree, ast.Expr))


def _of_variables() -> Iterator[Text]:
    for path in sorted((PACKAGE / "variables" / "tables").glob("*.json")):
        for place, text in _strings(json.loads(path.read_text(encoding="utf-8")), "", every=True):
            yield Text(path.relative_to(CHECKOUT).as_posix(), place, text)


def _of_schema() -> Iterator[Text]:
    """The descriptions, which are the docstrings of the models."""
    path = PACKAGE / "report" / "report.schema.json"
    for name, model in json.loads(path.read_text(encoding="utf-8"))["$defs"].items():
        yield Text(path.relative_to(CHECKOUT).as_posix(), name, model.get("description", ""))


class Found(NamedTuple):
    """A word that must not stand where it stands."""

    file: str
    place: str
    word: str
    instead: str
    around: str


def found(text: Text, forbidden: Iterable[Word] = (*ENGLISH, *CHINESE)) -> Iterator[Found]:
    """Every forbidden word of one text, also those between which a line breaks."""
    bare = " ".join(prose(text.text).split())
    for word in forbidden if _ANY.search(bare.lower()) else ():
        for match in word.pattern.finditer(bare):
            around = bare[max(0, match.start() - 50) : match.end() + 40]
            yield Found(text.file, text.place, match.group(), word.instead, around)
