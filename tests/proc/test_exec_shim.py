"""The program between fork and exec hands over, as a number, why it could not become the other one."""

import errno
import os
import subprocess
import sys
from pathlib import Path

from allready.proc.exec_shim import exec_error, shim_command


def ended(program: str, *arguments: str) -> tuple[int, int | None]:
    """Exit code and `exec_error` of a process."""
    reader, writer = os.pipe()
    try:
        command = shim_command(program, *arguments, failure_fd=writer)
        done = subprocess.run(command, stderr=subprocess.DEVNULL, check=False, timeout=60, pass_fds=(writer,))
        os.close(writer)
        return done.returncode, exec_error(reader)
    finally:
        os.close(reader)


def test_a_program_that_is_missing_or_is_none_is_known_by_its_error(tmp_path: Path) -> None:
    plain = tmp_path / "train.txt"
    plain.write_text("no program")
    assert ended(str(tmp_path / "missing")) == (127, errno.ENOENT)
    assert ended(str(plain)) == (126, errno.EACCES)
    plain.write_text("#!/no/such/interpreter\n")
    plain.chmod(0o755)
    assert ended(str(plain)) == (127, errno.ENOENT)


def test_a_program_that_ran_did_become_one_whatever_it_prints_or_leaves_behind() -> None:
    text = "import sys; sys.stderr.write('allready: cannot run x: No such file or directory\\n'); sys.exit(127)"
    assert ended(sys.executable, "-c", text) == (127, None)
    left = "import subprocess, sys; subprocess.Popen(['sleep', '3'], close_fds=False); sys.exit(126)"
    assert ended(sys.executable, "-c", left) == (126, None)


def test_the_error_can_be_asked_for_while_another_process_holds_the_pipe() -> None:
    reader, writer = os.pipe()
    try:
        assert exec_error(reader) is None
    finally:
        os.close(reader)
        os.close(writer)
