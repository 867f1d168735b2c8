"""A program's last output beside an answer of RAS that shows ranks apart."""

import shutil
from pathlib import Path

import pytest

from allready.cli.main import main
from allready.report.json_report import decode

ANSWERS = next((Path(__file__).parents[1] / "fixtures").rglob("ras/skip_a.json")).parent


@pytest.mark.parametrize(("name", "is_healthy"), [("skip_a.json", False), ("ok_a.json", True)])
def test_words_of_a_good_end_do_not_outweigh_ranks_that_ras_found_apart(
    tmp_path: Path, name: str, is_healthy: bool
) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "train.log").write_text("step 1\nTraining finished.\n")
    shutil.copy(ANSWERS / name, folder)
    target = tmp_path / "report.json"
    main(["diagnose", "-q", "--json", str(target), str(folder)])
    assert (decode(target.read_bytes()).status == "healthy") is is_healthy
