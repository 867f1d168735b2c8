"""`allready diagnose --explain-line`."""

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allready.cli import diagnose_explain
from allready.cli.main import main
from allready.signatures import load
from tests.cases import cases

WATCHDOG = (
    "[rank1]:[E1120 11:51:03.412903116 ProcessGroupNCCL.cpp:690] [Rank 1] Watchdog caught collective operation "
    "timeout: "
    "WorkNCCL(SeqNum=56731, OpType=ALLREDUCE, NumelIn=467019003, NumelOut=467019003, Timeout(ms)=600000) "
    "ran for 600053 milliseconds before timing out."
)
NO_INTERFACE = "gpu01:7:9 [0] bootstrap.cc:124 NCCL WARN Bootstrap : no socket interface found"


def explained(line: str, capsys: pytest.CaptureFixture[str], *extra: str) -> tuple[int, str]:
    code = main(["diagnose", "--explain-line", line, "--lang", "en", *extra])
    return code, capsys.readouterr().out


def as_json(line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    _, out = explained(line, capsys, "--json", "-")
    entry: dict[str, Any] = json.loads(out)["lines"][0]
    return entry


def test_a_line_gets_its_meaning_cause_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = explained(NO_INTERFACE, capsys)
    assert code == 0
    assert "NCCL_SOCKET_IFNAME" in out
    assert "role: may be the first cause" in out
    assert "what to do: " in out
    assert "written by: host gpu01, pid 7" in out


def test_prefixes_of_launchers_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    plain = as_json(NO_INTERFACE, capsys)["meanings"]
    for prefix in ("0: ", "[default0]:", "[1,0]<stdout>:", "2026-11-20T11:50:59.123456789Z ", "   "):
        assert as_json(prefix + NO_INTERFACE, capsys)["meanings"][0]["signature"] == plain[0]["signature"], prefix


def test_the_watchdogs_line_gets_its_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = explained(WATCHDOG, capsys)
    assert code == 0
    assert "467,019,003 elements are 891 MiB (2 bytes each) to 1.74 GiB (4 bytes each)" in out
    assert "1.87 s at 1 GB/s and 6.23 ms at 300 GB/s" in out
    assert "cannot take 10 min 0 s: a rank never entered" in out
    assert "a timeout of 600 s is the default of torch for NCCL collectives" in out
    assert "began waiting at" in out
    sums = as_json(WATCHDOG, capsys)["arithmetic"]
    assert sums["seq"] == 56731
    assert sums["cannot_be_transfer"] is True
    assert "T11:41:03.3" in sums["onset"]


@cases(
    ("record", "expected"),
    [
        ("WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800123 milliseconds", {"timeout_s": 1800.0}),
        ("WorkNCCL(SeqNum=4, OpType=_ALLGATHER_BASE, NumelIn=4, NumelOut=32, Timeout(ms)=12000) ran for 12040 ms",
         {"elements": 32, "timeout_is": None, "operation": "allgather_base"}),
        ("WorkNCCL(SeqNum=4, OpType=BROADCAST, TensorShape=[16, 8], Timeout(ms)=7000)", {"elements": 128}),
        ("WorkNCCL(SeqNum=9, OpType=BARRIER, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds",
         {"size_bytes": [2, 4], "cannot_be_transfer": True}),
        ("nothing of the kind", {}),
    ],
)  # fmt: skip
def test_every_form_of_the_record_is_read(record: str, expected: dict[str, Any]) -> None:
    found = diagnose_explain.arithmetic_of(record, None)
    assert {key: found.get(key) for key in expected} == expected
    assert bool(found) == bool(expected)


def test_a_line_that_nobody_knows_is_said_to_be_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = explained("epoch 3 loss 0.25", capsys)
    assert code == 3
    assert "no signature matches this line" in out


def test_chinese_is_spoken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--explain-line", WATCHDOG, "--lang", "zh"]) == 0
    out = capsys.readouterr().out
    assert "算一算：" in out
    assert "torch 对 NCCL 集合通信的默认值" in out
    assert main(["diagnose", "--explain-line", "x", "--lang", "zh"]) == 3
    assert "没有任何特征认识这一行" in capsys.readouterr().out


def test_lines_may_come_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{NO_INTERFACE}\r\n\n{WATCHDOG}\n".encode())))
    code, out = explained("-", capsys)
    assert code == 0
    assert out.count("line: ") == 2
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"step 3\nwhat is this\n")))
    assert explained("-", capsys)[0] == 3
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert explained("-", capsys)[0] == 3


def test_control_characters_of_a_line_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = explained("\x1b[2J\x1b]0;owned\x07" + NO_INTERFACE + "[red]x[/red]", capsys)
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[red]" in out


