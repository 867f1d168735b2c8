"""What a file is, by its first bytes alone."""

import gzip
import io
import json
import os
import pickle
import struct
import zipfile

from hypothesis import given, settings
from hypothesis import strategies as st

from allready.evidence.sniff import is_output, kind_of
from tests.cases import cases

INFO = b"gpu01:7:7 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n"
DUMP = {
    "version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 3}}, "entries": [],
}  # fmt: skip
RAS_JSON = {"nccl_version": "2.28.9", "cuda_runtime_version": 13000, "communicators_count": 0, "communicators": []}
RAS_TEXT = b"""NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========
"""
PY_SPY = b"""Process 1191: python3 -u train.py
Python v3.12.3 (/usr/bin/python3.12)

Thread 1191 (active): "MainThread"
    synchronize (torch/cuda/__init__.py:1162)
    <module> (train.py:20)
"""
FAULTHANDLER = b"""Thread 0x00007f0000000740 (most recent call first):
  File "/opt/train.py", line 20 in step
  File "/opt/train.py", line 40 in <module>
"""
TABLE = b"""# nThread 1 nGpus 8 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   2001 on      gpu01 device  0 [0x07] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong
"""
INSPECTOR = {
    "header": {"id": "0x9e7a479f95a66c", "rank": 1, "n_ranks": 4, "nnodes": 2},
    "metadata": {"inspector_output_format_version": "v4.0", "dump_timestamp_us": 1, "hostname": "a", "pid": 7},
    "coll_perf": {"coll": "AllReduce", "coll_sn": 7, "coll_msg_size_bytes": 8, "coll_exec_time_us": 61,
                  "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.5},
}  # fmt: skip
ERROR_JSON = {
    "message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1"}}
}


def npy() -> bytes:
    return b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }" + b" " * 60 + b"\n"


def checkpoint() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({"step": 1}, 2))
        file.writestr("archive/data/0", bytes(400))
    return out.getvalue()


def safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return struct.pack("<Q", len(header)) + header + struct.pack("<4f", 1, 2, 3, 4)


PROGRAM = b'''# Training of the small model.
"""Run with torchrun."""

import os
from torch import nn

def train(step):
    raise RuntimeError("CUDA out of memory. Tried to allocate 12.00 GiB.")
'''
KINDS: list[tuple[str, bytes, str]] = [
    ("nothing", b"", "empty"),
    ("blank lines", b"\n\n  \r\n", "empty"),
    ("an NCCL log", INFO * 20, "log"),
    ("torchrun's words", b"W0813 22:22:54.570086 1 torch/distributed/run.py:779] setting OMP_NUM_THREADS\n", "log"),
    ("one line without an end", b"x" * 65_536, "log"),
    ("Chinese", "训练开始：第 1 步\n".encode() * 50, "log"),
    ("Chinese in GBK", "训练开始：第 1 步\n".encode("gbk") * 50, "log"),
    ("bytes that are no UTF-8", b"loss \xff\xfe\xe9 1.5\n" * 50, "log"),
    ("colours and progress bars", b"\x1b[32m 10%\x1b[0m|###   |\r\x1b[32m 20%\x1b[0m|####  |\r" * 40, "log"),
    ("Windows line ends", INFO.replace(b"\n", b"\r\n") * 9, "log"),
    ("a log with a hole in front", bytes(30_000) + INFO * 20, "log"),
    ("a log with zeros in between", (INFO + bytes(200)) * 20, "log"),
    ("a dump as pickle", pickle.dumps(DUMP, 2), "flight recorder"),
    ("a dump as JSON", json.dumps(DUMP).encode(), "flight recorder"),
    ("a dump as pretty JSON", json.dumps(DUMP, indent=2).encode(), "flight recorder"),
    ("RAS as JSON", json.dumps(RAS_JSON, indent=2).encode(), "ras"),
    ("RAS as text", RAS_TEXT, "ras"),
    ("py-spy", PY_SPY, "stacks"),
    ("faulthandler", FAULTHANDLER, "stacks"),
    ("nccl-tests", TABLE, "nccl-tests"),
    ("Inspector", json.dumps(INSPECTOR).encode() + b"\n", "inspector"),
    ("torchelastic's error file", json.dumps(ERROR_JSON).encode(), "elastic error"),
    ("our own report", b'{"schema": "allready.report/1", "tool_version": "0.1"}', "report"),
    ("our own page", b"<!DOCTYPE html><html><body>NCCL WARN</body></html>", "page"),
    ("a script", b"#!/bin/bash\nexport NCCL_DEBUG=INFO\n", "script"),
    ("a program of Python", PROGRAM, "script"),
    ("a long one", PROGRAM + b"\n\n" + b"x = 1\n" * 20_000, "script"),
    ("a long one that begins with a long text", PROGRAM + b'TEXT = """\n' + b"import this\n" * 9_000, "script"),
    ("a program and what it printed", PROGRAM + b'Traceback (most recent call last):\n  File "a.py", line 1\n', "log"),
    ("words like a program's", b"import error in step 3\nfrom worker 1: import failed\n" * 9, "log"),
    ("depth", b"import os\n" + b"-" * 50_000 + b"1\n", "log"),
    ("many texts", b"'''a'''\n" * 8_000, "log"),
    ("a log of JSON lines", b'{"log":"loss 1.5\\n","stream":"stderr","time":"2026-11-20T11:50:59Z"}\n' * 9, "log"),
    ("a configuration", b'{"train_batch_size": 8, "zero_optimization": {"stage": 3}}', "log"),
    ("a torchrun output with a stack in it", b"[rank0]:[W1120 reducer.cpp:1] slow\n" + PY_SPY, "log"),
    ("an NCCL log with a table in it", INFO * 5 + TABLE, "log"),
    ("an NCCL log that shows RAS", INFO + RAS_TEXT, "log"),
    ("a pickle of something else", pickle.dumps({"model": [1.0] * 50}, 2), "binary"),
    ("an old checkpoint", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "binary"),
    ("a checkpoint", checkpoint(), "binary"),
    ("tensors", safetensors(), "binary"),
    ("an array", npy(), "binary"),
    ("a program", b"\x7fELF\x02\x01\x01" + bytes(60), "binary"),
    ("a picture", b"\x89PNG\r\n\x1a\n" + bytes(60), "binary"),
    ("zeros", bytes(65_536), "binary"),
    ("numbers", struct.pack("<2000f", *(i * 0.37 for i in range(2000))), "binary"),
    ("noise", os.urandom(65_536), "binary"),
    ("compressed data", gzip.compress(os.urandom(20_000)), "binary"),
    ("a core dump", (b"\x7fELF" + bytes(4000) + b"libc.so.6" + bytes(300)) * 4, "binary"),
    ("UTF-16", b"\xff\xfe" + "NCCL WARN\n".encode("utf-16-le"), "binary"),
]


