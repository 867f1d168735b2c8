import argparse
import asyncio
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from allready.cli.options import add_common
from allready.errors import UsageError
from allready.launch.flags import add_arguments
from allready.launch.request import Note
from allready.launch.ssh import run_hosts, until_stdin_ends
from allready.launch.ssh_words import (
    SshOptions,
    Target,
    agent_commands,
    options_from,
    parse_hosts,
    passed_environment,
    remote_command,
    ssh_argv,
)
from allready.text.ui import table, ui
from tests.cases import cases
from tests.clock import Deadline, Stopwatch
from tests.sshd import Sshd, needs_sshd, new_key

# The words


@cases(
    ("text", "target"),
    [
        ("gpu01", Target(host="gpu01")),
        ("alice@gpu01.cluster.org:2222", Target(host="gpu01.cluster.org", user="alice", port=2222)),
        ("10.0.0.1:22", Target(host="10.0.0.1", port=22)),
        ("fd00::7", Target(host="fd00::7")),
        ("root@[fd00::7]:22", Target(host="fd00::7", user="root", port=22)),
        ("gpu_01", Target(host="gpu_01")),
    ],
)
def test_hosts_are_read_and_written(text: str, target: Target) -> None:
    assert parse_hosts([text]) == (target,)
    assert parse_hosts([str(target)]) == (target,)


@cases(
    "text",
    [
        "", "-oProxyCommand=reboot", "-v", "gpu01 reboot", "gpu01;reboot", "$(reboot)", "`id`", "a|b", "a&b", "a>b",
        "a\nb", "'a'", '"a"', "gpu01:0", "gpu01:99999", "gpu01:ssh", "@gpu01", "a@-oX=1", "-a@gpu01", "a@b@c",
        "user name@gpu01", "gpu01:", "gpu01.", "../etc", "a/b", "a\\b", "gpu*", "ssh://gpu01", "\x00", "gpü01",
    ],
)  # fmt: skip
def test_what_could_be_an_option_or_a_command_is_no_host(text: str) -> None:
    with pytest.raises(UsageError, match="is not a host"):
        parse_hosts([text])


def test_a_host_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_hosts(["a", "b", "a"])
    assert len(parse_hosts(["a:1", "a:2"])) == 2


def test_ssh_gets_the_users_options_first_and_the_host_behind_two_dashes() -> None:
    argv = ssh_argv(Target(host="h", user="u", port=5), "cmd", SshOptions(options=("IdentityFile=k y",)))
    assert argv[-3:] == ["--", "h", "cmd"]
    assert argv.index("IdentityFile=k y") < argv.index("BatchMode=yes")
    assert argv[argv.index("-p") + 1] == "5"
    assert argv[argv.index("-l") + 1] == "u"


HARD = ["a b", "'", '"', "$HOME", "`id`", "$(id)", "*", ";exit 9", "\\", "é中", "", "-n", "--", "#x", "a\tb", "!!", "~"]


def test_every_word_arrives_as_it_was_whatever_is_in_it(tmp_path: Path) -> None:
    """By real shells, without ssh: what sshd does is `SHELL -c COMMAND`."""
    folder = tmp_path / "a 'dir' $HOME"
    folder.mkdir()
    program = [
        sys.executable,
        "-c",
        "import sys, os, json; print(json.dumps([sys.argv[1:], os.getcwd(), os.environ['NCCL_X']]))",
    ]
    options = SshOptions(directory=str(folder), environment={"NCCL_X": "a 'b' $c\\"})
    for shell in filter(None, (shutil.which(name) for name in ("sh", "bash", "dash"))):
        command = remote_command([*program, *HARD], options, "tok")
        done = subprocess.run([shell, "-c", command], capture_output=True, text=True, timeout=30, check=False)
        assert json.loads(done.stdout) == [HARD, str(folder), "a 'b' $c\\"], done.stderr
        assert done.stderr.split("\n")[:2] == ["tok started", "tok ended 0"]