def test_files_and_a_line_are_two_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--explain-line", "x", "file"]) == 2
    assert "one or the other" in capsys.readouterr().err


@pytest.mark.thorough
def test_every_example_of_the_tables_is_known() -> None:
    wrong = []
    for signature in load().values():
        for line in signature.lines:
            entry = diagnose_explain.meaning_of(line.example)
            if signature.id not in [m["signature"] for m in entry["meanings"]]:
                wrong.append((signature.id, line.example[:100]))
            list(diagnose_explain.rows(entry, "zh"))
    assert not wrong


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.text(max_size=300),
        st.sampled_from([WATCHDOG, NO_INTERFACE]).flatmap(
            lambda line: st.tuples(st.integers(0, len(line)), st.text(max_size=20)).map(
                lambda t: line[: t[0]] + t[1] + line[t[0] :]
            )
        ),
    )
)
def test_any_text_has_an_answer(line: str) -> None:
    entry = diagnose_explain.meaning_of(line)
    for language in ("en", "zh"):
        assert list(diagnose_explain.rows(entry, language))
    json.dumps(diagnose_explain.as_json(entry))


def test_says_that_there_was_nothing_to_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--explain-line", "  "]) == 3
    assert "no text" in capsys.readouterr().err


TRACEBACK = """Traceback (most recent call last):
  File "/a/t.py", line 3, in <module>
    go()
ImportError: libfoo.so.12: cannot open shared object file: No such file or directory"""
THROWN = """terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG 0 Rank 1] Process group watchdog thread terminated with exception: NCCL error: remote process exited
frame #0: c10::Error::Error(c10::SourceLocation, std::string)"""
DRIVER = """[   99.100000] NVRM: The report of a device follows
[   99.100000] NVRM: Xid (PCI:0000:1a:00): 79, pid=1234, name=python, GPU has fallen off the bus.
[   99.100000] NVRM: GPU 0000:1a:00.0: GPU has fallen off the bus.
[   99.200000] NVRM: A dump was made; collect it before
[   99.200000] NVRM: the module is unloaded."""
BROKEN_IN_TWO = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=4, ",
    "NumelOut=4, Timeout(ms)=600000) ran for 600023 milliseconds before timing out.",
)


