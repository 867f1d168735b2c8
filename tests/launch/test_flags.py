import argparse
import importlib
import os
import random
from pathlib import Path
from typing import Any

import pytest

from allready.cli.options import add_common
from allready.errors import UsageError
from allready.launch.backoff import Backoff
from allready.launch.config_model import FileSettings
from allready.launch.flag_table import FLAGS, TORCHRUN
from allready.launch.flags import add_arguments, request_from, to_argv
from allready.launch.framework import framework_of
from allready.launch.host_lists import split_endpoint
from allready.launch.request import RunRequest
from allready.text.ui import table, ui
from tests.cases import cases


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="allready run", allow_abbrev=False)
    add_arguments(made)
    add_common(made)
    return made


def ask(
    *argv: str, environ: dict[str, str] | None = None, gpus: int = 0, settings: FileSettings | None = None
) -> RunRequest:
    args = parser().parse_args([*argv])
    return request_from(
        args, environ or {}, count_gpus=lambda: gpus, read_config=lambda _path, _name: settings or FileSettings()
    )


def keys(request: RunRequest) -> list[str]:
    return [note.key for note in request.notes]


# What torch itself makes of the same words


def torch_parser() -> Any:
    run = importlib.import_module("torch.distributed.run")
    return run.get_args_parser()


