"""`allready mcp` with the SDK's own client over standard input and output."""

import asyncio
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Coroutine
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from allready.cli import mcp_tools
from allready.cli.mcp_tools import ToolError, Tools
from tests.cli.processes import PROGRAM, plain_environment

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
LIMIT_S = 100.0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run; links in it lead out of it."""
    top = tmp_path_factory.mktemp("served")
    with tarfile.open(RUNS / "sigstop.tar.xz") as archive:
        archive.extractall(top, filter="data")
    (top / "job.sh").write_text("export NCCL_TIMEOUT=1800\n")
    shutil.copy(RUNS.parent / "doctor" / "h200.json", top)
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.log").write_text("[rank0]: ValueError: not for you\n")
    (top / "sigstop" / "more.log").symlink_to(outside / "secret.log")
    (top / "away").symlink_to(outside)
    return top


def served(root: Path, use: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Run `use` with a session of a real server."""
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(
        command=PROGRAM[0], args=[*PROGRAM[1:], "mcp", "--root", str(root)], env=plain_environment()
    )

    async def talk() -> None:
        async with (
            asyncio.timeout(LIMIT_S),
            stdio_client(server) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            await use(session)

    asyncio.run(talk())


@pytest.mark.jobs
def test_a_client_gets_who_why_and_what_to_do_in_one_call(root: Path) -> None:
    async def use(session: Any) -> None:
        async def ask(tool: str, **arguments: Any) -> tuple[str, bool]:
            result = await session.call_tool(tool, arguments)
            failed = getattr(result, "is_error", None) or getattr(result, "isError", None) or False
            text = result.content[0].text
            assert len(text) <= mcp_tools.MAX_CHARS + 10
            return text, bool(failed)

        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == {tool.__name__ for tool in Tools([]).all()}
        for tool in tools:
            hints = tool.annotations
            assert getattr(hints, "read_only_hint", None) or getattr(hints, "readOnlyHint", None)
        text, failed = await ask("diagnose", paths=["sigstop"])
        body = json.loads(text)
        assert not failed
        assert (body["status"], body["verdict"]["code"], body["verdict"]["culprits"]["ranks"]) == (
            "fault",
            "HNG002",
            [1],
        )
        assert body["verdict"]["remedies"]
        assert body["verdict"]["evidence"]
        assert "not for you" not in text, "a link led out of the folder"
        assert any("more.log" in note for note in body["notes"])
        zh = json.loads((await ask("diagnose", paths=[str(root / "sigstop")], language="zh"))[0])
        assert zh["verdict"]["code"] == "HNG002"
        for told in (zh["verdict"]["title"], zh["verdict"]["message"], zh["verdict"]["evidence"][0]["text"]):
            assert any("\u4e00" <= letter <= "\u9fff" for letter in told)
        lint = json.loads((await ask("env_lint", files=["job.sh"]))[0])
        assert [(f["code"], f["line"]) for f in lint["findings"]] == [("VAR001", 1)]
        assert "HNG002" in (await ask("explain", code="HNG002"))[0]
        assert "NCCL_IB_TIMEOUT" in (await ask("env_explain", name="NCCL_IB_TIMEOUT", value="99"))[0]
        line = "gpu1:1:1 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found"
        assert json.loads((await ask("explain_line", text=line))[0])["lines"][0]["known"]
        assert json.loads((await ask("doctor", facts="h200.json"))[0])["status"] == "healthy"
        for name, arguments in (
            ("diagnose", {"paths": ["/etc"]}),
            ("diagnose", {"paths": ["away"]}),
            ("diagnose", {"paths": ["../outside"]}),
            ("env_lint", {"files": ["/etc/passwd"]}),
            ("doctor", {"facts": "/etc/passwd"}),
            ("explain", {"code": "--list"}),
            ("env_explain", {"name": "--json"}),
        ):
            text, failed = await ask(name, **arguments)
            assert failed, (name, arguments, text[:300])
            if "paths" in arguments or "files" in arguments:
                assert "not found below" in text, "the client is told why"

    served(root, use)


def test_paths_are_confined_to_the_folders_named(root: Path) -> None:
    tools = Tools([root.resolve()])
    outside = [
        "/",
        "..",
        "sigstop/../../x",
        "away",
        "away/secret.log",
        "sigstop/more.log",
        str(root.parent),
        "\0",
        "no",
    ]
    for path in outside:
        with pytest.raises(ToolError, match="not found below"):
            tools.diagnose([path])
    with pytest.raises(ToolError, match="--root"):
        Tools([]).diagnose(["/tmp"])
    with pytest.raises(ToolError, match="1 to"):
        tools.diagnose([])


def test_what_is_long_is_cut_and_that_is_said() -> None:
    rows = [{"text": "x" * 5000, "number": number} for number in range(200)]
    text = mcp_tools._as_text({"verdict": "kept", "rows": rows})
    body = json.loads(text)
    assert len(text) <= mcp_tools.MAX_CHARS
    assert body["verdict"] == "kept"
    assert body["left_out"]["rows"] + len(body["rows"]) == 200


def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ImportError('no')\n")
    done = subprocess.run(
        [*PROGRAM, "mcp"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env=plain_environment(PYTHONPATH=str(tmp_path)),
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "pip install 'mcp>=1.9'" in done.stderr


def test_the_instructions_name_only_commands_and_tools_that_exist() -> None:
    text = (resources.files("allready.text") / "SKILL.md").read_text(encoding="utf-8")
    printed = subprocess.run(
        [sys.executable, "-m", "allready", "mcp", "--skill"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert printed == text
    rows = [line.split("|")[3].strip() for line in text.splitlines() if line.count("|") == 4 and "allready" in line]
    assert rows
    assert set(rows) <= {tool.__name__ for tool in Tools([]).all()}
