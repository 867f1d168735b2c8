"""Where a report folder is: another job's is left alone, and one that cannot be made moves where that is allowed."""

import subprocess
import sys
from pathlib import Path

import pytest

from allready.agent.folder import MARK, ReportFolder

HOLDS = """
import sys
from pathlib import Path
from allready.agent.folder import ReportFolder
folder = ReportFolder(Path(sys.argv[1]), is_node_0=True, node_rank=0)
folder.open()
print("held", flush=True)
sys.stdin.read()
"""


def test_two_jobs_never_share_a_folder_and_a_killed_one_frees_its(tmp_path: Path) -> None:
    wanted = tmp_path / "report"
    words = [sys.executable, "-c", HOLDS, str(wanted)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        second = ReportFolder(wanted, is_node_0=True, node_rank=0)
        second.open()
        assert second.path == tmp_path / "report-2"
        assert [note.key for note in second.notes] == ["run.folder_taken"]
        other_node = ReportFolder(wanted, is_node_0=False, node_rank=1)  # of the first job: it shares its folder
        other_node.open()
        assert (other_node.path, other_node.notes) == (wanted, [])
        assert other_node.report_name() == "report-node1"
        first.kill()
    third = ReportFolder(wanted, is_node_0=True, node_rank=0)
    third.open()
    assert (third.path, third.notes) == (wanted, [])
    for folder in (second, third, other_node):
        folder.close()
    assert not (wanted / MARK).exists()
    assert not list(wanted.glob(".in-use*"))


@pytest.mark.parametrize("may_move", [True, False])
def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_move: bool) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    folder = ReportFolder(tmp_path / "file" / "job", is_node_0=True, node_rank=0, may_move=may_move)
    if not may_move:
        with pytest.raises(NotADirectoryError):
            folder.open()
        return
    folder.open()
    assert folder.path.parent.parent == tmp_path
    assert folder.path.parent.stat().st_mode & 0o777 == 0o700
    assert [note.key for note in folder.notes] == ["run.folder_moved"]
    folder.close()
