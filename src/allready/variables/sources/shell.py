"""Assignments in shell scripts, and in the commands that pass variables on (env, srun, mpirun, docker)."""

import itertools
import json
import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from allready.model.settings import Slip
from allready.patterns import compiled
from allready.variables.sources.parsed import MAX_LINES, NAME, Parsed, Written

_ASSIGNMENT = r"(?s)([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)"
_BEFORE = r"\s+(?:[^#\n]{0,1000}?\s)?"  # other options on the same line
_BATCH_EXPORT = (
    rf"#(?:SBATCH{_BEFORE}--export[=\s]|(?:PBS|\$){_BEFORE}-v|BSUB{_BEFORE}-env)\s*(?:\"([^\"]{{0,4000}})\"|(\S+))"
)
_DEFAULT = r"\$\{([A-Za-z_][A-Za-z0-9_]*):?=([^}]*)\}"
_CONTAINER = r"(?:APPTAINERENV|SINGULARITYENV)_(?=[A-Za-z_])"
_HEREDOC = r"<<-?\s*(['\"]?)(\w+)\1"
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "(", "time", "exec", "command", "sudo"}
_DECLARES = {"export", "declare", "typeset", "readonly", "local"}
_ENV_OPTIONS = {"-e", "-E", "--env", "-x", "--export", "-env", "-genv"}
_LISTS = {"qsub": {"-v"}, "bsub": {"-env"}, "msub": {"-v"}}
"""Options of a scheduler's command that take a list of variables."""
_PRINT = {"echo", "printf", "grep", "sed", "awk"}
_HOLDS_OPTIONS = r"[A-Za-z_][A-Za-z0-9_]*\+?=\s*(?:-|env(?=\s))[^\n]*\s[A-Za-z_][A-Za-z0-9_]*="
_TO_FILE = r">{1,2}[ \t]*([^\s;&|<>\"']{1,300})|\btee[ \t]+(?:-a[ \t]+)?([^\s;&|<>\"'-][^\s;&|<>\"']{0,300})"
_TO_PROGRAM = r"\b(?:(bash|sh|zsh|ssh|sbatch|qsub|bsub|srun)|python[\d.]*)\b"
_ECHO = (
    r"\b(?:echo|printf)[ \t]+(?:-[neE]{1,3}[ \t]+)?([\"'])((?:(?!\1)[^\\]|\\.){1,4000})\1[ \t]*"
    r"(?:>{1,2}|\|[ \t]*(?:sudo[ \t]+)?tee[ \t]+(?:-a[ \t]+)?)[ \t]*[\"']?([^\s;&|<>\"']{1,300})"
)
_BACKTICKS = r"`([^`\n]{1,2000})`"
_ESCAPABLE = ('"', "\\", "$", "`")
"""Before these a backslash counts between double quotes; before others it stands for itself."""
_UNKNOWN_MARKS = ("$(", "${", "{{")
_OF_ENV = {"-u", "--unset", "-C", "--chdir", "-S", "--split-string"}
"""Options of env that take the next word."""
_SHELLS = {"bash", "sh", "zsh", "dash", "ksh"}
_REMOTE = {"ssh", "pdsh", "clush", "psshe", "parallel-ssh"}
MAX_JOINED = 200
ALWAYS_READ = 16
"""Lines of one command after each of which it is looked whether the command has ended."""
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
    is_tcl = text.startswith("#%Module")
    exported: set[str] = set()
    everything_exported = False
    for command in _commands(text, first_line, found):
        words = _without_keywords(command)
        if not words:
            continue
        head, before = words[0].text, len(found.settings)
        if head == "set" and len(words) > 1:
            options = [w.text for w in words[1:]]
            if "-a" in options or ("-o" in options and "allexport" in options):
                everything_exported = True
            elif "+a" in options or ("+o" in options and "allexport" in options):
                everything_exported = False
            else:
                _fish_set(words, found)
        elif head in _DECLARES:
            _declaration(words, found, exported)
        elif head == "setenv" and len(words) == 3:
            value = words[2].text.removeprefix("{").removesuffix("}") if is_tcl else words[2].text
            found.assign(words[1].text, words[2].known(value), words[1].line)
        else:
            _command(words, found)
        if everything_exported:
            found.settings[before:] = [replace(setting, exported=True) for setting in found.settings[before:]]
    for place, setting in enumerate(found.settings[first:], start=first):
        if setting.name in exported:
            found.settings[place] = replace(setting, exported=True)


