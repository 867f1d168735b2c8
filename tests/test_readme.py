"""The documents keep their word: links resolve, commands parse, targets exist, and both languages say the same."""

import argparse
import html
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import fields

from allready.cli.main import COMMANDS
from allready.judging.loading import load
from allready.messaging import contact, hub
from allready.preflight.check import context, joining, roll_call
from allready.preflight.check.request import CheckRequest
from allready.preflight.collectives.spec import STAGE_DEADLINE_S
from allready.preflight.reach import ReachRequest
from allready.text.ui import entries, table
from tests.cases import cases
from tests.test_architecture import MAY_IMPORT

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
IMAGES = ROOT / "docs" / "images"
DOCUMENTS = [path for path in WRITTEN if path.parent.parent.name != "codes"]  # those are built
PAIRS = [
    ("README.md", "README.zh-CN.md"),
    ("docs/check.md", "docs/zh/check.md"),
    ("docs/bench.md", "docs/zh/bench.md"),
    ("docs/diagnose.md", "docs/zh/diagnose.md"),
    ("docs/architecture.md", "docs/zh/architecture.md"),
    ("docs/env.md", "docs/zh/env.md"),
    ("docs/schedulers.md", "docs/zh/schedulers.md"),
    ("docs/symptoms.md", "docs/zh/symptoms.md"),
]