@pytest.mark.parametrize(
    ("text", "code"),
    [(TRACEBACK, "PYL010"), (THROWN, "TCH001"), ("\n".join(BROKEN_IN_TWO), "TCH002"), (DRIVER, "KRN001")],
)
def test_lines_of_one_message_are_explained_as_one(text: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--explain-line", text, "--json", "-"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["lines"]
    assert entry["line"] == text
    assert entry["meanings"][0]["code"] == code


def test_lines_of_several_messages_stay_apart(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", "--explain-line", f"a word\n{TRACEBACK}\nanother word\n{THROWN}", "--json", "-"])
    lines = [entry["line"] for entry in json.loads(capsys.readouterr().out)["lines"]]
    assert lines == ["a word", TRACEBACK, "another word", THROWN]


def test_reports_on_two_devices_stay_apart(capsys: pytest.CaptureFixture[str]) -> None:
    other = DRIVER.replace("0000:1a:00", "0000:3b:00")
    main(["diagnose", "--explain-line", f"{DRIVER}\na word\n{other}", "--json", "-"])
    entries = json.loads(capsys.readouterr().out)["lines"]
    assert [entry["line"] for entry in entries] == [DRIVER, "a word", other]
    assert [entry["meanings"][0]["values"]["pci"] for entry in (entries[0], entries[2])] == ["0000:1a:00", "0000:3b:00"]
    lines = DRIVER.splitlines()[1], other.splitlines()[1]
    main(["diagnose", "--explain-line", "\n".join(lines), "--json", "-"])
    assert [entry["line"] for entry in json.loads(capsys.readouterr().out)["lines"]] == [*lines]


TABLE = """train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_13:24:04
  host      : gpu07
  rank      : 6 (local_rank: 6)
  exitcode  : -9 (pid: 2680830)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 2680830
============================================================"""
CHAINED = """Traceback (most recent call last):
  File "/opt/train/data.py", line 88, in __getitem__
    x = self.index[i]
KeyError: 4711

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/train/main.py", line 31, in <module>
    main()
RuntimeError: sample 4711 could not be read"""
STATUS = """jaxlib.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0
# of tasks that reached the barrier: 3/4.
The first task at the barrier: /job:jax_worker/replica:0/task:0. Some timed out task names:
/job:jax_worker/replica:0/task:2
RPC: /tensorflow.CoordinationService/Barrier"""
DEEPSPEED = """[2026-01-20 10:31:29,210] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 3353707
[2026-01-20 10:31:29,269] [ERROR] [launch.py:321:sigkill_handler] ['a.py'] exits with return code = -9"""


TRACE = ("Traceback (most recent call last):", '  File "train.py", line 9, in <module>', "ValueError: bad sample")
BEHIND_PODS = "\n".join(f"2026-01-20 10:31:29 pod/train-worker-0 | {line}" for line in TRACE)
NEWEST_FIRST = "\n".join(
    f"2026-01-20 10:31:{9 - n:02d} {line}" for n, line in enumerate((*TRACE[::-1], "start", "begin"), start=1)
)


QUOTED = (
    "\n".join(("On Thu, Nov 20, 2025 Ann wrote:", "> Hello", ">", *(f"> {line}" for line in TRACE), "", "any idea?")),
    "\r\n".join(f">> {line}" for line in TRACE),
    "\n".join(("> ```", *(f"> {line}" for line in TRACE), "> ```")),
    "\n".join(("It fails:", "", "~~~python", *TRACE, "~~~")),
    "\n".join(f"    {line}" for line in TRACE),
)
"""In a mail, in a comment, as code in Markdown."""


@cases(
    ("pasted", "code", "said"),
    [
        (TABLE, "DTH002", "rank 6 (gpu07, pid 2680830) was terminated by SIGKILL"),
        (CHAINED, "DTH001", "KeyError: 4711 at /opt/train/data.py:88"),
        (DEEPSPEED, "DTH002", "SIGKILL"),
        (BEHIND_PODS, "DTH001", "ValueError: bad sample at train.py:9"),
        (
            "MisconfigurationException:\n  The closure hasn't been executed.",
            "DTH001",
            "The closure hasn't been executed",
        ),
        (NEWEST_FIRST, "DTH001", "ValueError: bad sample at train.py:9"),
        (f"ordinary words\n{NO_INTERFACE}", "NLG001", "NCCL_SOCKET_IFNAME"),
        *((text, "DTH001", "ValueError: bad sample at train.py:9") for text in QUOTED),
    ],
)
def test_several_lines_are_explained_together(
    pasted: str, code: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code, out = explained(pasted, capsys)
    assert exit_code == 0
    assert out.startswith(f"all lines together: {code}  ")
    assert said in out.partition("\n\n")[0]
    explained(pasted, capsys, "--json", "-")
    main(["diagnose", "--explain-line", pasted, "--json", "-"])
    together = json.loads(capsys.readouterr().out)["together"]
    assert together["code"] == code
    assert said in together["message"]


def test_marks_of_a_traceback_are_no_quotation(capsys: pytest.CaptureFixture[str]) -> None:
    """Loguru marks one frame with `>`; of a traceback whose first line is cut, all lines are indented."""
    loguru = 'Traceback (most recent call last):\n\n> File "a.py", line 4, in <module>\n    main()\n'
    cut = "\n".join(f"    {line.lstrip()}" for line in TRACE[1:2]) + "\n    main()"
    for text in (loguru, cut, "  one line"):
        main(["diagnose", "--explain-line", text, "--json", "-"])
        lines = [entry["line"] for entry in json.loads(capsys.readouterr().out)["lines"]]
        assert "\n".join(lines).strip() == text.strip()


def test_names_that_stand_in_the_lines_below_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", "--explain-line", STATUS, "--json", "-"])
    together = json.loads(capsys.readouterr().out)["together"]
    assert together["culprits"]["ranks"] == [2]


def test_a_stack_is_told_by_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    frames = (
        "#0  0x00007f2a in pthread_cond_timedwait () from /lib64/libc.so.6",
        "#1  0x00007f19 in c10d::TCPStore::doWait(c10::ArrayRef<std::string>) () from libtorch_cpu.so",
        "#2  0x00007f19 in c10d::PrefixStore::get(std::string const&) () from libtorch_cpu.so",
    )
    assert main(["diagnose", "--explain-line", "\n".join(frames)]) == 0
    assert "a stack: inside a collective (libtorch_cpu.so c10d::TCPStore::doWait" in capsys.readouterr().out


def test_lines_without_a_fault_have_no_meaning_together(capsys: pytest.CaptureFixture[str]) -> None:
    for pasted in (f"{NO_INTERFACE}\n", "step 3\nstep 4", "\n\n"):
        main(["diagnose", "--explain-line", pasted, "--json", "-"])
        assert "together" not in json.loads(capsys.readouterr().out)


def test_the_source_file_in_front_of_a_warning_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    line = "gpu01:34:37 [0] transport/nvls.cc:598 (nvlsAllocateMem) NCCL WARN Cuda failure 1 'invalid argument'"
    assert as_json(line, capsys)["meanings"][0]["signature"] == "nccl.nvls_refused"
