"""What `allready diagnose` prints of the recorded runs, put into the documents: `.venv/bin/python docs/printed.py`.

A document says `<!-- printed: COMMAND -->` above a block; the block becomes what COMMAND prints in a terminal of 100
columns, in a folder where every recorded run lies unpacked under its name.  `<!-- printed, the part from WORD on:
COMMAND -->` takes the paragraph that begins with WORD.  `--check` writes nothing and fails when a block is stale.
"""

import argparse
import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tarfile
import tempfile
import termios
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "tests" / "fixtures" / "runs"
DOCUMENTS = ("README.md", "README.zh-CN.md", "docs/diagnose.md", "docs/zh/diagnose.md")
COLUMNS = 100
LIMIT_S = 120.0

BLOCK = re.compile(
    r"(?P<head><!-- printed(?:, the part from (?P<word>\w+) on)?: (?P<command>allready [^\n]+?) -->\n+```text\n)"
    r"(?P<text>.*?)(?=^```$)",
    re.MULTILINE | re.DOTALL,
)
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def printed(command: str, folder: Path) -> str:
    """Standard output of a command on a terminal; the terminal's control sequences and trailing blanks are off."""
    argv = [str(Path(sys.executable).parent / "allready"), *shlex.split(command)[1:]]
    environ = {**os.environ, "NO_COLOR": "1", "TERM": "xterm", "ALLREADY_LANG": "en"}
    environ.pop("COLUMNS", None)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    with subprocess.Popen(argv, stdout=theirs, stderr=subprocess.DEVNULL, cwd=folder, env=environ) as process:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 65536):
                parts.append(part)
        except OSError:  # Linux's word for the end of a terminal
            pass
        process.wait(LIMIT_S)
    os.close(ours)
    text = ESCAPES.sub("", b"".join(parts).decode()).replace("\r\n", "\n")
    return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n") + "\n"


def refreshed(document: str, folder: Path) -> str:
    """A document with every block as printed now."""

    def block(match: re.Match[str]) -> str:
        text = printed(match["command"], folder)
        if match["word"]:
            at = re.search(rf"^{match['word']}\b", text, re.MULTILINE)
            assert at is not None, f"{match['command']} prints nothing that begins with {match['word']}"
            text = text[at.start() :].partition("\n\n")[0].rstrip("\n") + "\n"
        return match["head"] + text

    return BLOCK.sub(block, document)


def main() -> int:
    """Refresh or check all documents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    stale = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for archive in RUNS.glob("*.tar.xz"):
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        (folder / "tests").symlink_to(ROOT / "tests")
        for document in DOCUMENTS:
            path = ROOT / document
            old = path.read_text(encoding="utf-8")
            new = refreshed(old, folder)
            if new != old:
                stale.append(document)
                if not is_check:
                    path.write_text(new, encoding="utf-8")
    if stale:
        sys.stderr.write(f"{'stale' if is_check else 'written'}: {', '.join(stale)}\n")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
