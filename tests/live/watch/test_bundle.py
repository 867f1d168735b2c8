"""The archive for a helper."""

import os
import re
import tarfile
from pathlib import Path

import pytest

from allready.bundle import pack
from allready.live.watch.bundle import bundle


def test_masks_secrets_and_follows_no_link(tmp_path: Path) -> None:
    root = tmp_path / "job"
    (root / "attempt0").mkdir(parents=True)
    (root / "attempt0" / "out.log").write_text("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345\nloss 1.0\n")
    (root / "dump.pickle").write_bytes(b"\x80\x04password=x")
    (root / "link").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    with tarfile.open(bundle(root, tmp_path / "b.tar.gz")) as archive:
        names = set(archive.getnames())
        log = archive.extractfile("job/attempt0/out.log")
        assert log is not None
        text = log.read().decode()
    assert names == {"job/attempt0/out.log"}, "what is binary could hide a secret"
    assert "hf_abcdef" not in text
    assert "loss 1.0" in text


def test_keeps_both_ends_of_a_huge_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "LARGEST_BYTES", 1000)
    root = tmp_path / "job"
    root.mkdir()
    (root / "out.log").write_text("first\n" + "x\n" * 2500 + "last")
    with tarfile.open(bundle(root, tmp_path / "b.tar.gz")) as archive:
        log = archive.extractfile("job/out.log")
        assert log is not None
        data = log.read()
    assert data.startswith(b"first")
    assert data.endswith(b"last")
    assert re.search(rb"\[\.\.\. 4\d\d\d bytes left out", data)


def test_leaves_nothing_when_it_cannot_be_written(tmp_path: Path) -> None:
    root = tmp_path / "job"
    root.mkdir()
    with pytest.raises(OSError, match="No such file"):
        bundle(root, tmp_path / "no" / "b.tar.gz")