def _fish_set(words: list[_Word], found: Parsed) -> None:
    """fish's `set -gx NAME VALUE`; in other shells no line gives `set -x` a name and a value."""
    place = 1
    while place < len(words) and words[place].text.startswith("-"):
        place += 1
    options, rest = words[1:place], words[place:]
    is_export = any(o.text == "--export" or (not o.text.startswith("--") and "x" in o.text) for o in options)
    if is_export and len(rest) > 1 and compiled(NAME).fullmatch(rest[0].text):
        value = " ".join(word.text for word in rest[1:])
        found.assign(rest[0].text, value if all(word.fixed for word in rest) else None, rest[0].line)


def _declaration(words: list[_Word], found: Parsed, exported: set[str]) -> None:
    """`export A=b C`: with NCCL_DEBUG = INFO three words are exported, and none is assigned."""
    options = [w.text for w in words[1:] if w.text.startswith("-")]
    is_export = (words[0].text == "export" and "-n" not in options) or any("x" in option for option in options)
    named = [w for w in words[1:] if not w.text.startswith("-")]
    for place, word in enumerate(named):
        match = compiled(_ASSIGNMENT).fullmatch(compiled(_CONTAINER).sub("", word.text, count=1))
        if match:
            after = named[place + 1] if place + 1 < len(named) else None
            if not match[2] and after is not None and after.line == word.line and "=" not in after.text:
                found.slip(word.line, f"{word.text} {after.text}", Slip.BLANK_AFTER_EQUALS)
            else:
                found.assign(match[1], word.known(match[2]), word.line, exported=is_export, written=match[2])
        elif word.text.startswith("="):
            before = named[place - 1].text if place else ""
            found.slip(word.line, f"{before} {word.text}", Slip.BLANK_BEFORE_EQUALS)
        elif is_export and compiled(NAME).fullmatch(word.text):
            exported.add(word.text)
        elif words[0].text == "export" and compiled(NAME).fullmatch(word.text):
            exported.discard(word.text)
            found.settings[:] = [replace(s, exported=False) if s.name == word.text else s for s in found.settings]


def _command(words: list[_Word], found: Parsed) -> None:
    """`A=b C=d command`, `A=b` alone, and what env, srun (--export), mpirun (-x) and docker (-e) are given."""
    place = 0
    while place < len(words) and compiled(_ASSIGNMENT).fullmatch(words[place].text):
        place += 1
    alone = place == len(words)
    for word in words[:place]:
        _assign(word.text, word, found, exported=not alone)
        if compiled(_HOLDS_OPTIONS).match(word.text):
            _options(replace(word, text=word.text.partition("=")[2].strip()), found)
    if alone:
        return
    if len(words) > 1 and words[1].text == "=" and words[0].text.isupper() and compiled(NAME).fullmatch(words[0].text):
        found.slip(words[0].line, f"{words[0].text} =", Slip.BLANK_BEFORE_EQUALS)
        return
    rest = words[place:]
    if rest[0].text == ":":
        for word in rest[1:]:
            for match in compiled(_DEFAULT).finditer(word.text):
                value = None if "$" in match[2] or "`" in match[2] else match[2].strip("\"'")
                found.assign(match[1], value, word.line, exported=False)
        return
    _arguments(rest, found)
    _inner_script(rest, found)


def parse_arguments(words: list[tuple[str, int]], found: Parsed) -> None:
    """Variables among the words of a command that is started without a shell, each with its line."""
    made = [_Word(text, line, fixed=not any(mark in text for mark in _UNKNOWN_MARKS)) for text, line in words]
    _arguments(made, found)
    _inner_script(made, found)


