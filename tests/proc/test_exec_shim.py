"""The program between fork and exec says so when it cannot become the other one."""

import subprocess
import sys
from pathlib import Path

from allready.proc.exec_shim import has_failed, shim_command


def ended(program: str, *arguments: str) -> tuple[int, bytes]:
    done = subprocess.run(shim_command(program, *arguments), stderr=subprocess.PIPE, check=False, timeout=60)
    return done.returncode, done.stderr


def test_a_program_that_is_missing_or_is_none_is_known_by_what_the_shim_leaves(tmp_path: Path) -> None:
    plain = tmp_path / "train.txt"
    plain.write_text("no program")
    assert [ended(str(tmp_path / "missing"))[0], ended(str(plain))[0]] == [127, 126]
    assert has_failed(*ended(str(tmp_path / "missing")))
    assert has_failed(*ended(str(plain)))


def test_a_program_that_ran_and_left_with_such_a_code_is_another_thing() -> None:
    code, output = ended(sys.executable, "-c", "import sys; sys.stderr.write('sh: cannot run x\\n'); sys.exit(127)")
    assert code == 127
    assert not has_failed(code, output)
    assert not has_failed(1, b"allready: cannot run x: No such file or directory\n")
