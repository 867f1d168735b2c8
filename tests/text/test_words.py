"""What people read is written in the words of NCCL's, torch's and operators' documents."""

from collections import Counter
from pathlib import Path

from tests.cases import cases
from tests.text.words import (
    CHINESE,
    ENGLISH,
    OF_COMMENTS,
    Found,
    Text,
    comments,
    found,
    prose,
    python_files,
    remarks,
    texts,
)


def listed(rows: list[Found]) -> str:
    return "\n".join(f"{r.file}, {r.place}: {r.word!r} in “...{r.around}...”; write: {r.instead}" for r in rows)


def test_no_text_for_people_contains_a_forbidden_word() -> None:
    rows = [row for text in texts() for row in found(text)]
    assert not rows, f"{len(rows)} words:\n{listed(rows)}"


def test_no_comment_and_no_docstring_contains_a_word_that_is_never_plain() -> None:
    files = python_files()
    rows = [row for text in comments(files) for row in found(text, OF_COMMENTS)]
    assert len(files) > 1000
    assert not rows, f"{len(rows)} words:\n{listed(rows)}"


def test_comments_are_read_whole() -> None:
    source = 'def f():\n    """What nobody\n    reads."""\n    x = "told"\n    # as it was\n    # told  \n'
    texts_of = [Text("x.py", str(line), text) for line, text in remarks(source)]
    assert [(t.place, r.word) for t in texts_of for r in found(t, OF_COMMENTS)] == [("2", "nobody"), ("6", "told")]
    assert 15 < len(OF_COMMENTS) < len(ENGLISH)


def test_a_file_that_may_have_such_a_word_is_read(tmp_path: Path) -> None:
    sources = {"one.py": "x = 1  # A Story", "two.py": "x = 1  # its turn", "three.py": '"""What\nNobody\nreads."""'}
    files = [tmp_path / name for name in sources]
    for file in files:
        file.write_text(sources[file.name])
    assert [text.file for text in comments(files, tmp_path)] == ["one.py", "three.py"]


def test_texts_of_every_kind_are_read() -> None:
    kinds = Counter(
        text.file.partition("/")[0] if "/" not in text.file else text.file.split("/")[-2] for text in texts()
    )
    for kind in (
        "README.md",
        "docs",
        "zh",
        "cli",
        "signatures",
        "en",
        "zh_CN",
        "net",
        "live",
        "process_exit",
        "bundle",
        "tables",
        "report",
    ):
        assert kinds[kind], f"no text of {kind}"
    assert {"pyproject.toml", "examples/deepspeed_eval/README.md"} <= {text.file for text in texts()}
    assert sum(kinds.values()) > 4000


@cases(
    "text",
    [
        "rank 3 told node 0",
        "Nobody can be blamed",
        "a GPU falls behind and crawls",
        "packets vanish without a word",
        "rank 1 takes another turn",
        "one look at the sockets",
        "its last words",
        "stopped for want of memory",
        "named from the second\nsecond on",
        "它最后的话",
        "某个进程没有人知道",
        "本地代码持有 GIL",
    ],
)
def test_a_forbidden_word_is_found(text: str) -> None:
    assert list(found(Text("file", "place", text)))


@cases(
    "text",
    [
        "turn off the firewall; each in turn",
        "look at dmesg, look for the pid, it looks like a timeout",
        "the error is `nobody told you`",
        'NCCL prints "everybody left"',
        "a 64-bit word in memory, word by word",
        "history, directory, storage",
        "无人值守安装",
    ],
)
def test_plain_words_code_and_quotations_are_left_alone(text: str) -> None:
    rows = list(found(Text("file", "place", text)))
    assert not rows, listed(rows)


def test_prose_leaves_out_code_blocks_and_addresses() -> None:
    assert "nobody" not in prose("x\n```console\nnobody\n```\n`nobody` [page](nobody.md) https://nobody.example")


def test_every_word_has_a_replacement() -> None:
    assert all(word.instead for word in (*ENGLISH, *CHINESE))