def _arguments(words: list[_Word], found: Parsed) -> None:
    """Variables among the arguments of a command that passes them on."""
    programs = {word.text.rpartition("/")[2] for word in words}
    if _is_of_its_own(words, found):
        return
    is_env = words[0].text.rpartition("/")[2] == "env"
    for place, (before, word) in enumerate(itertools.pairwise(words), start=1):
        if before.text == "--export" or word.text.startswith("--export="):
            _export_list(word.text.removeprefix("--export="), word, found)
        elif before.text in _LISTS.get(words[0].text.rpartition("/")[2], ()):
            _export_list(word.text, word, found)
        elif before.text == "--runtime-env-json" or word.text.startswith("--runtime-env-json="):
            _json_map(word, found)
        elif word.text.startswith("-") and " " in word.text and "=" in word.text:
            _options(word, found)
        elif before.text in {"-env", "-genv"} and compiled(NAME).fullmatch(word.text) and place + 1 < len(words):
            value = words[place + 1]
            found.assign(word.text, value.known(value.text), word.line)
        elif word.text.startswith("-e") and programs & {"docker", "podman", "nerdctl"} and "=" in word.text:
            _assign(word.text.removeprefix("-e"), word, found)
        elif compiled(_ASSIGNMENT).fullmatch(word.text.removeprefix("--env=")):
            if is_env or before.text in _ENV_OPTIONS or word.text.startswith("--env="):
                text = word.text.removeprefix("--env=")
                if programs & {"apptainer", "singularity", "torchx"}:  # they take a list
                    _export_list(re.sub(r",(?![A-Za-z_][A-Za-z0-9_]*=)", "\0", text), word, found)
                else:
                    _assign(text, word, found)
        else:
            is_option = word.text.startswith("-") or before.text in _OF_ENV
            is_env = word.text.rpartition("/")[2] == "env" or (is_env and is_option)


def _is_of_its_own(words: list[_Word], found: Parsed) -> bool:
    """Whether the command takes its arguments as no other does; then it is read."""
    started = [w.text for w in words[:5]]
    skipped = 3 if started[:3] == ["kubectl", "set", "env"] else 5
    if skipped == 3 or started in (
        ["conda", "env", "config", "vars", "set"],
        ["mamba", "env", "config", "vars", "set"],
    ):
        for word in words[skipped:]:
            _assign(word.text, word, found)
        return True
    return words[0].text.rpartition("/")[2] in _PRINT


def _json_map(word: _Word, found: Parsed) -> None:
    """Ray's `--runtime-env-json '{"env_vars": {"A": "b"}}'`."""
    try:
        given = json.loads(word.text.removeprefix("--runtime-env-json="))
    except (ValueError, RecursionError):
        return
    variables = given.get("env_vars") if isinstance(given, dict) else None
    for name, value in variables.items() if isinstance(variables, dict) else ():
        if compiled(NAME).fullmatch(name):
            found.assign(name, word.known(str(value)), word.line)


def _options(word: _Word, found: Parsed) -> None:
    """Options of a launcher within one word: `--launcher_args "-x A=b"`, `OPTIONS="-x A=b -x C=d"`."""
    inner = [
        replace(w, line=word.line, fixed=word.fixed) for words in _Words(word.text, word.line).commands for w in words
    ]
    if inner and " " not in inner[0].text:
        _arguments(inner, found)


def _inner_script(words: list[_Word], found: Parsed) -> None:
    """The script in `bash -c '...'` and in `ssh HOST '...'`."""
    for at, word in enumerate(words[1:], start=1):
        program, option = words[at - 2].text.rpartition("/")[2] if at > 1 else "", words[at - 1].text
        is_script = program in _SHELLS and re.fullmatch(r"-[a-z]{0,4}c", option) is not None
        is_remote = words[0].text in {*_REMOTE, "eval"} and at == len(words) - 1 and " " in word.text
        if words[0].text in _REMOTE and word.text in _DECLARES:
            _declaration(words[at:], found, set())
            return
        if (is_script or is_remote) and word.text != words[0].text:
            inner = found.within()
            parse_shell(word.text, inner, first_line=word.line)
            found.settings += inner.settings
            return


def _export_list(text: str, word: _Word, found: Parsed) -> None:
    for part in text.split(","):
        _assign(part.strip().replace("\0", ","), word, found)


def _assign(text: str, word: _Word, found: Parsed, *, exported: bool = True) -> None:
    """`text`, a part of `word`, as an assignment, if it is one."""
    if match := compiled(_ASSIGNMENT).fullmatch(compiled(_CONTAINER).sub("", text, count=1)):
        found.assign(match[1], word.known(match[2]), word.line, exported=exported, written=match[2])


def _without_keywords(words: list[_Word]) -> list[_Word]:
    place = 0
    while place < len(words) and words[place].text in {*_KEYWORDS, "function"}:
        place += 2 if words[place].text == "function" else 1  # its name
    return words[place:]