NOT_ABOUT_A_JOB = {"help", "print_completion"}
VALUES = {
    "nnodes": ["1", "2:4"], "nproc_per_node": ["2", "cpu"], "rdzv_backend": ["c10d"], "rdzv_endpoint": ["h:29400"],
    "rdzv_id": ["abc"], "rdzv_conf": ["join_timeout=5,is_host=1"], "max_restarts": ["3"], "monitor_interval": ["0.5"],
    "start_method": ["fork"], "event_log_handler": ["null"], "role": ["trainer"], "log_dir": ["/tmp/x"],
    "redirects": ["3", "0:1,1:2"], "tee": ["3"], "local_ranks_filter": ["0,1"], "duplicate_stdout_filters": ["a,b"],
    "duplicate_stderr_filters": ["a"], "node_rank": ["1"], "master_addr": ["h"], "master_port": ["1234"],
    "local_addr": ["10.0.0.1"], "logs_specs": ["x"], "numa_binding": ["node"], "signals_to_handle": ["SIGUSR1"],
    "shutdown_timeout": ["7"], "log_line_prefix_template": ["${hostname}:${rank}: "],
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.newest
def test_knows_every_flag_of_the_torch_here_in_all_its_spellings() -> None:
    ours = parser()._option_string_actions
    for action in torch_parser()._actions:
        if not action.option_strings or action.dest in NOT_ABOUT_A_JOB:
            continue
        for spelling in action.option_strings:
            assert spelling in ours, spelling
            assert ours[spelling].dest == action.dest
            assert (ours[spelling].nargs == 0) == (action.nargs == 0), spelling


def test_has_a_value_to_try_for_every_flag_of_torchrun() -> None:
    assert {f.dest for f in TORCHRUN if f.kind != "switch"} == set(VALUES)


@pytest.mark.torch
@pytest.mark.newest
@cases("dest", sorted(VALUES))
def test_takes_the_values_that_torch_takes(dest: str) -> None:
    theirs = torch_parser()
    if dest not in {action.dest for action in theirs._actions}:
        pytest.skip(f"this torch has no --{dest}")
    for value in VALUES[dest]:
        for words in ([f"--{dest}", value], [f"--{dest.replace('_', '-')}={value}"]):
            argv = [*words, "train.py", "--lr", "1"]
            mine, its = parser().parse_args(argv), theirs.parse_args(argv)
            assert (mine.script, mine.script_args) == (its.training_script, its.training_script_args)
            word = to_argv(mine)[0].partition("=")[2]
            its_value = getattr(its, dest)
            assert word == (",".join(its_value) if isinstance(its_value, list) else str(its_value))


def test_letters_of_flags_without_a_value_may_be_joined() -> None:
    assert parser().parse_args(["-vv", "train.py"]).verbose == 2


SCRIPT_TAILS = [
    ["train.py"],
    ["train.py", "a"],
    ["train.py", "--nnodes", "9", "-m", "--", "x"],
    ["--", "train.py", "--lr", "1"],
    ["train.py", "--", "a"],
    ["train.py", "a", "--", "b"],
    ["train.py", "-v", "--json", "x", "--hosts"],
    ["train.py", "--flag=--other", ""],
]


@pytest.mark.torch
@pytest.mark.newest
@cases("tail", SCRIPT_TAILS, ids=" ".join)
@cases("head", [[], ["--standalone"], ["--nnodes", "1"], ["-m"], ["-t", "3", "-r=3"]], ids=" ".join)
def test_splits_flags_and_script_exactly_as_torch_does(head: list[str], tail: list[str]) -> None:
    mine, its = parser().parse_args([*head, *tail]), torch_parser().parse_args([*head, *tail])
    assert (mine.script, mine.script_args or []) == (its.training_script, its.training_script_args)


@pytest.mark.torch
@pytest.mark.newest
def test_reads_the_variables_that_torch_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for dest, values in VALUES.items():
        monkeypatch.setenv(f"PET_{dest.upper()}", values[0])
    for action in torch_parser()._actions:
        flag = next((f for f in FLAGS if f.dest == action.dest), None)
        if flag is None or flag.kind == "switch" or action.dest not in VALUES:
            continue
        reads = action.default == VALUES[action.dest][0] or action.default == [VALUES[action.dest][0]]
        assert flag.pet == reads, action.dest


# PET_ variables


def test_a_variable_counts_where_no_flag_is_given() -> None:
    environ = {"PET_MAX_RESTARTS": "4", "PET_STANDALONE": "1", "PET_NPROC_PER_NODE": "2"}
    assert ask("t.py", environ=environ).max_restarts == 4
    assert ask("--max-restarts", "1", "t.py", environ=environ).max_restarts == 1
    assert ask("t.py", environ=environ).nproc_per_node == 2


def test_a_switch_set_to_zero_by_variable_is_off() -> None:
    assert not ask("t.py", environ={"PET_MODULE": "0"}).command.is_module
    assert ask("t.py", environ={"PET_MODULE": "1"}).command.is_module


@pytest.mark.parametrize(
    ("name", "value"), [("PET_MAX_RESTARTS", "many"), ("PET_MODULE", "yes"), ("PET_START_METHOD", "thread")]
)
def test_a_variable_that_cannot_be_read_is_named(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=name):
        ask("t.py", environ={name: value})


# Nodes and ranks


def test_one_node_needs_nothing_and_takes_a_free_port() -> None:
    request = ask("t.py")
    assert (request.min_nodes, request.max_nodes, request.node_rank, request.nproc_per_node) == (1, 1, 0, 1)
    assert (request.master_addr, request.master_port, request.is_master) == ("127.0.0.1", 0, True)


def test_a_range_of_nodes_is_kept() -> None:
    request = ask("--nnodes", "2:4", "--rdzv-backend=c10d", "--rdzv-endpoint=gpu01:29400", "t.py")
    assert (request.min_nodes, request.max_nodes, request.node_rank, request.is_master) == (2, 4, None, None)
    assert (request.master_addr, request.master_port) == ("gpu01", 29400)


def test_with_static_rendezvous_node_0_is_the_master() -> None:
    words = ["--nnodes", "2", "--master-addr", "gpu01"]
    assert ask(*words, "--node-rank", "0", "t.py").is_master is True
    assert ask(*words, "--node-rank", "1", "t.py").is_master is False
    unsaid = ask(*words, "t.py")
    assert (unsaid.node_rank, unsaid.is_master, unsaid.master_port) == (None, None, 29500)


def test_c10d_agrees_on_the_order_and_says_that_the_node_rank_is_not_used() -> None:
    words = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "gpu01:1", "--node-rank", "7", "t.py"]
    request = ask(*words)
    assert request.node_rank is None
    assert keys(request) == ["launch.node_rank_agreed"]


