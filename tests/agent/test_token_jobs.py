"""Jobs of real agents with a shared token."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.jobs import Job, processes_with

SECRET = "f1e2d3c4b5a69788-the-token"
SHOW = "import os\nprint('token' if 'ALLREADY_TOKEN' in os.environ else 'no token', flush=True)\n"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.close()


def token_file(folder: Path, text: str = SECRET) -> str:
    file = folder / "secret.txt"
    file.write_text(text + "\n")
    file.chmod(0o600)
    return str(file)


def places_with_the_secret(folder: Path) -> list[str]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != "secret.txt")
    return [str(p) for p in files if SECRET.encode() in p.read_bytes()]


def test_nodes_with_the_token_form_a_job_and_nobody_gets_to_see_it(job: Job) -> None:
    script = job.script(SHOW)
    first = job.node(0, "--token-file", token_file(job.folder), script)
    second = job.node(1, script, env={"ALLREADY_TOKEN": SECRET})
    codes = first.wait(120), second.wait(120)
    assert codes == (0, 0), first.err + second.err
    assert first.report()["status"] == "healthy"
    assert "no token" in first.out + second.out
    assert not places_with_the_secret(job.folder)
    assert SECRET not in first.out + first.err + second.out + second.err
    assert not processes_with(SECRET)


def test_a_node_without_the_token_is_told_so_and_named_by_both(job: Job) -> None:
    script = job.script(SHOW)
    first = job.node(0, "--token-file", token_file(job.folder), "--wait", "12", script)
    second = job.node(1, "--wait", "12", script)
    assert second.wait(120) != 0
    verdict = second.report()["verdict"]
    assert (verdict["code"], verdict["culprits"]["nodes"]) == ("JOB013", [1])
    assert first.wait(120) != 0
    verdict = first.report()["verdict"]
    assert (verdict["code"], verdict["culprits"]["nodes"], verdict["confidence"]) == ("JOB013", [1], "likely")
    assert not places_with_the_secret(job.folder)
