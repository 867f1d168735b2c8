"""Assignments in shell scripts, and in the commands that pass variables on (env, srun, mpirun, docker)."""

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from allready.model.settings import Slip
from allready.variables.sources.parsed import MAX_LINES, NAME, Parsed

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)", re.DOTALL)
_SBATCH_EXPORT = re.compile(r"#SBATCH\s+--export[=\s]\s*(\S+)")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "(", "time", "exec", "command", "sudo"}
_DECLARES = {"export", "declare", "typeset", "readonly", "local"}
_ENV_OPTIONS = {"-e", "--env", "-x", "--export", "-env", "-genv"}
MAX_JOINED = 200
"""Lines that one command may have."""


class _Word(Struct, frozen=True):
    """One word of a command.  fixed: False where a part of it is only known when the script runs."""

    text: str
    line: int
    fixed: bool = True

    def known(self, part: str) -> str | None:
        """`part` of the word; None where it is only known when the script runs."""
        return part if self.fixed else None


def parse_shell(text: str, found: Parsed, *, first_line: int = 1) -> None:
    """All assignments of a script, in its order; any text has a reading."""
    first = len(found.settings)
    exported: set[str] = set()
    everything_exported = False
    for command in _commands(text, first_line, found):
        words = _without_keywords(command)
        if not words:
            continue
        head = words[0].text
        if head == "set" and any(w.text in {"-a", "-o", "allexport"} for w in words[1:]):
            everything_exported = True
        elif head in _DECLARES:
            _declaration(words, found, exported)
        elif head == "setenv" and len(words) == 3:
            found.assign(words[1].text, words[2].known(words[2].text), words[1].line)
        else:
            _command(words, found)
    for place, setting in enumerate(found.settings[first:], start=first):
        if everything_exported or setting.name in exported:
            found.settings[place] = replace(setting, exported=True)


def _declaration(words: list[_Word], found: Parsed, exported: set[str]) -> None:
    """`export A=b C`: with NCCL_DEBUG = INFO three words are exported, and none is assigned."""
    is_export = words[0].text == "export" or any("x" in w.text for w in words[1:] if w.text.startswith("-"))
    named = [w for w in words[1:] if not w.text.startswith("-")]
    for place, word in enumerate(named):
        match = _ASSIGNMENT.fullmatch(word.text)
        if match:
            after = named[place + 1] if place + 1 < len(named) else None
            if not match[2] and after is not None and after.line == word.line and "=" not in after.text:
                found.slip(word.line, f"{word.text} {after.text}", Slip.BLANK_AFTER_EQUALS)
            else:
                found.assign(match[1], word.known(match[2]), word.line, exported=is_export)
        elif word.text.startswith("="):
            before = named[place - 1].text if place else ""
            found.slip(word.line, f"{before} {word.text}", Slip.BLANK_BEFORE_EQUALS)
        elif is_export and NAME.fullmatch(word.text):
            exported.add(word.text)


def _command(words: list[_Word], found: Parsed) -> None:
    """`A=b C=d command`, `A=b` alone, and what env, srun (--export), mpirun (-x) and docker (-e) are given."""
    place = 0
    while place < len(words) and _ASSIGNMENT.fullmatch(words[place].text):
        place += 1
    alone = place == len(words)
    for word in words[:place]:
        _assign(word.text, word, found, exported=not alone)
    if alone:
        return
    if len(words) > 1 and words[1].text == "=" and words[0].text.isupper() and NAME.fullmatch(words[0].text):
        found.slip(words[0].line, f"{words[0].text} =", Slip.BLANK_BEFORE_EQUALS)
        return
    is_env = words[place].text.rpartition("/")[2] == "env"
    for before, word in zip(words[place:], words[place + 1 :], strict=False):
        if before.text == "--export" or word.text.startswith("--export="):
            _export_list(word.text.removeprefix("--export="), word, found)
        elif _ASSIGNMENT.fullmatch(word.text.removeprefix("--env=")):
            if is_env or before.text in _ENV_OPTIONS or word.text.startswith("--env="):
                _assign(word.text.removeprefix("--env="), word, found)
        else:
            is_env = word.text.rpartition("/")[2] == "env" or (is_env and word.text.startswith("-"))