def test_a_name_with_another_meaning_is_a_note() -> None:
    assert keys(ask("t.py", environ={"RANK": "16"})) == ["launch.taken_for_one"]
    assert keys(ask("--nnodes", "1", "t.py", environ={"RANK": "16"})) == []
    assert keys(ask("--standalone", "t.py", environ={"RANK": "16"})) == []


def test_c10d_under_slurm_agrees_too() -> None:
    environ = {
        "SLURM_JOB_ID": "77",
        "SLURM_NODEID": "1",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NODELIST": "gpu[01-02]",
        "SLURM_LOCALID": "0",
    }
    request = ask("--rdzv-backend=c10d", "--rdzv-endpoint=gpu01:29500", "t.py", environ=environ)
    assert (request.max_nodes, request.node_rank, request.master_addr) == (2, None, "gpu01")


def test_is_host_of_the_rendezvous_settings_decides_who_is_the_master() -> None:
    words = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=gpu01"]
    assert ask(*words, "--rdzv-conf", "is_host=true", "t.py").is_master is True
    assert ask(*words, "--rdzv-conf", "is_host=0,join_timeout=33", "t.py").is_master is False
    assert ask(*words, "--rdzv-conf", "is_host=0,join_timeout=33", "t.py").wait_s == 33
    with pytest.raises(UsageError, match="is_host=1 or is_host=0"):
        ask(*words, "--rdzv-conf", "is_host=perhaps", "t.py")


def test_the_endpoint_wins_over_the_master_address_and_says_so() -> None:
    request = ask("--nnodes=2", "--master-addr=a", "--rdzv-endpoint=b:5", "t.py")
    assert (request.master_addr, request.master_port) == ("b", 5)
    assert "launch.endpoint_wins" in keys(request)


def test_without_a_master_several_nodes_are_refused_with_the_ways_out() -> None:
    with pytest.raises(UsageError, match=r"--master-addr.*--sync-dir.*--hosts"):
        ask("--nnodes", "2", "t.py")
    assert ask("--nnodes", "2", "--sync-dir", "/shared/run", "t.py").sync_dir == "/shared/run"


@pytest.mark.parametrize("backend", ["etcd", "etcd-v2", "zeus"])
def test_a_backend_that_needs_another_server_is_refused(backend: str) -> None:
    with pytest.raises(UsageError, match="c10d"):
        ask("--rdzv-backend", backend, "t.py")


def test_standalone_is_one_node_on_a_free_port_whatever_the_scheduler_says() -> None:
    environ = {
        "SLURM_JOB_ID": "77",
        "SLURM_NODEID": "1",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NODELIST": "gpu[01-02]",
        "MASTER_ADDR": "gpu01",
        "MASTER_PORT": "4444",
        "SLURM_LOCALID": "0",
    }
    request = ask("--standalone", "--rdzv-endpoint=x:1", "--nproc-per-node=2", "t.py", environ=environ)
    assert (request.max_nodes, request.node_rank) == (1, 0)
    assert (request.master_addr, request.master_port) == ("127.0.0.1", 0)
    assert keys(request) == ["launch.standalone_ignores"]
    with pytest.raises(UsageError, match="one node"):
        ask("--standalone", "--nnodes=2", "t.py")


def test_the_words_for_a_number_of_ranks_are_torchs() -> None:
    cpus = len(os.sched_getaffinity(0))
    assert ask("--nproc-per-node=gpu", "t.py", gpus=4).nproc_per_node == 4
    assert ask("--nproc-per-node=auto", "t.py", gpus=4).nproc_per_node == 4
    assert ask("--nproc-per-node=auto", "t.py").nproc_per_node == cpus
    assert ask("--nproc-per-node=cpu", "t.py", gpus=4).nproc_per_node == cpus
    with pytest.raises(UsageError, match="no GPU"):
        ask("--nproc-per-node=gpu", "t.py")


@pytest.mark.torch
@pytest.mark.newest
@pytest.mark.slow
def test_xpus_are_counted_by_torch_in_a_process_of_its_own() -> None:
    with pytest.raises(UsageError, match="no XPU"):
        ask("--nproc-per-node=xpu", "t.py")


