import argparse
from pathlib import Path

import pytest

from allready.errors import UsageError
from allready.launch.config import line_of, load, read_config
from allready.launch.config_model import FileSettings
from allready.launch.flag_table import FLAGS
from allready.launch.flags import add_arguments, request_from
from allready.launch.identity import Identity, own_identity
from allready.launch.request import RunRequest
from tests.cases import cases
from tests.clock import cpu_s

TWO = """
[job]
script = "train.py"
arguments = ["--lr", 0.1]
nproc-per-node = 8
max_restarts = 3
backoff = [2, 30, 0.1]
env = { NCCL_DEBUG = "WARN", SEED = 7 }

[node.gpu01]
[node."10.0.0.2"]
devices = [0, 1, 2, 3]
nproc-per-node = 4
[node."10.0.0.2".env]
NCCL_DEBUG = "INFO"
"""


def machine(*names: str, addresses: tuple[str, ...] = (), dns: dict[str, str] | None = None) -> Identity:
    found = dns or {}
    return Identity(names=names, addresses=addresses, resolve=lambda name: (found[name],) if name in found else ())


def read(tmp_path: Path, text: str, me: Identity | None = None, node_name: str | None = None) -> FileSettings:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return read_config(str(file), node_name, identity=lambda: me or machine("gpu01"))


def refused(tmp_path: Path, text: str, me: Identity | None = None, node_name: str | None = None) -> str:
    with pytest.raises(UsageError) as error:
        read(tmp_path, text, me, node_name)
    return str(error.value)


def test_the_job_is_for_all_and_a_node_adds_to_it(tmp_path: Path) -> None:
    first = read(tmp_path, TWO, machine("gpu01.cluster.org"))
    assert (first.script, first.arguments) == ("train.py", ("--lr", "0.1"))
    assert first.values["nproc_per_node"] == 8
    assert first.values["max_restarts"] == 3
    assert first.values["backoff"].most_s == 30
    assert first.environment == {"NCCL_DEBUG": "WARN", "SEED": "7"}
    second = read(tmp_path, TWO, machine("x", addresses=("10.0.0.2",)))
    assert second.values["devices"] == ("0", "1", "2", "3")
    assert second.values["nproc_per_node"] == 4
    assert second.environment == {"NCCL_DEBUG": "INFO", "SEED": "7"}
    assert second.sources["devices"].endswith("job.toml:12")
    assert second.sources["max_restarts"].endswith("job.toml:6")


def test_where_no_node_has_a_rank_their_order_counts_and_the_master_is_first(tmp_path: Path) -> None:
    first, second = (read(tmp_path, TWO, node_name=name) for name in ("gpu01", "10.0.0.2"))
    assert (first.values["node_rank"], second.values["node_rank"]) == (0, 1)
    assert (first.num_nodes, first.master, first.is_master, second.is_master) == (2, "gpu01", True, False)
    marked = TWO.replace("devices", "master = true\ndevices")
    first, second = (read(tmp_path, marked, node_name=name) for name in ("gpu01", "10.0.0.2"))
    assert (first.values["node_rank"], second.values["node_rank"]) == (1, 0)
    assert (first.master, first.is_master, second.is_master) == ("10.0.0.2", False, True)


def test_a_part_of_the_listed_nodes_agrees_among_itself(tmp_path: Path) -> None:
    settings = read(tmp_path, "[job]\nnnodes = 1\n[node.gpu01]\n[node.gpu02]\n")
    assert "node_rank" not in settings.values


def test_a_file_without_nodes_is_for_whatever_machine(tmp_path: Path) -> None:
    settings = read(tmp_path, "[job]\nnnodes = '2:3'\nmaster-addr = 'h'\n", machine("anything"))
    assert settings.values["nnodes"] == (2, 3)
    assert (settings.num_nodes, settings.node, settings.is_master) == (None, None, None)