FENCE = re.compile(r"^([ \t]*)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
TARGET = re.compile(r"(?:^|\s)make ([a-z][a-z-]*)")
PLACEHOLDERS = {"...", "…"}  # a command that is not written out


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def prose_of(text: str) -> str:
    """The text without its blocks of code."""
    return FENCE.sub("", text)


def blocks_of(text: str) -> list[str]:
    return [match[3] for match in FENCE.finditer(text)]


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub makes of the headings."""
    titles = (re.sub(r"[`*\[\]]", "", title) for _, title in HEADING.findall(prose_of(text)))
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def snippets_of(text: str) -> Iterator[str]:
    """Every line of a block of commands, continued lines joined, and every inline piece of code."""
    for match in FENCE.finditer(text):
        if match[2] in {"console", "sh", "bash"}:
            yield from match[3].replace("\\\n", " ").splitlines()
    yield from INLINE.findall(prose_of(text))


def commands_of(text: str) -> Iterator[list[str]]:
    """The words after `allready`, wherever a command of ours is shown."""
    for line in snippets_of(text):
        if not re.search(r"(?:^|[\s/])allready (?!is\b)", line) or "-m allready" in line:
            continue
        words = shlex.split(line.removesuffix("&").strip(), comments=True)
        places = [i for i, word in enumerate(words) if word.rpartition("/")[2] == "allready"]
        for place, end in zip(places, [*places[1:], len(words)], strict=True):
            argv = words[place + 1 : end]
            if argv and not PLACEHOLDERS & set(argv):
                yield argv[: argv.index("&&")] if "&&" in argv else argv


def parse(argv: list[str]) -> None:
    """Parse as the program would; SystemExit with code 2 when it would refuse."""
    if argv[0] in {"--help", "--version"}:
        return
    assert argv[0] in COMMANDS, f"no such command: allready {argv[0]}"
    if len(argv) == 1:  # a name in a sentence
        return
    parser = argparse.ArgumentParser(allow_abbrev=False)
    importlib.import_module(COMMANDS[argv[0]][0]).add_arguments(parser)
    parser.parse_args(argv[1:])


@cases("path", DOCUMENTS, ids=named)
def test_links_to_our_own_files_resolve(path: Path) -> None:
    broken = []
    for target in LINK.findall(prose_of(text_of(path))):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        is_there = file.is_file() and (not anchor or anchor in anchors_of(text_of(file)))
        if not is_there and not (file.is_dir() and not anchor):
            broken.append(target)
    assert not broken


@cases("path", DOCUMENTS, ids=named)
def test_every_command_shown_is_one_that_we_take(path: Path) -> None:
    refused = []
    for argv in commands_of(text_of(path)):
        try:
            parse(argv)
        except (SystemExit, AssertionError) as error:
            refused.append(f"allready {shlex.join(argv)}: {error}")
    assert not refused


def test_commands_are_found_where_they_stand() -> None:
    text = (
        "```console\n$ gpu01$ allready check --nnodes 2 \\\n   --node-rank 0 &\n"
        "allready lab exec node1 -- allready check -q\nsrun -n 2 .venv/bin/allready check && torchrun x\n```\n"
        "and `allready lab up`, `allready check ...`, `allready`\n"
    )
    assert list(commands_of(text)) == [
        ["check", "--nnodes", "2", "--node-rank", "0"],
        ["lab", "exec", "node1", "--"],
        ["check", "-q"],
        ["check"],
        ["lab", "up"],
    ]


def test_a_command_that_we_do_not_take_is_noticed() -> None:
    with pytest.raises(AssertionError, match="no such command"):
        parse(["heal", "NET001"])
    with pytest.raises(SystemExit):
        parse(["check", "--no-such-flag"])


@cases("path", DOCUMENTS, ids=named)
def test_targets_of_make_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text_of(ROOT / "Makefile"), re.MULTILINE))
    assert {"demo", "test"} <= targets
    shown = {target for line in snippets_of(text_of(path)) for target in TARGET.findall(line)}
    assert shown <= targets


@cases(("english", "chinese"), PAIRS)
def test_both_languages_have_the_same_structure(english: str, chinese: str) -> None:
    one, other = (text_of(ROOT / name) for name in (english, chinese))
    assert [len(h) for h, _ in HEADING.findall(prose_of(one))] == [len(h) for h, _ in HEADING.findall(prose_of(other))]
    assert blocks_of(one) == blocks_of(other)
    assert blocks_of(one), "a document without a single block of code"
    assert len(re.findall(r"^\|", prose_of(one), re.MULTILINE)) == len(
        re.findall(r"^\|", prose_of(other), re.MULTILINE)
    )


@cases(("english", "chinese"), PAIRS)
def test_both_languages_point_to_each_other(english: str, chinese: str) -> None:
    for here, there in ((english, chinese), (chinese, english)):
        targets = {(ROOT / here).parent / t.partition("#")[0] for t in LINK.findall(text_of(ROOT / here))}
        assert (ROOT / there).resolve() in {t.resolve() for t in targets}


def test_the_readme_shows_both_commands_and_what_is_planned() -> None:
    readme = text_of(ROOT / "README.md")
    assert "make demo\nmake test\n" in readme
    planned = readme.partition("does not do yet")[2]
    assert all(f"`{name}`" in planned for name in COMMANDS)
    for name in ("run", "watch", "diagnose", "doctor", "bench", "env", "explain", "bundle"):
        assert f"`{name}`" in planned or name in COMMANDS


@pytest.mark.parametrize("picture", sorted(IMAGES.glob("*.svg")), ids=named)
def test_pictures_load_nothing_from_elsewhere(picture: Path) -> None:
    text = text_of(picture)
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "<script" not in text
    assert "@import" not in text
    assert any(picture.name in text_of(ROOT / name) for name in ("README.md", "README.zh-CN.md")), "shown nowhere"


def templates_of(code: str, language: str) -> list[str]:
    """What a rule says and advises."""
    if language == "en":
        rule = load()[code]
        return [rule.message, *(step.explanation for step in rule.steps)]
    texts = entries(language, "net")[code]
    return [texts["message"], *(step["explanation"] for step in texts["remedies"])]


@cases(("picture", "language"), [("filtered.svg", "en"), ("filtered.zh.svg", "zh")])
def test_pictures_show_what_is_printed_today(picture: str, language: str) -> None:
    """Else `docs/images/make_pictures.py` makes them anew.  Values and the breaks of lines are those of its run."""
    shown = "".join(html.unescape("".join(re.findall(r">([^<]+)</text>", text_of(IMAGES / picture)))).split())
    parts = [part for text in templates_of("NET001", language) for part in re.split(r"\{[^{}]*\}", text)]
    parts += re.split(r"\{[^{}]*\}", table(language, "reach")["done"])
    known = ["".join(part.split()) for part in parts]
    assert len(known) > 5
    assert not [part for part in known if part not in shown]


@cases("document", ["docs/architecture.md", "docs/zh/architecture.md"])
def test_the_pages_of_the_architecture_name_files_that_exist(document: str) -> None:
    text = text_of(ROOT / document)
    named_there = re.findall(r"(?<![\w./])((?:[a-z_]+/)+(?:[a-z_]+\.py)?)(?![\w/.])", text)
    assert len(named_there) > 60
    missing = {n for n in named_there if not (ROOT / "src" / "allready" / n).exists() and not (ROOT / n).exists()}
    assert not missing


def test_imports_point_down_in_the_picture_of_the_packages() -> None:
    picture = next(b for b in blocks_of(text_of(ROOT / "docs" / "architecture.md")) if b.startswith("cli "))
    rows = {package: row for row, line in enumerate(picture.splitlines()) for package in line.split()}
    assert set(rows) == set(MAY_IMPORT) - {"testing", "docs", "run", "__main__"}
    upwards = [
        f"{package} imports {other}"
        for package, others in MAY_IMPORT.items()
        for other in others & rows.keys()
        if rows.get(package, -1) >= rows[other]
    ]
    assert not upwards


def test_each_way_to_the_verdict_has_eight_stations_at_most() -> None:
    picture = next(b for b in blocks_of(text_of(ROOT / "docs" / "architecture.md")) if "a heartbeat" in b)
    assert [int(n) for n in re.findall(r"^ *(\d) ", picture, re.MULTILINE)] == list(range(1, 9))


@cases("document", ["docs/architecture.md", "docs/zh/architecture.md"])
def test_every_station_on_the_way_to_the_verdict_is_a_module(document: str) -> None:
    picture = next(b for b in blocks_of(text_of(ROOT / document)) if "a heartbeat" in b)
    stations = re.findall(r"\w+(?:/\w+)+\.py", picture)
    assert len(stations) > 15
    assert not [s for s in stations if not (ROOT / "src" / "allready" / s).is_file()]


REACH = ReachRequest()
DEFAULT_WAIT_S = next(f.default for f in fields(CheckRequest) if f.name == "wait_s")
LIMITS = {
    "docs/architecture.md": (
        f"reading one node's facts | {context.COLLECT_S:g} s,",
        f"resolving a name | {context.RESOLVE_S + 1:g} s,",
        f"its answer | {contact.CONNECT_S:g} s; {contact.ANSWER_S:g} s |",
        f"a hopeless master port; one that is silent | {roll_call.SETTLE_S:g} s;",
        f"; {joining.GIVE_UP_HOPELESS_S:g} s; {joining.GIVE_UP_SILENT_S:g} s | `preflight/check/roll_call.py`",
        f"a silent peer (a heartbeat comes every {hub.HEARTBEAT_S:g} s) | {hub.SILENCE_S:g} s |",
        f"all facts | {roll_call.FACTS_S:g} s |",
        f"| {REACH.endpoint_s:g} s; {REACH.connect_s:g} s; {REACH.echo_s:g} s and 0.1 s per MB |",
        f"goodbyes | {roll_call.BYE_S:g} s |",
    ),
    "docs/check.md": (
        f"| `--wait`, {DEFAULT_WAIT_S:g} s |",
        f"GPUs or interfaces do not fit | {roll_call.FACTS_S:g} s |",
        f"falls silent for {hub.SILENCE_S:g} s",
        f"after {roll_call.SETTLE_S:g} s, so that",
        f"(after {joining.GIVE_UP_HOPELESS_S:g} s; after {joining.GIVE_UP_SILENT_S:g} s",
        f"`jax_init` ({STAGE_DEADLINE_S['jax_init']:g} s",
        *(
            f" {name} | {STAGE_DEADLINE_S[name]:g} s |"
            for name in ("import", "device", "allocate", "store", "gloo_barrier", "nccl_init", "nccl_small")
        ),
        f" sweep | {STAGE_DEADLINE_S['sweep']:g} s + 1 s per 50 MB",
    ),
}  # fmt: skip


@cases(("document", "words"), [(d, w) for d, all_words in LIMITS.items() for w in all_words])
def test_time_limits_in_the_documents_are_those_of_the_code(document: str, words: str) -> None:
    assert words in " ".join(text_of(ROOT / document).split())
    chinese = text_of(ROOT / document.replace("docs/", "docs/zh/"))
    number = re.search(r"([\d.]+) s(?!\w)", words)
    assert number is not None
    assert re.search(rf"(?<![\d.]){re.escape(number[1])} 秒", chinese), "the Chinese document says otherwise"
