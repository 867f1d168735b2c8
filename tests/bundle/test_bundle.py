"""`allready bundle` as a person uses it: complete, without secrets, bounded, and read by the other commands."""

import io
import json
import os
import pickle
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from allready.bundle.content import content_of
from allready.bundle.pack import MIN_BYTES, GeneratedMember, Order, list_bundle, write_bundle
from allready.bundle.pseudonyms import Pseudonyms
from allready.cli.main import main
from tests.cases import cases
from tests.cli.processes import PROGRAM, plain_environment
from tests.evidence.flight import make
from tests.evidence.flight.dialect import torch_pickle
from tests.test_redaction import BARE, HEXADECIMAL, MIXED, PLACED, SECRET, SHOWN

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"


def members_of(file: Path) -> dict[str, bytes]:
    """Name without the folder -> content."""
    with tarfile.open(file) as archive:
        found = {}
        for member in archive:
            assert member.isreg()
            assert member.name.partition("/")[0] == file.name.removesuffix(".tar.gz")
            stream = archive.extractfile(member)
            assert stream is not None
            found[member.name.partition("/")[2]] = stream.read()
        return found


def bundle(folder: Path, *arguments: str, environ: dict[str, str]) -> dict[str, bytes]:
    """What a real `allready bundle` writes."""
    target = folder / "b.tar.gz"
    done = subprocess.run(
        [*PROGRAM, "bundle", "--out", str(target), *arguments],
        capture_output=True, text=True, timeout=120, check=False, env=plain_environment(**environ), cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return members_of(target)


def written(folder: Path, order: Order) -> dict[str, bytes]:
    target = folder / f"{order.name}.tar.gz"
    write_bundle(order, target)
    return members_of(target)


def json_of(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, Any]:
    main([*command, "--json", "-"])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


@pytest.mark.thorough
def test_one_command_collects_all_of_it_and_the_others_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "train.log").write_text(f"HF_TOKEN={SECRET}hf_{MIXED}\n" + "\n".join(SHOWN))
    os.mkfifo(logs / "pipe")
    (logs / "link").symlink_to("/etc/passwd")
    (logs / "core").write_bytes(b"\x7fELF" + bytes(range(256)))
    secrets = {"WANDB_API_KEY": MIXED, "NCCL_X_TOKEN": MIXED, "SLURM_JWT": MIXED, "FOO_BAR": "named only"}
    found = bundle(tmp_path, "logs", environ={**secrets, "NCCL_TIMEOUT": "1800", "MASTER_ADDR": "gpu01"})
    manifest = json.loads(found["manifest.json"])
    assert {"facts.json", "report.json", "environment.json", "versions.json", "files/logs/train.log"} <= set(found)
    assert {entry["name"] for entry in manifest["entries"]} | {"manifest.json"} == set(found)
    why = {item["source"]: item["why"] for item in manifest["left_out"]}
    assert set(why) >= {"logs/pipe", "logs/link", "logs/core"}
    assert "kernel.log" in found or "the kernel log" in why
    everything = b"\n".join(found.values())
    assert MIXED.encode() not in everything
    assert SECRET.encode() not in everything
    environment = json.loads(found["environment.json"])
    assert environment["variables"]["MASTER_ADDR"] == "gpu01"
    assert "FOO_BAR" in environment["other_names"]
    assert b"named only" not in everything

    file = str(tmp_path / "b.tar.gz")
    report = json_of(capsys, "doctor", "--from", file)
    assert report["facts"]["0"]["host"] == json.loads(found["facts.json"])["facts"]["host"]
    lint = json_of(capsys, "env", "lint", file)
    assert [f["code"] for f in lint["findings"] if f["variable"] == "NCCL_TIMEOUT"] == ["VAR001"]


