"""Why a rank ended, from what real programs print and from made-up lines."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from msgspec.structs import replace

from allready.judging.end_causes import explained
from allready.model import EndCause as End
from allready.model import EndKind, ProcessEnd
from allready.model.process import end_of
from allready.signatures import load
from tests.cases import cases
from tests.launch.processes import python

TRACEBACK = """\
step 11
Traceback (most recent call last):
  File "/home/me/train.py", line 31, in <module>
    main()
  File "/home/me/train.py", line 22, in main
    {statement}
{error}
"""
WARNING = (
    "[W1120 11:52:01.123 socket.cpp:752] [c10d] The client socket has failed to connect to [localhost]:29500 "
    "(errno: 111 - Connection refused).\n"
)
ROUTE = (
    "gpu01:77:91 [0] misc/socket.cc:501 NCCL WARN socketStartConnect: Connect to 10.0.0.2<41234> failed : "
    "No route to host\n"
)


def traceback(error: str, statement: str = "step()") -> str:
    return TRACEBACK.format(statement=statement, error=error)


def ended(code: int | None = 1, *, signal: str | None = None, oom: bool = False) -> ProcessEnd:
    return end_of(None if signal else code, signal, rank=0, time_s=0.0, oom_killed=oom)


def kind(end: ProcessEnd, tail: str = "", **more: object) -> End:
    return explained(end, tail.encode(), **more).cause  # type: ignore[arg-type]


GLOO = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection"
STORE = "torch.distributed.Dist"
ERRORS = {
    "ValueError: bad sample in shard 17": End.USER_EXCEPTION,
    "KeyError: 'loss'": End.USER_EXCEPTION,
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='data'): Max retries": End.USER_EXCEPTION,
    "ModuleNotFoundError: No module named 'apex'": End.IMPORT_ERROR,
    "ImportError: cannot import name 'x' from 'y' (/home/me/y.py)": End.IMPORT_ERROR,
    "MemoryError": End.OUT_OF_MEMORY,
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has": End.OUT_OF_MEMORY,
    "OSError: [Errno 28] No space left on device": End.ENVIRONMENT,
    f"{GLOO} closed by peer [10.0.0.2]:1234": End.NETWORK,
    f"{GLOO} reset by peer": End.NETWORK,
    f"{STORE}NetworkError: The client socket has timed out after 60000ms while trying to connect to "
    "(10.0.0.1, 29500).": End.NETWORK,
    f"{STORE}StoreError: wait timeout after 300000ms, keys: /default_pg/0//cpu//0/1/store_based_barrier": End.NETWORK,
    f"{STORE}NetworkError: The server socket has failed to listen on any local network address. port: 29500, "
    "useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use": End.PORT_IN_USE,
    "OSError: [Errno 98] Address already in use": End.PORT_IN_USE,
    "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 80): address already in use": (
        End.PORT_IN_USE
    ),
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=5, OpType=ALLREDUCE), but Rank 1 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=5, OpType=BROADCAST)": End.USER_EXCEPTION,
}


@cases(("error", "expected"), ERRORS.items())
def test_exceptions_are_told_apart(error: str, expected: End) -> None:
    assert kind(ended(), traceback(error)) is expected


def test_signals_are_told_apart() -> None:
    assert kind(ended(signal="SIGKILL"), "step 1\n") is End.KILLED
    assert kind(ended(signal="SIGTERM")) is End.KILLED
    assert kind(ended(signal="SIGSEGV")) is End.CRASHED
    assert kind(ended(signal="signal 37")) is End.CRASHED
    assert kind(ended(signal="SIGKILL", oom=True)) is End.OUT_OF_MEMORY
    assert kind(ended(signal="SIGINT"), traceback("KeyboardInterrupt")) is End.KILLED


def test_an_abort_of_torchs_watchdog_is_no_crash() -> None:
    tail = (
        "[rank0]:[E1120 11:52:01.123 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=10000) ran for 10002 milliseconds "
        "before timing out.\nterminate called after throwing an instance of 'c10::DistBackendError'\n"
    )
    found = explained(ended(signal="SIGABRT"), tail.encode())
    assert found.cause is End.NETWORK
    assert "Watchdog caught" in found.text


@pytest.mark.thorough
def test_every_line_that_is_known_can_be_the_last_of_a_rank() -> None:
    """Records have no layer; NCCL's lines of error codes are such, and stand last in the log of a rank that it ends."""
    assert kind(ended(signal="SIGABRT"), "gpu01:77:91 [0] NCCL INFO transport.cc:197 -> 6\n") is End.NETWORK
    for signature in load().values():
        for line in signature.lines:
            assert kind(ended(), f"{line.example}\n") is not End.SUCCESS, line.example