@cases(
    ("me", "node"),
    [
        (machine("gpu01"), "gpu01"),
        (machine("GPU01.a.org"), "gpu01"),
        (machine("other", addresses=("fd00::7",)), "fd00:0::7"),
        (machine("other", addresses=("10.1.1.9",), dns={"ib-gpu03": "10.1.1.9"}), "ib-gpu03"),
        (machine("other", addresses=("10.1.1.4",)), "gpu04"),
    ],
)
def test_a_node_is_found_by_name_or_any_own_address(tmp_path: Path, me: Identity, node: str) -> None:
    text = '[node.gpu01]\n[node."fd00:0::7"]\n[node.ib-gpu03]\n[node.gpu04]\naddress = "10.1.1.4"\n'
    assert read(tmp_path, text, me).node == node


def test_the_same_short_name_in_another_domain_is_another_machine(tmp_path: Path) -> None:
    assert "no [node] is this machine" in refused(tmp_path, '[node."gpu01.a.org"]\n', machine("gpu01.b.org"))


def test_loopback_is_nobodys_address(tmp_path: Path) -> None:
    me = machine("x", addresses=("10.0.0.1",), dns={"gpu01": "127.0.1.1"})
    assert "no [node]" in refused(tmp_path, "[node.gpu01]\n", me)


def test_a_machine_that_is_not_listed_is_told_who_is(tmp_path: Path) -> None:
    words = refused(tmp_path, TWO, machine("gpu09", addresses=("10.0.0.9",)))
    assert "gpu09" in words
    assert "10.0.0.9" in words
    assert "gpu01, 10.0.0.2" in words
    assert "--node-name" in words
    assert "there are: gpu01, 10.0.0.2" in refused(tmp_path, TWO, node_name="gpu07")


def test_two_sections_for_one_machine_need_a_name(tmp_path: Path) -> None:
    text = '[node."10.0.0.1"]\n[node."10.0.0.2"]\n'
    me = machine("x", addresses=("10.0.0.1", "10.0.0.2"))
    assert "--node-name" in refused(tmp_path, text, me)
    assert read(tmp_path, text, me, node_name="10.0.0.2").values["node_rank"] == 1