def test_the_path_of_this_shell_comes_before_that_of_the_node_and_does_not_replace_it(tmp_path: Path) -> None:
    own = "/opt/it's $here/bin:/opt/b"
    options = SshOptions(directory=str(tmp_path), environment={"PATH": own, "HF_HOME": "/data/$HOME 'x'"})
    program = [sys.executable, "-c", "import os; print(os.environ['PATH'], os.environ['HF_HOME'], sep='|')"]
    for shell in filter(None, (shutil.which(name) for name in ("sh", "bash", "dash"))):
        command = remote_command(program, options, "tok")
        environ = {"PATH": "/usr/bin:/bin:/node's own"}
        done = subprocess.run(
            [shell, "-c", command], env=environ, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.stdout == f"{own}:/usr/bin:/bin:/node's own|/data/$HOME 'x'\n", done.stderr


def test_the_nodes_get_what_the_job_reads_and_no_secret() -> None:
    environ = {
        "NCCL_DEBUG": "INFO",
        "PYTHONPATH": "/x",
        "HOME": "/root",
        "PET_MAX_RESTARTS": "3",
        "CUDA_VISIBLE_DEVICES": "0",
        "AWS_SECRET_ACCESS_KEY": "x",
        "TORCH_API_TOKEN": "abc",
        "NCCL_CONF": "password=hunter22",
        "JAX_X": "a\nb",
        "WANDB_MODE": "offline",
        "HF_TOKEN": "hf_0123456789abcdef0123",
    }
    assert passed_environment(environ) == {"NCCL_DEBUG": "INFO", "PET_MAX_RESTARTS": "3", "PYTHONPATH": "/x"}
    assert passed_environment(environ, ["WANDB_MODE"])["WANDB_MODE"] == "offline"
    places = {name: f"/x/{name}" for name in ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HF_HOME", "LD_LIBRARY_PATH")}
    assert passed_environment({**environ, **places}).items() >= places.items()
    token = "hf_0123456789abcdef0123"
    assert passed_environment({"PATH": f"/a:/opt/{token}/bin:/b", "HF_HOME": f"/x/{token}"}) == {"PATH": "/a:/b"}
    for name, words in (
        ("HF_TOKEN", "secret"),
        ("NOT_SET", "not set"),
        ("A B", "not the name of a variable"),
        ("JAX_X", "secret"),
    ):
        with pytest.raises(UsageError, match=words):
            passed_environment(environ, [name])


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    add_common(parser)
    return parser.parse_args([*argv])


def test_each_host_gets_its_node_rank_and_the_scripts_arguments() -> None:
    args = parsed(
        "--hosts=a,u@b:5", "--nproc-per-node=2", "--json=r.json", "-v", "--backoff=1,2,0", "t.py", "--hosts", "x y"
    )
    first, second = agent_commands(args, parse_hosts(args.hosts))
    assert first[:4] == [sys.executable, "-m", "allready", "run"]
    again = [parsed(*words[4:]) for words in (first, second)]
    assert [a.node_rank for a in again] == [0, 1]
    assert {a.master_addr for a in again} == {"a"}
    assert all(a.nnodes == (2, 2) and a.end_with_stdin and a.hosts is None for a in again)
    assert all(a.script_args == ["--hosts", "x y"] and a.verbose == 1 and a.backoff == args.backoff for a in again)
    assert [a.json for a in again] == ["r.json", None]


@cases("flag", ["--node-rank=1", "--nnodes=3", "--standalone", "--rdzv-endpoint=a:1", "--sync-dir=/x"])
def test_flags_that_contradict_the_hosts_are_refused(flag: str) -> None:
    with pytest.raises(UsageError, match=flag.split("=")[0]):
        agent_commands(parsed("--hosts=a,b", flag, "t.py"), parse_hosts(["a", "b"]))


def test_options_of_ssh_are_checked() -> None:
    assert options_from(parsed("--ssh-option=Port=22", "--remote-dir=/d", "t.py"), {}).directory == "/d"
    for wrong in ("-v", "Port", "=x", "Port=1\nProxyCommand=x"):
        with pytest.raises(UsageError, match="--ssh-option"):
            options_from(parsed(f"--ssh-option={wrong}", "t.py"), {})


def test_what_is_said_of_ssh_is_said_in_both_languages() -> None:
    values = {"host": "h", "node": "1", "code": "2", "words": "w", "seconds": "3"}
    assert table("en", "ssh").keys() == table("zh", "ssh").keys()
    for key in table("en", "ssh"):
        assert ui(f"ssh.{key}", "en", **values) != ui(f"ssh.{key}", "zh", **values)


# A real sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    made = Sshd(tmp_path_factory.mktemp("sshd"))
    try:
        yield made
    finally:
        made.end()


# An agent in small: says who it is, writes its process number, ends when its standard input does.
AGENT = """
import asyncio, os, sys, pathlib
from allready.launch.ssh import until_stdin_ends
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
print("[rank 0] here", flush=True)
print("[rank 0] trouble", file=sys.stderr, flush=True)
why = asyncio.run(until_stdin_ends(on_signal=lambda name: print(f"[rank 0] {name}", flush=True)))
pathlib.Path(sys.argv[1] + ".why").write_text(why)
sys.exit(7)
"""


class Heard:
    def __init__(self) -> None:
        self.lines: list[tuple[int, str, str]] = []
        self.notes: list[Note] = []

    def line(self, node: int, stream: str, text: str) -> None:
        self.lines.append((node, stream, text))

    def keys(self) -> list[str]:
        return [note.key for note in self.notes]


async def run(
    sshd: Sshd,
    commands: list[list[str]],
    heard: Heard,
    *,
    options: SshOptions | None = None,
    targets: tuple[Target, ...] | None = None,
    signals: "asyncio.Queue[str] | None" = None,
) -> int:
    return await run_hosts(
        commands,
        targets or sshd.targets(len(commands)),
        options or sshd.options(),
        signals=signals,
        on_line=heard.line,
        on_note=heard.notes.append,
    )


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = Deadline(timeout_s)
    while not condition():
        assert not deadline.passed(), "it does not come"
        await asyncio.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@needs_sshd
async def test_output_of_all_nodes_comes_by_line_and_the_exit_code_is_the_jobs(sshd: Sshd) -> None:
    heard = Heard()
    code = (
        "import sys; print('out', *sys.argv[1:]); print('err', file=sys.stderr); "
        "sys.stdout.write('open end'); sys.exit(int(sys.argv[1]))"
    )
    assert await run(sshd, [python(code, "0", "a b", "$HOME;'"), python(code, "5")], heard) == 5
    assert {(n, s) for n, s, _ in heard.lines} == {(0, "stdout"), (0, "stderr"), (1, "stdout"), (1, "stderr")}
    assert [text for node, stream, text in heard.lines if (node, stream) == (0, "stdout")] == [
        "out 0 a b $HOME;'",
        "open end",
    ]
    assert heard.keys() == ["ssh.ended_early"]
    assert await run(sshd, [python(code, "0"), python(code, "0")], Heard()) == 0
    assert await run(sshd, [python(code, "255")], Heard()) == 255


@needs_sshd
async def test_very_long_and_binary_lines_pass(sshd: Sshd) -> None:
    heard = Heard()
    code = "import sys; sys.stdout.buffer.write(b'x' * 3_000_000 + b'\\n\\xff\\x00\\r\\n\\n' + b'last')"
    assert await run(sshd, [python(code)], heard) == 0
    texts = [text for _, _, text in heard.lines]
    assert sum(len(text) for text in texts[:-3]) == 3_000_000
    assert texts[-3:] == ["\ufffd\x00", "", "last"]


@asynccontextmanager
async def two_agents(
    sshd: Sshd, folder: Path, heard: Heard, signals: "asyncio.Queue[str] | None" = None
) -> AsyncIterator[tuple["asyncio.Task[int]", list[int]]]:
    files = [folder / f"agent{i}" for i in range(2)]
    commands = [python(AGENT, str(file)) for file in files]
    task = asyncio.ensure_future(run(sshd, commands, heard, signals=signals))
    try:
        await until(lambda: len([1 for _, _, text in heard.lines if text == "[rank 0] here"]) == 2, 20)
        yield task, [int(file.read_text()) for file in files]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@needs_sshd
async def test_ctrl_c_ends_the_agents_everywhere(sshd: Sshd, tmp_path: Path) -> None:
    async with two_agents(sshd, tmp_path, Heard()) as (task, pids):
        start = Stopwatch()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert start.s < 8
        assert not any(is_alive(pid) for pid in pids)
    assert [(tmp_path / f"agent{i}.why").read_text() for i in range(2)] == ["closed", "closed"]


@needs_sshd
async def test_a_schedulers_warning_reaches_the_agents_of_all_nodes(sshd: Sshd, tmp_path: Path) -> None:
    heard, signals = Heard(), asyncio.Queue[str]()
    async with two_agents(sshd, tmp_path, heard, signals) as (task, _pids):
        for name in ("SIGUSR1", "SIGUSR2"):
            signals.put_nowait(name)
            await until(lambda name=name: {n for n, _, text in heard.lines if text == f"[rank 0] {name}"} == {0, 1})  # type: ignore[misc]
        assert not task.done()


@needs_sshd
async def test_a_killed_connection_ends_its_agent_and_all_others(sshd: Sshd, tmp_path: Path) -> None:
    heard = Heard()
    async with two_agents(sshd, tmp_path, heard) as (task, pids):
        start = Stopwatch()
        os.kill(connection_of(pids[1]), signal.SIGKILL)
        await until(lambda: not is_alive(pids[1]), 5)
        assert await asyncio.wait_for(task, 10) == 3
        assert not is_alive(pids[0])
        assert start.s < 10
    assert heard.keys() == ["ssh.lost"]
    assert heard.notes[0].values["node"] == "1"


def connection_of(pid: int) -> int:
    """The sshd above a process."""
    while Path(f"/proc/{pid}/comm").read_text().strip() not in {"sshd", "sshd-session"}:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1
    return pid


@needs_sshd
async def test_a_killed_launcher_leaves_nothing_behind(sshd: Sshd, tmp_path: Path) -> None:
    options = sshd.options()
    code = f"""
import asyncio, sys
from allready.launch.ssh import run_hosts
from allready.launch.ssh_words import SshOptions, Target
options = SshOptions(options={options.options!r}, directory={options.directory!r})
targets = [Target(host="127.0.0.1", port={sshd.port}), Target(host="127.0.0.2", port={sshd.port})]
commands = [[sys.executable, "-c", {AGENT!r}, {str(tmp_path)!r} + f"/agent{{i}}"] for i in range(2)]
asyncio.run(run_hosts(commands, targets, options, on_line=print))
"""
    launcher = subprocess.Popen(  # noqa: ASYNC220 - starting takes no time
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        files = [tmp_path / f"agent{i}" for i in range(2)]
        await until(lambda: all(f.exists() and f.read_text() for f in files), 20)
        pids = [int(file.read_text()) for file in files]
    finally:
        launcher.kill()
        launcher.wait(timeout=10)
    await until(lambda: not any(is_alive(pid) for pid in pids), 5)


@needs_sshd
async def test_when_one_node_fails_the_others_have_time_and_are_then_ended(sshd: Sshd, tmp_path: Path) -> None:
    heard = Heard()
    commands = [python(AGENT, str(tmp_path / "a")), python("import sys; sys.exit(4)")]
    start = Stopwatch()
    assert await run(sshd, commands, heard, options=sshd.options(settle_s=1.5)) == 7  # node 0's own
    assert start.wall_s > 1.4
    assert start.s < 9
    assert (tmp_path / "a.why").read_text() == "closed"
    assert heard.notes[0].values == {"host": f"127.0.0.2:{sshd.port}", "node": "1", "code": "4"}


@needs_sshd
async def test_an_agent_that_does_not_end_is_left_after_the_deadline(sshd: Sshd) -> None:
    stubborn = python("import time; time.sleep(20)")
    start = Stopwatch()
    code = await run(
        sshd, [stubborn, python("import sys; sys.exit(4)")], Heard(), options=sshd.options(settle_s=0.5, end_s=0.5)
    )
    assert code == 4
    assert start.s < 10


@needs_sshd
@pytest.mark.parametrize(
    ("words", "change", "key"),
    [
        (["/no/such/python", "-c", "1"], {}, "ssh.no_python"),
        ([sys.executable, "-c", "1"], {"directory": "/no/such/dir"}, "ssh.no_directory"),
        ([sys.executable, "-c", "1"], {"extra": ("UserKnownHostsFile=/dev/null",)}, "ssh.key_unknown"),
        ([sys.executable, "-c", "1"], {"extra": ("IdentityFile=/dev/null", "User=nobody")}, "ssh.denied"),
        ([sys.executable, "-c", "1"], {"extra": ("NoSuchThing=1",)}, "ssh.bad_option"),
    ],
)
async def test_why_a_host_cannot_be_used_is_one_sentence(
    sshd: Sshd, words: list[str], change: dict[str, object], key: str
) -> None:
    heard = Heard()
    assert await run(sshd, [words], heard, options=sshd.options(**change)) == 3
    assert heard.keys() == [key]
    assert ui(heard.notes[0].key, "en", **heard.notes[0].values).startswith("127.0.0.1:")


@needs_sshd
async def test_a_changed_host_key_is_told_from_an_unknown_one(sshd: Sshd, tmp_path: Path) -> None:
    new_key(tmp_path / "k")
    (tmp_path / "known").write_text(f"[127.0.0.1]:{sshd.port} {(tmp_path / 'k.pub').read_text()}")
    heard = Heard()
    options = sshd.options(extra=(f"UserKnownHostsFile={tmp_path}/known",))
    assert await run(sshd, [python("1")], heard, options=options) == 3
    assert heard.keys() == ["ssh.key_changed"]


@needs_sshd
async def test_one_host_that_refuses_ends_the_others_at_once(sshd: Sshd, tmp_path: Path) -> None:
    heard = Heard()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        targets = (sshd.targets(1)[0], Target(host="127.0.0.1", port=free.getsockname()[1]))
        start = Stopwatch()
        commands = [python(AGENT, str(tmp_path / "a")), python("1")]
        assert await run(sshd, commands, heard, targets=targets) == 3
    assert start.s < 8
    assert heard.keys() == ["ssh.refused"]


@needs_sshd
@pytest.mark.parametrize("answers", [True, False])
async def test_a_port_that_is_silent_or_no_sshd_has_a_deadline(sshd: Sshd, answers: bool) -> None:
    heard = Heard()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        async def answer() -> None:
            loop = asyncio.get_running_loop()
            listener.setblocking(False)
            sock, _ = await loop.sock_accept(listener)
            with sock:
                await asyncio.sleep(0 if answers else 20)

        task = asyncio.ensure_future(answer())
        target = Target(host="127.0.0.1", port=listener.getsockname()[1])
        start = Stopwatch()
        code = await run(sshd, [python("1")], heard, targets=(target,), options=sshd.options(start_s=1.5, connect_s=30))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert code == 3
    assert start.s < 8
    assert heard.keys() == ["ssh.closed" if answers else "ssh.no_shell"]


# The agent's end


@pytest.mark.jobs
async def test_an_agent_hears_that_its_input_closed_or_fell_silent() -> None:
    for last, expected in ((b"", "closed"), (b"\n", "silent")):
        reading, writing = os.pipe()
        task = asyncio.ensure_future(until_stdin_ends(reading, silence_s=0.3))
        try:
            await asyncio.sleep(0.5)  # silence before the first sign of life is no silence: no rank promised any
            assert not task.done()
            if last:
                os.write(writing, last)
            else:
                os.close(writing)
            assert await asyncio.wait_for(task, 5) == expected
        finally:
            os.close(reading)
            if last:
                os.close(writing)


async def test_an_agent_hears_signals_that_come_in_pieces_and_no_other_words() -> None:
    reading, writing = os.pipe()
    heard: list[str] = []
    task = asyncio.ensure_future(until_stdin_ends(reading, on_signal=heard.append))
    try:
        for piece in (b"\nSIG", b"USR1\n\n", b"SIGKILL\nSIGUSR2 \n" + b"x" * 100_000, b"SIGUSR1\n", b"SIGUSR2\n"):
            os.write(writing, piece[:60_000])
            await asyncio.sleep(0.1)
        await until(lambda: heard == ["SIGUSR1", "SIGUSR2"])
    finally:
        os.close(writing)
        assert await asyncio.wait_for(task, 5) == "closed"
        os.close(reading)


async def test_an_input_that_nobody_can_close_is_closed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (tmp_path / "file").open() as file:
        assert await asyncio.wait_for(until_stdin_ends(file.fileno()), 5) == "closed"


def test_the_quoting_agrees_with_the_shells_own() -> None:
    assert shlex.split(remote_command(["a b", "'"], SshOptions(directory="/x"), "t"))[:3] == ["exec", "sh", "-c"]


# What an agent prints, in small: it may report that its ranks were started, and ends with a code.
BRIEF = """
import os, sys, time
from allready.launch.ssh import announce_begin
if sys.argv[1] == "begun":
    announce_begin()
assert "ALLREADY_SSH_MARK" not in os.environ or sys.argv[1] == "unbegun"
print("nothing to run here", file=sys.stderr, flush=True)
time.sleep(0.2)
sys.exit(4)
"""


@needs_sshd
async def test_a_node_that_ends_before_the_nodes_met_ends_the_wait_of_the_others(sshd: Sshd, tmp_path: Path) -> None:
    heard, watch = Heard(), Stopwatch()
    commands = [python(AGENT, str(tmp_path / "agent")), python(BRIEF, "unbegun")]
    code = await run(sshd, commands, heard, options=sshd.options(settle_s=300.0, settle_unbegun_s=0.5))
    assert watch.s < 60
    assert code == 4 or code == 7  # the node's, or that of node 0 that was asked to end
    assert [(note.key, note.values["words"]) for note in heard.notes] == [("ssh.ended_early", "nothing to run here")]
    assert (tmp_path / "agent.why").read_text() == "closed"


@needs_sshd
async def test_a_node_that_fails_later_leaves_the_others_the_time_to_say_why(sshd: Sshd, tmp_path: Path) -> None:
    heard = Heard()
    slow = "import sys, time; time.sleep(3); print('the verdict'); sys.exit(1)"
    options = sshd.options(settle_s=60.0, settle_unbegun_s=0.1)
    assert await run(sshd, [python(slow), python(BRIEF, "begun")], heard, options=options) == 1
    assert heard.keys() == ["ssh.ended"]
    assert (0, "stdout", "the verdict") in heard.lines


@needs_sshd
async def test_a_node_without_allready_is_named_with_the_way_to_install_it(sshd: Sshd, tmp_path: Path) -> None:
    without = [sys.executable, "-S", "-E", "-m", "allready", "run"]  # no site-packages
    heard = Heard()
    assert await run(sshd, [python(AGENT, str(tmp_path / "agent")), without], heard) == 3
    assert heard.keys() == ["ssh.no_allready"]
    assert heard.notes[0].values["node"] == "1"
    both = Heard()
    assert await run(sshd, [without, without], both) == 3
    assert both.keys() == ["ssh.no_allready"]