@cases(("head", "kind"), [row[1:] for row in KINDS], ids=[row[0] for row in KINDS])
def test_the_kind_comes_from_the_content(head: bytes, kind: str) -> None:
    for name in ("nccl.log", "fr_0", "ras.json", "model.pt", ""):
        assert kind_of(head[:65_536], name=name) == kind


@cases("kind", ["log", "stacks", "ras", "nccl-tests", "flight recorder"])
def test_a_mark_of_the_byte_order_in_front_changes_nothing(kind: str) -> None:
    for _, head, its in KINDS:
        if its == kind and head[:1] != b"\x80" and head[:1] != b"\0":
            assert kind_of(b"\xef\xbb\xbf" + head[:60_000]) == kind


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=600),
        st.sampled_from([row[1][:2000] for row in KINDS]).flatmap(
            lambda head: st.tuples(st.just(head), st.integers(0, 2000), st.binary(max_size=8)).map(
                lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + len(t[2]) :]
            )
        ),
    )
)
def test_any_bytes_have_a_kind(head: bytes) -> None:
    assert kind_of(head) in {
        "log",
        "flight recorder",
        "ras",
        "stacks",
        "nccl-tests",
        "inspector",
        "report",
        "page",
        "script",
        "binary",
        "empty",
        "elastic error",
        "record",
        "event log",
        "node status",
        "attempts",
    }


def test_the_first_byte_of_a_pickle_alone_is_none() -> None:
    assert kind_of(b"\x80") == "log"


def test_a_program_with_its_output_below_is_told_from_one_by_its_last_lines() -> None:
    output = b"".join(b"step:%d/60 val_loss:3.27 train_time:4100ms\n" % n for n in range(40))
    program = b"".join(b"    loss = model(x, y)\n    state[%d] = {\n        'a': 1,\n    }\n" % n for n in range(40))
    assert is_output(output)
    assert not is_output(program)
    assert not is_output(program + b"\n\nif __name__ == '__main__':\n    main()\n")
    assert not is_output(b"")
    for line in (b"The first of many words of prose.", b"    SELECT a FROM b", b"0.1 0.2 0.3", b"%matplotlib inline"):
        assert not is_output(program + (line + b"\n") * 40)