@cases(
    ("text", "words"),
    [
        ("[job]\nmax_restart = 3\n", ":2: [job] has no key max_restart; did you mean max-restarts?"),
        ("[job]\nmax-restarts = '3'\n", ":2: max-restarts is a whole number, not '3'"),
        ("[job]\nmax-restarts = true\n", ":2: max-restarts is a whole number, not True"),
        ("[job]\nmax-restarts = -1\n", ":2: max-restarts: -1 is below 0"),
        ("[job]\n\nstandalone = 1\n", ":3: standalone is true or false"),
        ("[job]\non-hang = 'pray'\n", ":2: on-hang is one of report, abort, restart"),
        ("[job]\nmax-restarts = 1\nmax_restarts = 2\n", ":3: max_restarts is given twice"),
        ("[job]\nenv = ['A=1']\n", ":2: env is a table"),
        ("[job]\nenv = { 'A B' = '1' }\n", ":2: env: 'A B' is not the name"),
        ("[job]\nenv = { A = [1] }\n", ":2: env: A is a string or a number"),
        ("[job]\nscript = 3\n", ":2: script is a string"),
        ("[job]\narguments = '--lr 1'\n", ":2: arguments is a list"),
        ("[job]\ndevices = [0, 1.5]\n", ":2: devices is a list"),
        ("[job]\naddress = 'x'\n", ":2: address belongs to a [node"),
        ("[node.a]\nmax-restarts = 3\n", ":2: max-restarts belongs to [job]"),
        ("[node.a]\nmaster = 'yes'\n", ":2: master is true or false"),
        ("[nodes.a]\n", ":1: nodes: a file has [job]"),
        ("max-restarts = 3\n", ":1: max-restarts: a file has [job]"),
        ("[node]\ngpu01 = 3\n", ":2: write [node."),
        ("[job\n", "not TOML: "),
        ("[job]\nconfig = 'x'\n", ":2: [job] has no key config"),
        ("[job]\nhosts = ['x']\n", ":2: [job] has no key hosts"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(tmp_path, text)


@cases(
    ("text", "words"),
    [
        ("[node.a]\nnode-rank = 0\n[node.b]\nnode-rank = 0\n", ':4: [node."b"] and [node."a"] both have node-rank 0'),
        ("[node.a]\nnode-rank = 0\n[node.b]\nnode-rank = 2\n", ':4: [node."b"] has node-rank 2: with 2 nodes it is'),
        ("[node.a]\nnode-rank = 0\n[node.b]\n", ':2: [node."a"] has node-rank and [node."b"] has none'),
        ("[node.a]\nstart-rank = 0\n[node.b]\n", ':2: [node."a"] has start-rank and [node."b"] has none'),
        ("[node.a]\nmaster = true\n[node.b]\nmaster = true\n", ':3: [node."a"] is the master already'),
        ("[node.a]\nmaster = true\nnode-rank=1\n[node.b]\nnode-rank=0\n", ':1: [node."a"] is the master and has'),
        ("[node.a]\naddress = 'x'\n[node.b]\naddress = 'x'\n", ':3: [node."b"] and [node."a"] both have address x'),
        ("[node.a]\naddress = 'B'\n[node.b]\n", "have address b"),
        (
            "[job]\nnproc-per-node=2\n[node.a]\nstart-rank=0\n[node.b]\nstart-rank=1\n",
            ":4: ranks overlap: a has ranks 0 to 1 and b has ranks 1 to 2",
        ),
        ("[node.a]\nstart-rank=0\ndevices=[0,1]\n[node.b]\nstart-rank=3\n", "no node has rank 2: a has ranks 0 to 1"),
        ("[node.a]\ndevices = [0, 0]\n", ':1: [node."a"] names a device twice: 0, 0'),
        ("[node.a]\ndevices = [0, 1]\nnproc-per-node = 4\n", ':1: [node."a"] has 2 devices and nproc-per-node 4'),
    ],
)  # fmt: skip
def test_nodes_that_do_not_fit_together_are_found_on_every_node(tmp_path: Path, text: str, words: str) -> None:
    for me in (machine("a"), machine("b")):
        assert words in refused(tmp_path, text, me)


def test_ranks_that_only_the_node_knows_are_left_to_node_0(tmp_path: Path) -> None:
    text = "[node.a]\nstart-rank=0\nnproc-per-node='gpu'\n[node.b]\nstart-rank=1\n"
    assert read(tmp_path, text, machine("b")).values["start_rank"] == 1


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load(str(tmp_path / "none.toml"))
    (tmp_path / "big.toml").write_text("#" * (1 << 20) + "\n")
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        load(str(tmp_path / "big.toml"))
    (tmp_path / "bad.toml").write_bytes(b"[job]\n\xff")
    with pytest.raises(UsageError, match="not UTF-8"):
        load(str(tmp_path / "bad.toml"))


EXAMPLES = {
    "text": ('"x"', "x"), "whole": ("3", 3), "count": ("3", 3), "positive": ("3", 3), "number": ("0.5", 0.5),
    "seconds": ("5", 5.0), "seconds_or_auto": ('"auto"', None), "nodes": ("2", (2, 2)), "nproc": ('"gpu"', "gpu"),
    "names": ('["a", "b"]', ("a", "b")), "numbers": ("[0, 2]", (0, 2)), "level": ("true", "INFO"),
    "streams": ("3", {-1: 3}), "settings": ("{ a = 1 }", {"a": "1"}), "switch": ("true", True),
}  # fmt: skip


def test_every_flag_can_stand_in_a_file_with_its_own_type(tmp_path: Path) -> None:
    for flag in FLAGS:
        if not flag.where or flag.kind == "backoff":
            continue
        written, expected = (f'"{flag.choices[0]}"', flag.choices[0]) if flag.choices else EXAMPLES[flag.kind]
        settings = read(tmp_path, f"[job]\n{flag.name} = {written}\n")
        assert settings.values[flag.dest] == expected, flag.name


def test_lines_are_found_in_every_way_of_writing_toml() -> None:
    text = 'a.b = 1\n[job]\nx = { y = 2 }\n[node."g 1"] # here\n"k" = 1\n[node.\'h\'.env]\nZ = 1\n'
    assert line_of(text, ("a", "b")) == 1
    assert line_of(text, ("job", "x", "y")) == 3
    assert line_of(text, ("node", "g 1")) == 4
    assert line_of(text, ("node", "g 1", "k")) == 5
    assert line_of(text, ("node", "h", "env", "Z")) == 7
    assert line_of(text, ("nowhere",)) is None


def test_this_machine_knows_itself() -> None:
    me = own_identity()
    assert me.has_name(me.names[0])
    assert not me.has_address("127.0.0.1")
    assert all(me.has_address(address) for address in me.addresses)


# Together with flags and environment


LAYERED = """
[job]
script = "train.py"
nproc-per-node = 1
max-restarts = 1
wait = 11
grace = 1
master-port = 1111
[node.gpu01]
nproc-per-node = 2
[node.gpu02]
"""


def orders(tmp_path: Path, *argv: str, environ: dict[str, str] | None = None, me: str = "gpu01") -> RunRequest:
    file = tmp_path / "job.toml"
    file.write_text(LAYERED)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return request_from(
        parser.parse_args(["--config", str(file), *argv]),
        environ or {},
        count_gpus=lambda: 0,
        read_config=lambda path, name: read_config(path, name, identity=lambda: machine(me)),
    )


def test_flag_beats_environment_beats_node_beats_job_beats_default(tmp_path: Path) -> None:
    assert orders(tmp_path).max_restarts == 1
    assert orders(tmp_path).monitor_interval_s == 0.1
    assert [orders(tmp_path, me=me).nproc_per_node for me in ("gpu01", "gpu02")] == [2, 1]
    environ = {"PET_NPROC_PER_NODE": "3", "PET_MAX_RESTARTS": "5"}
    assert orders(tmp_path, environ=environ).nproc_per_node == 3
    assert orders(tmp_path, environ=environ).max_restarts == 5
    assert orders(tmp_path, "--nproc-per-node=4", environ=environ).nproc_per_node == 4
    assert orders(tmp_path, environ={"MASTER_ADDR": "h", "MASTER_PORT": "2222"}).master_port == 2222
    assert orders(tmp_path, "--grace=2").grace_s == 2


def test_the_file_alone_says_who_is_who(tmp_path: Path) -> None:
    first, second = (orders(tmp_path, me=me) for me in ("gpu01", "gpu02"))
    assert first.command.target == second.command.target == "train.py"
    assert (first.node_rank, second.node_rank, first.max_nodes) == (0, 1, 2)
    assert (first.master_addr, second.master_addr, second.master_port) == ("gpu01", "gpu01", 1111)
    assert (first.is_master, second.is_master) == (True, False)
    assert second.sources["master_port"].endswith("job.toml:8")


def test_a_script_on_the_command_line_wins(tmp_path: Path) -> None:
    assert orders(tmp_path, "other.py", "--x").command.arguments == ("--x",)


@cases("line", ["M" * 60, "a." * 4000, "a " * 4000, "'" * 8000, '"a' * 4000, " ." * 4000, "a'b'" * 4000, "[a" * 4000])
def test_the_line_of_a_mistake_is_found_in_linear_time(line: str) -> None:
    """A certificate in base64 over several lines looked like a key and never ended."""
    text = f'[job]\nenv = {{ A = """\n{line}\n""" }}\nunknown-key = 1\n'
    assert cpu_s(lambda: line_of(text, ("job", "unknown-key")), enough_s=1.0) < 1.0
    assert line_of(text, ("job", "unknown-key")) == 5