def test_devices_give_the_number_of_ranks_even_under_a_scheduler() -> None:
    environ = {
        "SLURM_JOB_ID": "77",
        "SLURM_NODEID": "0",
        "SLURM_NNODES": "1",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_JOB_NODELIST": "gpu01",
        "SLURM_LOCALID": "0",
    }
    request = ask("--devices", "2, 3", "t.py", environ=environ)
    assert (request.nproc_per_node, request.devices) == (2, ("2", "3"))
    with pytest.raises(UsageError, match="3 devices"):
        ask("--devices=0,1,2", "--nproc-per-node=2", "t.py")


def test_a_jax_process_may_have_several_devices() -> None:
    request = ask("--framework=jax", "--devices=0,1,2,3", "--nproc-per-node=2", "t.py")
    assert request.devices == ("0,1", "2,3")


def test_a_start_rank_needs_a_fixed_number_of_nodes() -> None:
    assert ask("--start-rank=4", "t.py").start_rank == 4
    with pytest.raises(UsageError, match="2 to 3 nodes"):
        ask("--nnodes=2:3", "--master-addr=a", "--start-rank=4", "t.py")


# Schedulers


SLURM = {
    "SLURM_JOB_ID": "4711", "SLURM_NODEID": "1", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "8(x2)",
    "SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_PROCID": "8", "SLURM_STEP_NUM_TASKS": "16",
}  # fmt: skip


def test_one_task_of_a_node_acts_and_the_others_are_told() -> None:
    acting, other = (ask("t.py", environ={**SLURM, "SLURM_LOCALID": local}) for local in ("0", "3"))
    assert (acting.acts, acting.nproc_per_node, acting.node_rank, acting.max_nodes) == (True, 8, 1, 2)
    assert (acting.master_addr, acting.job_id, acting.scheduler) == ("gpu07", "4711", "slurm")
    assert (other.acts, other.local_rank) == (False, 3)


def test_mpi_ranks_become_one_agent_per_node() -> None:
    environ = {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "MASTER_ADDR": "n0",
    }
    request = ask("t.py", environ=environ)
    assert (request.acts, request.node_rank, request.max_nodes, request.nproc_per_node) == (False, 1, 2, 2)


def test_a_pytorchjob_with_a_range_is_understood() -> None:
    environ = {"PET_NNODES": "2:4", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "w-0", "PET_NPROC_PER_NODE": "4"}
    request = ask("t.py", environ=environ)
    assert (request.min_nodes, request.max_nodes, request.node_rank, request.nproc_per_node) == (2, 4, 1, 4)


def test_flags_win_over_the_scheduler() -> None:
    environ = {**SLURM, "SLURM_LOCALID": "0"}
    request = ask("--nproc-per-node=2", "--master-port=4000", "t.py", environ=environ)
    assert (request.nproc_per_node, request.master_port) == (2, 4000)
    assert request.sources["node_rank"] == "SLURM_NODEID"
    assert request.sources["nproc_per_node"] == "--nproc-per-node"


def test_one_node_of_an_allocation_needs_no_node_rank_0() -> None:
    request = ask("--nnodes=1", "t.py", environ={**SLURM, "SLURM_LOCALID": "0"})
    assert (request.max_nodes, request.node_rank, request.master_addr) == (1, 0, "127.0.0.1")


# What the terminal shows


def test_redirected_and_teed_streams_are_passed_on_as_torchrun_writes_them() -> None:
    request = ask("-r", "3", "-t", "0:3,1:1", "--nproc-per-node=2", "t.py")
    assert request.torchrun == {"redirects": "3", "tee": "0:3,1:1"}
    assert ask("t.py").torchrun == {}


def test_the_filter_of_local_ranks_is_kept_and_checked() -> None:
    assert ask("--local-ranks-filter=1", "--nproc-per-node=2", "t.py").shown_local_ranks == (1,)
    with pytest.raises(UsageError, match="local rank 5"):
        ask("--local-ranks-filter=5", "t.py")