def test_an_exception_is_not_excused_by_what_was_logged_long_before() -> None:
    assert kind(ended(), WARNING + ROUTE + traceback("KeyError: 'loss'")) is End.USER_EXCEPTION


def test_codes_without_words_are_the_programs_own() -> None:
    assert kind(ended(3), "bye\n") is End.EXIT_CODE
    assert kind(ended(1), "Error: no such configuration\n") is End.EXIT_CODE
    assert kind(ended(2), "bye\n") is End.EXIT_CODE
    assert kind(ended(0)) is End.SUCCESS
    assert kind(ProcessEnd(rank=0)) is End.UNKNOWN


def test_a_rank_that_we_ended_says_nothing_unless_it_ended_well() -> None:
    assert kind(ended(1), traceback("ValueError: x"), by_us=True) is End.STOPPED
    assert kind(ended(signal="SIGKILL"), by_us=True) is End.STOPPED
    assert kind(ended(0), by_us=True) is End.SUCCESS


def test_torchs_error_file_stands_in_for_a_traceback() -> None:
    error = '{"message": {"message": "ValueError: shard 17", "extraInfo": {"timestamp": "1"}}}'
    found = explained(ended(), b"", error=error)
    assert (found.cause, found.text) == (End.USER_EXCEPTION, "ValueError: shard 17")
    lost = error.replace("ValueError: shard 17", "torch.distributed.DistNetworkError: failed to recv, got 0 bytes")
    assert kind(ended(), "", error=lost) is End.NETWORK
    for broken in ("", "{", "[]", '{"message": 3}', "null"):
        assert kind(ended(), "", error=broken) in (End.EXIT_CODE, End.USER_EXCEPTION)


def test_any_bytes_are_read() -> None:
    assert kind(ended(), "\0\udcff".encode("utf-8", "replace").decode() * 90_000) is End.EXIT_CODE


PROGRAMS = {
    "raise ValueError('x')": End.USER_EXCEPTION,
    "import no_such_module_anywhere": End.IMPORT_ERROR,
    "x = bytearray(1 << 62)": End.OUT_OF_MEMORY,
    "import sys; sys.exit('no data')": End.EXIT_CODE,
    "def f(:": End.USER_EXCEPTION,
    "import argparse; p = argparse.ArgumentParser(); p.add_argument('--x', required=True); p.parse_args()": End.USAGE,
    "import socket as s\na = s.socket(); a.bind(('', 0)); s.socket().bind(a.getsockname())": End.PORT_IN_USE,
}


@cases("code", PROGRAMS)
def test_real_programs_are_understood(code: str, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(textwrap.dedent(code))
    done = subprocess.run([sys.executable, str(tmp_path / "p.py")], capture_output=True, timeout=60)
    assert kind(ended(done.returncode), done.stderr.decode()) is PROGRAMS[code]


@pytest.mark.parametrize("arguments", [("no/such/file.py",), ("-m", "no_such_module_anywhere")])
def test_a_script_that_is_not_there_is_not_tried_again(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, timeout=60)
    assert kind(ended(done.returncode), done.stderr.decode()) in (End.USAGE, End.IMPORT_ERROR)
    assert python("")[0] == sys.executable


def test_a_program_that_could_not_be_run_was_called_wrongly() -> None:
    assert kind(replace(ended(127), kind=EndKind.NOT_RUN)) is End.USAGE
    assert kind(ended(127)) is End.EXIT_CODE
