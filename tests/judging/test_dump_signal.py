"""torch's order to write a dump, where the log of a job holds nothing else."""

from pathlib import Path

import pytest

from allready.cli.main import main

ORDER = (
    "[rank{rank}]:[E1115 16:42:37.909 ProcessGroupNCCL.cpp:1753] [PG ID 0 PG GUID 0 Rank {rank}] Received a dump "
    "signal due to a collective timeout from this local rank and we will try our best to dump the debug info. "
    "Last enqueued NCCL work: 2, last completed NCCL work: 2.\n"
)


@pytest.mark.parametrize(("behind", "verdict"), [("", "TCH007"), ("step {}: loss 1.5\n", None)])
def test_it_is_the_verdict_where_nothing_follows(
    behind: str, verdict: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join(ORDER.format(rank=rank) for rank in (5, 4)) + "".join(behind.format(n) for n in range(60) if behind)
    (tmp_path / "out.log").write_text(text)
    main(["diagnose", str(tmp_path), "-q", "--jobs", "1"])
    out = capsys.readouterr().out
    assert (verdict in out) if verdict else "TCH007" not in out