def test_the_level_of_nccls_log_never_swallows_the_script() -> None:
    assert ask("--nccl-log", "t.py").nccl_log == "INFO"
    assert ask("--nccl-log=warn", "t.py", "x").nccl_log == "WARN"
    assert ask("--nccl-log-subsystems=INIT,NET", "t.py").nccl_log == "INFO"
    with pytest.raises(UsageError, match="--nccl-log=WARN"):
        ask("--nccl-log", "WARN", "t.py")


def test_torchruns_log_folder_becomes_the_parent_of_ours() -> None:
    request = ask("--log-dir", "logs", "t.py")
    assert (request.report_dir, request.log_base) == (None, str(Path("logs").absolute()))
    assert ask("--report-dir", "r", "t.py").report_dir == str(Path("r").absolute())


# The rest


def test_graces_of_torchrun_and_of_ours() -> None:
    assert ask("t.py").grace_s == 30
    assert ask("--shutdown-timeout=7", "t.py").grace_s == 7
    assert ask("--shutdown-timeout=7", "--grace=3", "t.py").grace_s == 3
    assert ask("t.py", environ={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "9"}).grace_s == 9
    with pytest.raises(UsageError, match="TORCH_ELASTIC_SHUTDOWN_TIMEOUT"):
        ask("t.py", environ={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "soon"})


@pytest.mark.torch
def test_what_torchelastic_itself_understands_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch.numa.binding")
    monkeypatch.setattr("allready.launch.flags.which", lambda name: f"/usr/bin/{name}")
    request = ask("--numa-binding=socket", "--virtual-local-rank", "--signals-to-handle=SIGTERM,SIGUSR1", "t.py")
    assert request.torchrun == {
        "numa_binding": "socket",
        "virtual_local_rank": "1",
        "signals_to_handle": "SIGTERM,SIGUSR1",
    }
    variable = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${rank}] "}
    assert ask("t.py", environ=variable).torchrun == {"log_line_prefix_template": "[${rank}] "}
    with pytest.raises(UsageError, match="SIGFOO"):
        ask("--signals-to-handle=SIGFOO", "t.py")


@pytest.mark.jobs
@cases(("missing", "word"), [("torch", "needs 2.9"), ("numactl", "apt install numactl")])
def test_numa_binding_is_refused_where_it_cannot_be_had(
    missing: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        if missing == "torch":
            patch.setattr("allready.launch.flags.find_spec", lambda _name: None)
        else:
            pytest.importorskip("torch.numa.binding")
        patch.setattr("allready.launch.flags.which", lambda _name: None)
        with pytest.raises(UsageError, match=word):
            ask("--numa-binding=node", "t.py")


def test_what_has_no_meaning_here_is_accepted_and_said_once() -> None:
    request = ask("--start-method=fork", "--event-log-handler=console", "--logs-specs=mine", "t.py")
    assert keys(request) == ["launch.idle_forked", "launch.idle_events", "launch.idle_logs"]
    assert keys(ask("--start-method=spawn", "--event-log-handler=null", "t.py")) == []


def test_every_note_has_its_text_in_both_languages() -> None:
    requests = [
        ask("--start-method=fork", "--rdzv-conf=last_call_timeout=3", "t.py"),
        ask("--use-env", "--event-log-handler=console", "--logs-specs=mine", "t.py"),
        ask("--standalone", "--rdzv-endpoint=x:1", "t.py"),
        ask("--nnodes=2", "--master-addr=a", "--rdzv-endpoint=b:5", "--rdzv-backend=c10d", "--node-rank=1", "t.py"),
        ask("t.py", environ={"RANK": "16"}),
    ]
    seen = [note for request in requests for note in request.notes]
    assert {note.key for note in seen} == {f"launch.{key}" for key in table("en", "launch")}
    for note in seen:
        english, chinese = (ui(note.key, language, **note.values) for language in ("en", "zh"))
        assert english != chinese
        assert all(value in english and value in chinese for value in note.values.values())


def test_the_script_is_a_file_a_module_or_a_program() -> None:
    assert ask("-m", "pkg.train", "a").command.is_module
    assert ask("--no-python", "./go.sh").command.is_program
    command = ask("--run-path", "--no-python", "/x/t.py").command  # torchrun: --run-path takes precedence
    assert (command.run_path, command.is_program) == (True, False)
    with pytest.raises(UsageError, match="cannot be combined"):
        ask("-m", "--no-python", "x")
    with pytest.raises(UsageError, match="no script given"):
        ask("--nproc-per-node=2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2", Backoff(base_s=2.0)),
        ("90", Backoff(base_s=90.0, most_s=90.0)),
        ("1,8,0", Backoff(base_s=1.0, most_s=8.0, jitter=0.0)),
    ],
)
def test_backoffs_are_read(text: str, expected: Backoff) -> None:
    assert ask(f"--backoff={text}", "t.py").backoff == expected