def _commands(text: str, first_line: int, found: Parsed) -> Iterator[list[_Word]]:
    """Simple commands of a script; bodies of here-documents are left out."""
    waiting: str | None = None
    body: list[str] = []
    target = ""
    pending: list[str] = []
    mark = ""  # what the pending lines wait for
    next_read = 0
    start = first_line
    for number, line in enumerate(text.split("\n")[:MAX_LINES], start=first_line):
        if waiting is not None:
            if line.strip() == waiting:
                waiting = None
                if target:
                    found.written.append(Written(target, "\n".join(body), number - len(body)))
                body = []
            else:
                body.append(line.rstrip("\r"))
            continue
        if not pending:
            start = number
            if match := compiled(_BATCH_EXPORT).match(line):
                _export_list(match[1] or match[2], _Word(match[0], number), found)
                continue
        pending.append(line.rstrip("\r"))
        if mark in {"'", '"'} and mark not in line and len(pending) < MAX_JOINED:
            continue  # inside of a quoted text of several lines
        if mark and ALWAYS_READ < len(pending) < min(next_read, MAX_JOINED):
            continue  # what ends meanwhile ends at its own line; to read it all again for each line would take long
        whole = "\n".join(pending)
        words = _Words(whole, start)
        mark = words.open_mark
        if mark and len(pending) < MAX_JOINED:
            next_read = 2 * len(pending)
            continue
        mark = ""
        pending = []
        yield from words.commands
        waiting = words.heredoc
        target = _target(whole) if waiting else ""
        _echoed(whole, start, found)
    if pending:
        yield from _Words("\n".join(pending), start).commands


def _target(command: str) -> str:
    """The file that a here-document becomes; for a program that reads it, a name of that program's files."""
    if match := compiled(_TO_FILE).search(command):
        return str(match[1] or match[2])
    if match := compiled(_TO_PROGRAM).search(command):
        return "here.sh" if match[1] else "here.py"
    return ""


def _echoed(command: str, line: int, found: Parsed) -> None:
    """`echo "A=b" >> FILE`, and what backticks run."""
    if ">" in command or "tee" in command:
        for match in compiled(_ECHO).finditer(command):
            text = match[2].replace("\\n", "\n") if "\\n" in match[2] else match[2]
            found.written.append(Written(match[3], text, line + command.count("\n", 0, match.start())))
    for match in compiled(_BACKTICKS).finditer(command) if "`" in command and "=" in command else ():
        inner = found.within()
        parse_shell(match[1], inner, first_line=line + command.count("\n", 0, match.start()))
        found.settings += inner.settings


class _Words:
    """The words of one logical line.

    `open_mark`: a quote or a backslash at the end that asks for the next line.  `heredoc`: the word that ends the
    here-document behind the line.
    """

    def __init__(self, text: str, line: int) -> None:
        self.commands: list[list[_Word]] = [[]]
        self.open_mark = ""
        self.heredoc: str | None = None
        self._arithmetic = 0
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
                self._operator()
            elif letter in "'\"":
                self._quoted(letter)
            elif letter == "\\":
                self._escaped()
            else:
                self._plain(letter)
        self._end_word()

    def _operator(self) -> None:
        """A mark that ends a command; `<<` begins a here-document, but not as `<<<` or between `((` and `))`."""
        self._end_word()
        self.commands.append([])
        two, width = self._text[self._at : self._at + 2], 1
        if two in {"((", "))"}:
            self._arithmetic = max(0, self._arithmetic + (1 if two == "((" else -1))
            width = 2
        elif two == "<<" and not self._arithmetic:
            is_text = self._text.startswith("<<<", self._at)
            match = None if is_text else compiled(_HEREDOC).match(self._text, self._at)
            self.heredoc = match[2] if match else self.heredoc
            width = 3 if is_text else 2
        self._at += width

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _begin(self) -> None:
        if not self._in_word:
            self._in_word, self._start = True, self._line

    def _plain(self, letter: str) -> None:
        self._begin()
        if letter == "$" and self._text[self._at + 1 : self._at + 2] in {"'", '"'}:
            self._at += 1  # $'...' and $"..." are quotes
            return
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
            if mark == '"' and self._text.startswith("\\\n", at):  # the line goes on
                self._line += 1
                at += 2
                continue
            if mark == '"' and letter == "\\" and self._text[at + 1 : at + 2] in _ESCAPABLE:
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