@cases("shape", [*SHOWN, *BARE, *HEXADECIMAL])
def test_no_secret_of_any_shape_is_in_it(shape: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("shape")
    (folder / "a.log").write_text(f"before {shape} after\nsecond {shape}\n")
    (folder / "utf16.log").write_text(f"before {shape} after\n", encoding="utf-16")
    text = b"".join(v for k, v in written(folder, Order(name="b", paths=(str(folder),))).items() if "log" in k)
    assert b"redacted" in text
    assert b"hidden" not in text.lower()
    assert b"0123456" not in text


def test_no_secret_of_any_place_is_in_it(tmp_path: Path) -> None:
    for number, text in enumerate(PLACED):
        (tmp_path / f"{number}.yaml").write_text(text)
    found = written(tmp_path, Order(name="b", paths=(str(tmp_path),)))
    kept = {name: data for name, data in found.items() if b"hidden" in data or b"0123456789abcdef" in data}
    assert kept == {}
    assert sum(b"redacted" in data for data in found.values()) >= len(PLACED)


def test_a_private_key_of_many_lines_goes_and_what_follows_stays(tmp_path: Path) -> None:
    key = "\n".join(f"[rank0]: {MIXED}{line:04}" for line in range(30))
    text = f"before\n-----BEGIN RSA PRIVATE KEY-----\n{key}\n-----END RSA PRIVATE KEY-----\nloss 1.0\n"
    (tmp_path / "a.log").write_text(text * 3)
    found = written(tmp_path, Order(name="b", paths=(str(tmp_path / "a.log"),)))["files/a.log"]
    assert found == b"before\n(redacted)\nloss 1.0\n" * 3


def test_no_secret_is_in_names_of_files_or_in_what_stays_out(tmp_path: Path) -> None:
    folder = tmp_path / f"run_hf_{MIXED[:34]}"
    folder.mkdir()
    (folder / f"log-glpat-{MIXED[:20]}.txt").write_text("a\n")
    (folder / "core").write_bytes(bytes(range(256)) * 40)
    found = written(tmp_path, Order(name="b", paths=(str(folder),)))
    assert [name for name in found if "hidden" in name] == []
    assert b"hidden" not in b"".join(found.values())
    manifest = json.loads(found["manifest.json"])
    assert "(redacted)/core" in manifest["left_out"][0]["source"]


def test_what_this_environment_keeps_secret_is_not_in_a_log_either(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("we sent mine-and-only-9 to the hub; mode true, /home/me\n")
    environ = {"HF_TOKEN": "mine-and-only-9", "X_TOKEN": "true", "Y_KEY": "/home/me"}
    found = bundle(tmp_path, "--no-facts", "a.log", environ=environ)
    assert found["files/a.log"] == b"we sent (redacted) to the hub; mode true, /home/me\n"


@pytest.mark.thorough
def test_a_secret_that_a_cut_runs_through_is_not_in_it(tmp_path: Path) -> None:
    line = f"HF_TOKEN={MIXED}\n"
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + f"{MIXED}\n" * 300 + "-----END RSA PRIVATE KEY-----\n"
    for shift in range(0, len(line), 7):
        (tmp_path / "a.log").write_text("x" * shift + "\n" + line * 4000 + key + "last\n" + line * 20)
        order = Order(name=f"b{shift}", paths=(str(tmp_path / "a.log"),), max_bytes=MIN_BYTES)
        stream = io.BytesIO((tmp_path / "a.log").read_bytes())
        cut = content_of(stream, most_bytes=20_000, hide=lambda text: text)
        assert b"hidden" not in cut.data, shift
        assert cut.cut_bytes
        assert b"hidden" not in b"".join(written(tmp_path, order).values())
    (tmp_path / "one.txt").write_text(f"{MIXED} hf_{MIXED[:34]} " * 2000)
    with (tmp_path / "one.txt").open("rb") as file:
        assert b"hf_Zq" not in content_of(file, most_bytes=20_000, hide=lambda text: text).data


def test_an_empty_file_is_no_binary_one(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("")
    assert written(tmp_path, Order(name="b", paths=(str(tmp_path / "a.log"),)))["files/a.log"] == b""


@pytest.mark.thorough
@pytest.mark.parametrize("pseudonyms", [False, True])
def test_a_run_is_diagnosed_from_it_as_from_its_folder(
    pseudonyms: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    for name in ("sigstop", "size_mismatch"):
        source = str(RUNS / f"{name}.tar.xz")
        words = ["--pseudonyms"] if pseudonyms else []
        file = tmp_path / f"{name}.tar.gz"
        assert main(["bundle", "--no-facts", source, "--out", str(file), "-q", *words]) == 0
        capsys.readouterr()
        told = [json_of(capsys, "diagnose", place)["verdict"] for place in (source, str(file))]
        if len({(v["code"], tuple(v["culprits"]["ranks"])) for v in told}) != 1:
            wrong.append((name, [v["code"] for v in told]))
    assert not wrong


def test_dumps_of_a_run_with_the_beacons_notes_behind_them_are_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, secret = tmp_path / "run", f"token = '{MIXED}'"
    folder.mkdir()
    for rank in range(4):
        notes = {"arguments": [["0", 2, "broadcast", int(rank == 2), None, None]], "members": {"0": [0, 1, 2, 3]}}
        made = make.dump([make.entry(1), make.entry(2, "gloo:broadcast", size=16), make.entry(3)], note=secret)
        data = torch_pickle(made) + pickle.dumps(notes, protocol=2)
        (folder / f"dump_{rank}.pickle").write_bytes(data)
    (folder / "cut_4.pickle").write_bytes(data[:-9])
    found = written(tmp_path, Order(name="b", paths=(str(folder),)))
    manifest = json.loads(found["manifest.json"])
    assert [(Path(out["source"]).name, out["why"]) for out in manifest["left_out"]] == [
        ("cut_4.pickle", "a damaged dump: what is in it could not be read")
    ]
    assert not any(MIXED.encode() in data for data in found.values())
    (folder / "cut_4.pickle").unlink()
    of_folder, of_bundle = (
        json_of(capsys, "diagnose", str(place))["verdict"] for place in (folder, tmp_path / "b.tar.gz")
    )
    told = [(v["code"], v["culprits"]["ranks"], v["sentence"]) for v in (of_folder, of_bundle)]
    assert told[0][1] == [2]
    assert told[0] == told[1]


def test_names_and_addresses_are_others_and_the_same_by_the_same() -> None:
    lines = (
        "gpu01.site.org:12:34 [0] NCCL INFO Bootstrap : Using eth0:10.1.2.3<0>\n"
        "gpu02:12:34 [0] NCCL INFO NET/Socket 10.1.2.4 10.9.2.3 127.0.0.1 0.0.0.0 255.255.255.0\n"
        "srun: error: gpu[01-03]: tasks 0-2: Exited; gpu03 said c10d::Store 04:12:44 torch 2.13.0\n"
        "route 10.1.2.0/24 via 10.1.2.1; fd00:1::7/64 fd00:1::9 fe80::a:b:c:d 00:11:22:33:44:55 ann@gpu01 /home/ann/x\n"
    )
    tiny = Pseudonyms(["vm"])
    assert tiny.hide("nccl.node0.vm.12.log on vm, vmstat") == "nccl.node0.host1.12.log on host1, vmstat"
    assert tiny.hide("total-vm:12kB vm.overcommit_memory=0") == "total-vm:12kB vm.overcommit_memory=0"
    names = Pseudonyms(users=["ann", "root"])
    names.learn_hosts(lines)
    hidden = names.hide(lines)
    gone = ("gpu0", "site.org", "10.1.2", "10.9", "fd00", "a:b:c", "00:11", "ann")
    assert [word for word in gone if word in hidden] == []
    kept = ("127.0.0.1", "0.0.0.0", "255.255.255.0", "c10d::Store", "04:12:44", "2.13.0", "fe80::")
    assert [word for word in kept if word not in hidden] == []
    rows = hidden.splitlines()
    short = rows[0].split(":")[0].split(".")[0]
    assert rows[3].count(short) == 1, "the short name and the long one are one host"
    net = rows[3].split()[1]
    assert net.endswith(".0/24")
    assert rows[0].split("eth0:")[1].startswith(net.removesuffix("0/24")), "within one subnet still within one"


def test_users_of_logs_are_others_where_they_stand_for_a_user() -> None:
    lines = (
        "alice@gpu01:/home/alice$ python /data/alice/train.py; USER=bob.smith UserId=eva(1000)\n"
        "/home/train/x.py train.py train; Accepted publickey for user carol; git@github.com:a/b torch@2.15 root@gpu01\n"
        '{"user": "alice", "owner": "bob.smith"} uid=1000(eva) login: carol\n'
    )
    names = Pseudonyms()
    names.learn_hosts(lines)
    hidden = names.hide(lines)
    assert [user for user in ("alice", "bob", "smith", "eva", "carol", "/home/train") if user in hidden] == []
    kept = ("train.py train;", "git@", "torch@2.15", "root@", "/x.py")
    assert [word for word in kept if word not in hidden] == []
    assert hidden.count("user1") == 4, "the same by the same"


def test_hosts_are_found_where_torch_slurm_and_ssh_name_them() -> None:
    names = Pseudonyms()
    text = (
        "failed to connect to [gpu-b02.hpc.acme.org]:29500; could not connect to (gpu-b03, 29500); peer gpu-b04:29501\n"
        "SLURM_NODELIST=gpu-a[17-18],login9\nssh alice@gpu-c09 uptime\n"
    )
    names.learn_hosts(text)
    hidden = names.hide(text + "rank 3 on login9 failed, and gpu-b02 too\n")
    assert not [word for word in ("b02", "b03", "b04", "login9", "c09", "acme", "alice") if word in hidden]
    assert len(set(re.findall(r"host\d+", hidden.partition("\n")[0]))) == 3  # the same by the same


@cases(
    "text",
    [
        "from socket.cpp:7522 to cuda:0", "git@github.com:org/repo actions/checkout@v4 @staticmethod",
        "moved to step (12, 34)",
        "copied to cpu:10", "on host memory, ssh connection refused, from 3:45 to first, 12 ms",
    ],
)  # fmt: skip
def test_words_that_are_no_hosts_stay(text: str) -> None:
    names = Pseudonyms()
    names.learn_hosts(text)
    assert names.hide(text) == text


def test_facts_with_pseudonyms_are_judged_alike(tmp_path: Path) -> None:
    """The form of addresses, networks and names stays."""
    from allready.cli.doctor_files import facts_json, load
    from tests.fleets import healthy_node

    names = Pseudonyms(["node0"])
    data = facts_json(healthy_node(0, 1))
    part = GeneratedMember(name="facts.json", source="x", data=data)
    write_bundle(Order(name="b", parts=(part,), hide=names.hide), tmp_path / "b.tar.gz")
    assert load("--from", str(tmp_path / "b.tar.gz")).net is not None
    assert main(["doctor", "--from", str(tmp_path / "b.tar.gz"), "-q"]) == main_of(tmp_path, data)


def main_of(folder: Path, data: bytes) -> int:
    (folder / "plain.json").write_bytes(data)
    return main(["doctor", "--from", str(folder / "plain.json"), "-q"])


@pytest.mark.thorough
def test_its_size_is_bounded_and_what_is_cut_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.log").write_bytes(
            f"first {number}\n".encode() + os.urandom(300_000).hex().encode() + b"\nlast\n"
        )
    (folder / "small.log").write_text("all of it\n")
    order = Order(name="b", paths=(str(folder),), max_bytes=MIN_BYTES)
    found = written(tmp_path, order)
    assert (tmp_path / "b.tar.gz").stat().st_size <= MIN_BYTES
    assert found["files/logs/small.log"] == b"all of it\n"
    manifest = json.loads(found["manifest.json"])
    cut = {entry["name"]: entry for entry in manifest["entries"] if entry.get("cut_bytes")}
    assert cut
    for name, entry in cut.items():
        assert found[name].startswith(b"first")
        assert found[name].endswith(b"last\n")
        assert f"{entry['original_bytes']}".isdecimal()
        assert b"bytes left out ...]" in found[name]
    whole = {Path(name).name for name in found} | {Path(i["source"]).name for i in manifest["left_out"]}
    assert {f"{number}.log" for number in range(6)} <= whole, "every file is in it or named as left out"


def test_what_lies_in_archives_is_looked_into(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "logs.tar.gz", "w:gz") as archive:
        data = f"token = '{MIXED}'\nrank 0 done\n".encode()
        entry = tarfile.TarInfo("../../deep/rank0.log")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    found = written(tmp_path, Order(name="b", paths=(str(tmp_path / "logs.tar.gz"),)))
    assert found["files/logs.tar.gz/deep/rank0.log"] == b"token = '(redacted)'\nrank 0 done\n"


def test_a_dry_run_lists_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(f"HF_TOKEN={SECRET}\n")
    before = sorted(tmp_path.iterdir())
    body = json_of(
        capsys, "bundle", "--dry-run", "--no-facts", "--out", str(tmp_path / "b.tar.gz"), str(tmp_path / "a.log")
    )
    assert sorted(tmp_path.iterdir()) == before
    assert [(e["name"], e["num_redacted"]) for e in body["entries"]] == [("files/a.log", 1)]
    order = Order(name="b", paths=(str(tmp_path / "a.log"),))
    assert list_bundle(order).entries == write_bundle(order, tmp_path / "b.tar.gz").entries


def test_mistakes_are_usage_errors_and_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "b.tar.gz").write_text("mine")
    wrong = {
        "nothing": ["--no-facts"],
        "missing": ["--no-facts", str(tmp_path / "no")],
        "exists": ["--no-facts", str(tmp_path), "--out", str(tmp_path / "b.tar.gz")],
        "no folder": ["--no-facts", str(tmp_path), "--out", str(tmp_path / "no" / "b.tar.gz")],
        "tiny": ["--no-facts", str(tmp_path), "--max-size", "1K"],
    }
    codes = {name: main(["bundle", *words]) for name, words in wrong.items()}
    assert codes == dict.fromkeys(wrong, 2)
    assert (tmp_path / "b.tar.gz").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz"]


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    write_bundle(Order(name="b"), tmp_path / "b.tar.gz")
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