def _export_list(text: str, word: _Word, found: Parsed) -> None:
    for part in text.split(","):
        _assign(part, word, found)


def _assign(text: str, word: _Word, found: Parsed, *, exported: bool = True) -> None:
    """`text`, a part of `word`, as an assignment, if it is one."""
    if match := _ASSIGNMENT.fullmatch(text):
        found.assign(match[1], word.known(match[2]), word.line, exported=exported)


def _without_keywords(words: list[_Word]) -> list[_Word]:
    place = 0
    while place < len(words) and words[place].text in _KEYWORDS:
        place += 1
    return words[place:]


def _commands(text: str, first_line: int, found: Parsed) -> Iterator[list[_Word]]:
    """Simple commands of a script; bodies of here-documents are left out."""
    waiting: str | None = None
    pending: list[str] = []
    mark = ""  # what the pending lines wait for
    start = first_line
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=first_line):
        if waiting is not None:
            if line.strip() == waiting:
                waiting = None
            continue
        if not pending:
            start = number
            if match := _SBATCH_EXPORT.match(line):
                _export_list(match[1], _Word(match[1], number), found)
                continue
        pending.append(line.rstrip("\r"))
        if mark in {"'", '"'} and mark not in line and len(pending) < MAX_JOINED:
            continue  # inside of a quoted text of several lines
        joined = "\n".join(pending)
        words = _Words(joined, start)
        mark = words.open_mark
        if mark and len(pending) < MAX_JOINED:
            continue
        mark = ""
        pending = []
        yield from words.commands
        if match := _HEREDOC.search(joined):
            waiting = match[2]
    if pending:
        yield from _Words("\n".join(pending), start).commands


class _Words:
    """The words of one logical line.  `open_mark`: a quote or a backslash at the end that asks for the next line."""

    def __init__(self, text: str, line: int) -> None:
        self.commands: list[list[_Word]] = [[]]
        self.open_mark = ""
        self._text = text
        self._at = 0
        self._line = line
        self._word: list[str] = []
        self._in_word = False
        self._fixed = True
        self._start = line
        self._read()

    def _read(self) -> None:
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter == "#" and not self._in_word:
                self._skip_comment()
            elif letter in " \t\n":
                self._end_word()
                if letter == "\n":
                    self._line += 1
                    self.commands.append([])
                self._at += 1
            elif letter in ";&|<>()":
                self._end_word()
                self.commands.append([])
                self._at += 1
            elif letter in "'\"":
                self._quoted(letter)
            elif letter == "\\":
                self._escaped()
            else:
                self._plain(letter)
        self._end_word()

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _begin(self) -> None:
        if not self._in_word:
            self._in_word, self._start = True, self._line

    def _plain(self, letter: str) -> None:
        self._begin()
        if letter in "$`" or (letter == "~" and (not self._word or self._word[-1] in "=:")):
            self._fixed = False
        self._word.append(letter)
        self._at += 1

    def _escaped(self) -> None:
        if self._at + 1 >= len(self._text):
            self.open_mark = "\\"
            self._at += 1
        elif self._text[self._at + 1] == "\n":
            self._line += 1
            self._at += 2
        else:
            self._begin()
            self._word.append(self._text[self._at + 1])
            self._at += 2

    def _quoted(self, mark: str) -> None:
        """A quoted part; between double quotes $ and ` still act."""
        self._begin()
        at = self._at + 1
        while at < len(self._text) and self._text[at] != mark:
            letter = self._text[at]
            if mark == '"' and letter == "\\" and at + 1 < len(self._text):
                at += 1
                letter = self._text[at]
            elif mark == '"' and letter in "$`":
                self._fixed = False
            if letter == "\n":
                self._line += 1
            self._word.append(letter)
            at += 1
        self.open_mark = mark if at >= len(self._text) else self.open_mark
        self._at = at + 1

    def _end_word(self) -> None:
        if self._in_word:
            self.commands[-1].append(_Word("".join(self._word), self._start, self._fixed))
        self._word, self._in_word, self._fixed = [], False, True