@cases(
    "words",
    [
        ["--backoff=5,1"], ["--backoff=1,2,3"], ["--backoff=a"], ["--nnodes=0"], ["--nnodes=3:2"], ["--nnodes=a"],
        ["--max-restarts=-1"], ["--nproc-per-node=0"], ["--nproc-per-node=lots"], ["--wait=0"], ["--wait=nan"],
        ["--quiet-ranks=3-1"], ["--on-hang=pray"], ["--rdzv-conf=x"], ["--tee=9"], ["--master-port=ssh"],
        ["--quiet-ranks=0-99999999"], ["--hosts=,"], ["--numa-binding=moon"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_values_that_cannot_be_are_refused_by_the_parser(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parser().parse_args([*words, "t.py"])
    assert end.value.code == 2
    assert words[0].split("=")[0] in capsys.readouterr().err


@cases(
    ("text", "expected"),
    [
        ("h", ("h", None)), ("h:1", ("h", 1)), ("10.0.0.1:29500", ("10.0.0.1", 29500)), ("[::1]:5", ("::1", 5)),
        ("[fe80::1%eth0]", ("fe80::1%eth0", None)), ("fd00::2", ("fd00::2", None)), ("localhost:0", ("localhost", 0)),
    ],
)  # fmt: skip
def test_endpoints_are_split(text: str, expected: tuple[str, int | None]) -> None:
    assert split_endpoint(text) == expected


@cases("text", ["", "h:port", "h:99999", "a b:1", "h:1:2x", "http://h:1", "a,b"])
def test_endpoints_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        split_endpoint(text)


@pytest.mark.thorough
def test_random_orders_survive_being_written_out_and_read_again() -> None:
    chance = random.Random(4)
    choices = [[f"--{dest}", value] for dest, values in VALUES.items() for value in values]
    choices += [
        ["--backoff=1,2,0.5"],
        ["--standalone"],
        ["--nccl-log=WARN"],
        ["--devices", "0,GPU-1"],
        ["--ssh-option", "A=b c", "--ssh-option=C=d"],
        ["--quiet-ranks=1-3"],
        ["--hang-after=5"],
    ]
    for _ in range(200):
        words = [word for part in chance.sample(choices, 6) for word in part]
        args = parser().parse_args([*words, "train.py", "--x", "-m"])
        again = parser().parse_args(to_argv(args))
        assert vars(again) == vars(args)


# Whose script it is


@cases(
    ("source", "expected"),
    [
        ("import jax\n", "jax"),
        ("from jax.sharding import Mesh\nimport optax", "jax"),
        ("def main():\n    import flax.linen as nn\n", "jax"),
        ("import torch, jax\n", "torch"),
        ("import torch.distributed as dist\n", "torch"),
        ("print('hi')\n", "torch"),
        ("from . import jax\n", "torch"),
        ("import jax\nprint('unfinished'", "torch"),
        ("import jax\nx = '\\d'\n", "jax"),
        ("\x00\x01", "torch"),
    ],
)
def test_the_framework_is_seen_in_the_imports(tmp_path: Path, source: str, expected: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    assert framework_of(str(script)) == expected
    assert ask(str(script)).framework == expected
    assert ask("--framework=torch", str(script)).framework == "torch"


def test_a_script_that_cannot_be_looked_at_is_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none.py", tmp_path, tmp_path / "pipe"):
        assert framework_of(str(path)) == "torch"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text("import jax\n")
    assert framework_of("pkg", is_module=True) == "jax"
    assert framework_of("pkg.other", is_module=True) == "torch"
