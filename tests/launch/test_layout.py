"""What each scheduler's variables mean, one table per scheduler, and what contradicts itself."""

from typing import Any

import pytest

from allready.errors import UsageError
from allready.launch.host_lists import expand_nodelist, hosts_in, tasks_on_node
from allready.launch.identity import Identity
from allready.launch.layout import Layout, lay_out
from allready.launch.scheduler_values import Machine
from allready.text.ui import ui
from tests.cases import cases

HOST_FILE = "gpu01.cluster\ngpu01.cluster\ngpu02.cluster\n"


def machine(name: str = "gpu02", address: str = "10.0.0.2") -> Machine:
    """A machine of that name, whose only file is a host file."""

    def read(path: str) -> str:
        if path != "/var/spool/hosts":
            raise FileNotFoundError(2, "No such file or directory", path)
        return HOST_FILE

    own = Identity(names=(name,), addresses=(address,), resolve=lambda word: ())
    return Machine(identify=lambda: own, address=lambda: address, read=read)


def lay(environ: dict[str, str], gpus: int = 0, *, of: Machine | None = None, **flags: Any) -> Layout:
    return lay_out(flags, environ, count_gpus=lambda: gpus, machine=of or machine())


TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "job7", "TORCHELASTIC_USE_AGENT_STORE": "True", "GROUP_WORLD_SIZE": "2", "GROUP_RANK": "1",
    "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "0", "RANK": "4", "WORLD_SIZE": "8", "MASTER_ADDR": "gpu01",
    "MASTER_PORT": "29500",
}  # fmt: skip
SLURM = {
    "SLURM_JOB_ID": "4711", "SLURM_NODEID": "1", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_LOCALID": "0", "SLURM_PROCID": "4", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NODELIST": "gpu[007-008]",
}  # fmt: skip
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "gpu01", "MASTER_PORT": "23456",
}  # fmt: skip
MPICH = {
    "PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2", "MASTER_ADDR": "gpu01",
}  # fmt: skip
PALS = {
    "PALS_RANKID": "2", "PALS_LOCAL_RANKID": "0", "PALS_NODEID": "1", "PMI_RANK": "2", "PMI_SIZE": "4",
    "PMI_LOCAL_RANK": "0", "PMI_LOCAL_SIZE": "2", "PBS_JOBID": "4711.head", "PBS_NODEFILE": "/var/spool/hosts",
    "MASTER_ADDR": "gpu01",
}  # fmt: skip
JSRUN = {
    "JSM_NAMESPACE_RANK": "2", "JSM_NAMESPACE_SIZE": "4", "JSM_NAMESPACE_LOCAL_RANK": "0",
    "JSM_NAMESPACE_LOCAL_SIZE": "2", "LSB_JOBID": "4711", "LSB_HOSTS": "batch gpu01 gpu02", "MASTER_ADDR": "gpu01",
}  # fmt: skip
PYTORCHJOB = {
    "PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "8", "PET_MASTER_ADDR": "job-master-0",
    "PET_MASTER_PORT": "23456", "KUBERNETES_SERVICE_HOST": "10.96.0.1", "RANK": "1", "WORLD_SIZE": "2",
    "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456",
}  # fmt: skip
PYTORCHJOB_V1 = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1", "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0",
    "MASTER_PORT": "23456",
}  # fmt: skip
INDEXED_JOB = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1", "JOB_COMPLETION_INDEX": "1", "NNODES": "2", "MASTER_ADDR": "train-0.svc",
}  # fmt: skip
PLAIN = {
    "MASTER_ADDR": "gpu01", "MASTER_PORT": "29400", "RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
}  # fmt: skip

LEADER_WORKER_SET = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1", "LWS_LEADER_ADDRESS": "train-0.train.default", "LWS_GROUP_SIZE": "2",
    "LWS_WORKER_INDEX": "1",
}  # fmt: skip
SKYPILOT = {
    "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
    "SKYPILOT_NUM_GPUS_PER_NODE": "8", "SKYPILOT_TASK_ID": "sky-1", "KUBERNETES_SERVICE_HOST": "10.96.0.1",
}  # fmt: skip
AWS_BATCH = {
    "AWS_BATCH_JOB_ID": "b7#1", "AWS_BATCH_JOB_NUM_NODES": "2", "AWS_BATCH_JOB_NODE_INDEX": "1",
    "AWS_BATCH_JOB_MAIN_NODE_INDEX": "0", "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": "10.0.0.1",
}  # fmt: skip
PBS = {"PBS_JOBID": "4711.head", "PBS_NODEFILE": "/var/spool/hosts"}
LSF = {"LSB_JOBID": "4711", "LSB_MCPU_HOSTS": "gpu01 8 gpu02 8", "LSB_HOSTS": "gpu01 gpu01 gpu02 gpu02"}
PROLOG = {
    "SLURM_JOB_ID": "4711", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURMD_NODENAME": "gpu02",
    "SLURM_JOB_NUM_NODES": "2", "SLURM_NODELIST": "gpu[01-02]",
}  # fmt: skip
ELASTIC = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1", "PET_NNODES": "1", "PET_RDZV_ENDPOINT": "job-worker-0:23456",
    "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "abc", "PET_NPROC_PER_NODE": "8",
}  # fmt: skip

TABLE = [
    # scheduler, variables, (nodes, node_rank, nproc, master, port, job id)
    ("torchrun", TORCHRUN, (2, 1, 4, "gpu01", 29501, "job7")),
    ("slurm", SLURM, (2, 1, 4, "gpu007", 24711, "4711")),
    ("openmpi", OPENMPI, (2, 1, 2, "gpu01", 23456, "none")),
    ("mpich", MPICH, (2, 1, 2, "gpu01", 29500, "none")),
    ("pals", PALS, (2, 1, 2, "gpu01", 24711, "4711.head")),
    ("jsrun", JSRUN, (2, 1, 2, "gpu01", 24711, "4711")),
    ("kubernetes-pytorchjob", PYTORCHJOB, (2, 1, 8, "job-master-0", 23456, "none")),
    ("kubernetes-pytorchjob-v1", PYTORCHJOB_V1, (2, 1, 1, "job-master-0", 23456, "none")),
    ("kubernetes-indexed-job", INDEXED_JOB, (2, 1, 1, "train-0.svc", 29500, "none")),
    ("kubernetes-leaderworkerset", LEADER_WORKER_SET, (2, 1, 1, "train-0.train.default", 29500, "none")),
    ("skypilot", SKYPILOT, (2, 1, 8, "10.0.0.1", 29500, "sky-1")),
    ("aws-batch", AWS_BATCH, (2, 1, 1, "10.0.0.1", 29500, "b7")),
    ("pbs", PBS, (2, 1, 1, "gpu01.cluster", 24711, "4711.head")),
    ("lsf", LSF, (2, 1, 1, "gpu01", 24711, "4711")),
    ("slurm-prolog", PROLOG, (2, 1, 1, "gpu01", 24711, "4711")),
    ("kubernetes-pytorchjob-elastic", ELASTIC, (1, 0, 8, "job-worker-0", 23456, "abc")),
    ("environment", PLAIN, (2, 1, 2, "gpu01", 29400, "none")),
]


@cases(("name", "environ", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_reads_the_variables_of_every_scheduler(
    name: str, environ: dict[str, str], expected: tuple[int, int, int, str, int, str]
) -> None:
    layout = lay(environ)
    launch = layout.launch
    seen = (
        launch.num_nodes,
        launch.node_rank,
        launch.nproc_per_node,
        launch.master_addr,
        launch.master_port,
        launch.job_id,
    )
    assert (launch.scheduler, seen) == (name, expected)
    assert layout.acts


@cases(
    ("environ", "local"),
    [(TORCHRUN, "LOCAL_RANK"), (SLURM, "SLURM_LOCALID"), (OPENMPI, "OMPI_COMM_WORLD_LOCAL_RANK"),
     (MPICH, "MPI_LOCALRANKID"), (PALS, "PALS_LOCAL_RANKID"), (JSRUN, "JSM_NAMESPACE_LOCAL_RANK")],
)  # fmt: skip
def test_only_local_rank_0_acts_for_its_node(environ: dict[str, str], local: str) -> None:
    rank = {
        "LOCAL_RANK": "RANK",
        "SLURM_LOCALID": "SLURM_PROCID",
        "OMPI_COMM_WORLD_LOCAL_RANK": "OMPI_COMM_WORLD_RANK",
        "MPI_LOCALRANKID": "PMI_RANK",
        "PALS_LOCAL_RANKID": "PALS_RANKID",
        "JSM_NAMESPACE_LOCAL_RANK": "JSM_NAMESPACE_RANK",
    }[local]
    second = {**environ, local: "1", rank: str(int(environ[rank]) + 1)}
    layout = lay(second)
    assert not layout.acts
    assert layout.launch.node_rank == 1


def test_what_started_this_process_comes_before_the_allocation_around_it() -> None:
    assert lay({**SLURM, **OPENMPI}).launch.scheduler == "openmpi"
    assert lay({**SLURM, **TORCHRUN}).launch.scheduler == "torchrun"


def test_srun_with_pmi2_is_slurm_and_not_mpich() -> None:
    assert lay({**SLURM, "PMI_RANK": "4", "PMI_SIZE": "8"}).launch.scheduler == "slurm"


def test_a_flag_wins_over_a_variable_and_the_source_is_kept() -> None:
    launch = lay(SLURM, num_nodes=3, master_port=1234).launch
    assert (launch.num_nodes, launch.master_port) == (3, 1234)
    assert launch.sources["num_nodes"] == "--nnodes"
    assert launch.sources["node_rank"] == "SLURM_NODEID"


def test_without_anything_it_is_one_node_with_all_gpus_or_two_cpu_ranks() -> None:
    assert lay({}, gpus=4).launch.nproc_per_node == 4
    assert (lay({}).launch.num_nodes, lay({}).launch.nproc_per_node) == (1, 2)


@cases(("asked", "gpus", "expected"), [("gpu", 3, 3), ("cpu", 3, 2), ("auto", 0, 2), ("5", 3, 5)])
def test_nproc_in_torchruns_words(asked: str, gpus: int, expected: int) -> None:
    assert lay({}, gpus=gpus, nproc_per_node=asked).launch.nproc_per_node == expected


@cases(
    ("environ", "flags", "words"),
    [
        ({}, {"num_nodes": 2}, "--node-rank"),
        ({}, {"num_nodes": 2, "node_rank": 1}, "--master-addr"),
        ({}, {"num_nodes": 2, "node_rank": 2, "master_addr": "a"}, "0 to 1"),
        ({}, {"num_nodes": 0}, "--nnodes 0 is not between 1 and 65536"),
        ({}, {"nproc_per_node": "many"}, "gpu, cpu or auto"),
        ({}, {"nproc_per_node": "gpu"}, "no GPU"),
        ({}, {"nproc_per_node": 3, "devices": ("0", "1")}, "--devices names 2"),
        ({}, {"nproc_per_node": 0}, "--nproc-per-node 0 is not between 1 and 1024"),
        ({}, {"master_port": 70000}, "65535"),
        ({**PYTORCHJOB, "PET_NNODES": "1:4"}, {}, "--nnodes 4"),
        ({**TORCHRUN, "RANK": "four"}, {}, "RANK='four' is not a number"),
        ({"JOB_COMPLETION_INDEX": "1"}, {}, "--nnodes"),
        ({**OPENMPI, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, {}, "--node-rank"),
        ({**OPENMPI, "OMPI_COMM_WORLD_SIZE": "5"}, {}, "--nnodes"),
        ({k: v for k, v in OPENMPI.items() if k != "MASTER_ADDR"}, {}, "-x MASTER_ADDR"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "4"}, {}, "this is node 1"),
        ({**SLURM, "SLURM_STEP_NODELIST": "[[["}, {}, "node list"),
        ({**ELASTIC, "PET_NNODES": "1:2"}, {}, "--nnodes 2"),
        ({**ELASTIC, "PET_NNODES": "2"}, {}, "--node-rank"),
        ({**PBS, "PBS_NODEFILE": "/gone"}, {}, "PBS_NODEFILE=/gone: No such file"),
        ({**LSF, "LSB_MCPU_HOSTS": "gpu03 8 gpu04 8"}, {}, "the rank of this node is missing"),
    ],
)
def test_says_what_is_missing_or_contradictory(environ: dict[str, str], flags: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("[", r"\[").replace("|", r"\|")):
        lay(environ, **flags)


@cases(
    ("kind", "text", "hosts"),
    [
        ("nodelist", "gpu01", ("gpu01",)), ("nodelist", "gpu01,gpu02", ("gpu01", "gpu02")),
        ("nodelist", "gpu[003-005,11],login1", ("gpu003", "gpu004", "gpu005", "gpu11", "login1")),
        ("nodelist", "gpu[9]", ("gpu9",)), ("nodelist", "a[1-2]-ib,b", ("a1-ib", "a2-ib", "b")),
        ("nodelist", "rack[1-2]node[3-4]", ("rack1node3", "rack1node4", "rack2node3", "rack2node4")),
        ("nodelist", "10.0.0.1,10.0.0.2", ("10.0.0.1", "10.0.0.2")), ("pairs", "a 8 b 4", ("a", "b")),
        ("words", '["algo-1","algo-2"]', ("algo-1", "algo-2")), ("words", "a a\nb", ("a", "b")),
    ],
)  # fmt: skip
def test_lists_of_hosts_in_the_schedulers_words(kind: str, text: str, hosts: tuple[str, ...]) -> None:
    assert hosts_in(kind, text) == hosts


def test_a_node_list_without_end_is_refused_and_not_expanded() -> None:
    endless = ("gpu[0-999999999999]", "gpu[" + "9" * 5000 + "]", "a[0-9999]b[0-9999]", "a[0-60000]b[0-60000]c[0-60000]")
    for text in (*endless, "gpu[5-3]", "gpu[a-b]", "gpu[1"):
        with pytest.raises(UsageError, match="node list"):
            expand_nodelist(text)
    assert len(expand_nodelist("a[0-99]b[0-99]")) == 10_000
    with pytest.raises(UsageError, match="tasks per node"):
        tasks_on_node("9" * 5000, 0)


@cases(("text", "node", "count"), [("2(x3),1", 2, 2), ("2(x3),1", 3, 1), ("8", 0, 8), ("1,4", 1, 4)])
def test_tasks_per_node_in_slurms_words(text: str, node: int, count: int) -> None:
    assert tasks_on_node(text, node) == count


@cases(
    ("environ", "flags", "expected"),
    [
        # One task per node, several ranks in each: mpirun --map-by ppr:1:node allready run --nproc-per-node 2
        ({**OPENMPI, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
         {"nproc_per_node": 2}, (2, 1, 2)),
        (OPENMPI, {"nproc_per_node": 8}, (2, 1, 8)),
        ({**MPICH, "PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "1"}, {"nproc_per_node": 3}, (3, 1, 3)),
    ],
)  # fmt: skip
def test_the_number_of_nodes_follows_from_the_launchers_tasks_and_not_from_the_ranks_asked_for(
    environ: dict[str, str], flags: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    launch = lay(environ, **flags).launch
    assert (launch.num_nodes, launch.node_rank, launch.nproc_per_node) == expected


@cases(
    ("environ", "expected"),
    [
        # node 1 is the main one: node 0 moves up, and only the main node has no variable with its address
        ({**AWS_BATCH, "AWS_BATCH_JOB_MAIN_NODE_INDEX": "1", "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": ""},
         (0, "10.0.0.2")),
        ({**AWS_BATCH, "AWS_BATCH_JOB_MAIN_NODE_INDEX": "1", "AWS_BATCH_JOB_NODE_INDEX": "0"}, (1, "10.0.0.1")),
        ({**AWS_BATCH, "AWS_BATCH_JOB_NUM_NODES": "3", "AWS_BATCH_JOB_NODE_INDEX": "2"}, (2, "10.0.0.1")),
    ],
)  # fmt: skip
def test_the_main_node_of_an_aws_batch_job_is_node_0(environ: dict[str, str], expected: tuple[int, str]) -> None:
    launch = lay(environ).launch
    assert (launch.node_rank, launch.master_addr) == expected


BATCH = {
    "SLURM_JOB_ID": "4711", "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_JOB_NODELIST": "gpu[007-008]", "SLURM_NTASKS": "4",
}  # fmt: skip
SALLOC = {k: v for k, v in BATCH.items() if k not in {"SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"}}
INTERACTIVE = {**BATCH, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_NODES": "1"}


@cases("environ", [BATCH, SALLOC, INTERACTIVE])
def test_a_slurm_script_of_several_nodes_without_srun_is_sent_to_srun(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="put srun --nodes=2 --ntasks-per-node=1 before the command"):
        lay(environ)
    assert lay(environ, num_nodes=1).launch.num_nodes == 1
    launch = lay(environ, num_nodes=2, node_rank=1).launch  # his own way to start the other one
    assert (launch.num_nodes, launch.node_rank, launch.master_addr) == (2, 1, "gpu007")


def test_the_script_of_a_heterogeneous_slurm_job_is_sent_to_srun_for_all_its_parts() -> None:
    """As Slurm 22.05 sets them: the script's own nodes are those of the first part."""
    parts = {"SLURM_HET_SIZE": "2", "SLURM_JOB_NUM_NODES_HET_GROUP_0": "1", "SLURM_JOB_NUM_NODES_HET_GROUP_1": "3"}
    script = {**BATCH, "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_TASKS_PER_NODE": "1", **parts}
    with pytest.raises(UsageError, match=r"job of 4 nodes.* put srun --het-group=0-1 --ntasks-per-node=1 before"):
        lay(script)
    assert lay(script, num_nodes=1).launch.num_nodes == 1
    step = {**SLURM, "SLURM_STEP_ID": "0", **parts}  # over all parts: its variables are of all of them
    assert (lay(step).launch.num_nodes, lay(step).launch.node_rank) == (2, 1)


def test_a_slurm_script_of_one_node_needs_no_srun_and_has_all_gpus() -> None:
    one = {**BATCH, "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_TASKS_PER_NODE": "4"}
    launch = lay(one, gpus=8).launch
    assert (launch.num_nodes, launch.nproc_per_node) == (1, 8)


def test_a_step_of_one_node_in_a_job_of_two_is_one_node() -> None:
    step = {**SLURM, "SLURM_JOB_NUM_NODES": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0",
            "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_STEP_ID": "3"}  # fmt: skip
    assert lay(step).launch.num_nodes == 1


SEVERAL = [
    {"DSTACK_NODES_NUM": "2", "DSTACK_NODE_RANK": "0"},
    {"AZUREML_NODE_COUNT": "4"},
    {"MLP_WORKER_NUM": "2"},
    {"FLUX_JOB_NNODES": "2"},
    {"NNODES": "2"},
    {"WORLD_SIZE": "16"},
    {"JSM_NAMESPACE_WORLD_SIZE": "4"},
    {"NODE_RANK": "1"},
    {"SM_HOSTS": '["algo-1","algo-2"]'},
    {"COBALT_NODEFILE": "/var/spool/hosts"},
    {"X_NUM_NODES": "1:4"},
    {"MASTER_ADDR": "gpu01", "RANK": "1", "WORLD_SIZE": "2"},  # ranks or nodes? a pod elsewhere, or a process
    {"PMI_SIZE": "2", "PMI_RANK": "0"},
    {"PMIX_SIZE": "2", "PMIX_RANK": "0"},
    {"HOROVOD_SIZE": "2", "HOROVOD_RANK": "0"},
    {"FLUX_JOB_SIZE": "2", "FLUX_TASK_RANK": "0"},
    {"_CONDOR_NPROCS": "2", "_CONDOR_PROCNO": "0"},
    {"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "0"},
    {"DMLC_NUM_WORKER": "2", "DMLC_ROLE": "worker"},
    {"PJM_NODE": "2"},
    {"BEAKER_REPLICA_COUNT": "2", "BEAKER_REPLICA_RANK": "0"},
    {"HOST_NUM": "2", "INDEX": "0"},
    {"STARTER_RANK": "0", "STARTER_SIZE": "4"},
    {"STARTER_PROC_ID": "3", "STARTER_NUM_PROCS": "8"},
    {"GANG_PROCESS_INDEX": "0", "GANG_PROCESS_COUNT": "2"},
    {"FOO_RANK": "3", "FOO_SIZE": "8"},
    {"X_PROC_ID": "0", "X_NUM_PROCS": "4"},
    {"X_RANK": "5", "X_SIZE": "9408"},
    {"PMIX_RANK": "1"},
    {"RANK": "1", "LOCAL_RANK": "1"},
    {"RANK": "1", "MASTER_ADDR": "localhost"},
    {"RANK": "1", "WORLD_SIZE": "1"},
    {"PE": "3", "PMIX_NAMESPACE": "prterun-gpu01-7@1"},
    {"RANK": "0", "SIZE": "16", "MASTER_PORT": "29500"},
    {"PROCESS_ID": "0", "NUM_PROCESSES": "4", "COORDINATOR_ADDRESS": "gpu02:1234"},
    {"POOL_RANK": "1", "POOL_SIZE": "20", "POOL_LOCAL_RANK": "1"},
    {"BATCH_RANK": "1", "BATCH_SIZE": "8", "BATCH_MASTER_PORT": "7000"},
    {"PAGE_RANK": "1", "PAGE_SIZE": "16", "PAGE_NODE_NAME": "a"},
    {"X_PROC_ID": "4", "X_NUM_PROCS": "4", "X_HOST": "gpu02"},  # numbered from 1
    {"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-gpu01-7@1"},
    {"ALPS_APP_PE": "3"},
    {"NODE_IP_LIST": "10.0.0.1:8,10.0.0.2:8"},
    {"DSTACK_NODES_IPS": "10.0.0.1\n10.0.0.2"},
    {"DET_CONTAINER_ADDRS": '["10.0.0.1","10.0.0.2"]'},
    {"BATCH_HOSTS_FILE": "/var/spool/hosts"},
    {"NOMAD_ALLOC_INDEX": "1"},
    {"X_HOST_INDEX": "0", "X_HOSTS": "gpu01,gpu02"},
    {"X_HOST_INDEX": "1"},
    {"X_MACHINE_ID": "0", "X_MACHINES": "3"},
    {"MODAL_CONTAINER_RANK": "0", "MODAL_CLUSTER_SIZE": "2"},
    {"X_JOB_TOTAL_WORKERS": "2", "X_JOB_WORKER_INDEX": "0"},
    {"LWS_LEADER_ADDRESS": "lws-0.lws", "LWS_GROUP_SIZE": "4"},  # without the place, which older ones do not set
    {"OMPI_MCA_orte_default_hostfile": "/var/spool/hosts"},
    {"LSB_JOBID": "9", "LSB_DJOB_RANKFILE": "/var/spool/hosts"},
    {"TF_CONFIG": '{"cluster": {"chief": ["a:2222"], "worker": ["b:2222"]}, "task": {"type": "chief", "index": 0}}'},
    {"CLUSTER_SPEC": '{"cluster": {"workerpool0": ["a:2222"], "workerpool1": ["b:2222"]}, "task": {}}'},
]


@cases("environ", SEVERAL, ids=[str(row) for row in SEVERAL])
def test_a_launcher_that_is_not_known_is_never_taken_for_one_node(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"--nnodes 1 for this node alone"):
        lay(environ)
    assert lay(environ, num_nodes=1).launch.num_nodes == 1


ALONE = [
    {"DSTACK_NODES_NUM": "1", "DSTACK_NODE_RANK": "0"},
    {"WORLD_SIZE": "1", "RANK": "0"},
    {"LOCAL_WORLD_SIZE": "8"},
    {"TENSOR_PARALLEL_WORLD_SIZE": "4"},
    {"NUM_NODES": "many"},
    {"COBALT_NODEFILE": "/gone"},
    {"NUM_WORKERS": "8"},  # a loader's
    {"SM_HOSTS": '["algo-1"]'},
    {"ALLOWED_HOSTS": "a,b"},
    {"OMP_NUM_THREADS": "8", "NPROCS": "8", "WEB_CONCURRENCY": "2"},
    {"SLURM_ARRAY_TASK_ID": "3", "SGE_TASK_ID": "4", "BATCH_TASK_INDEX": "2", "BATCH_TASK_COUNT": "9"},  # each alone
    {"PALS_NODEID": "0"},
    {"LORA_RANK": "16", "BATCH_SIZE": "64", "HIDDEN_SIZE": "4096"},
    {"LORA_RANK": "16", "LORA_SIZE": "8"},
    {"PROCESS_ID": "4231", "PROCESS_COUNT": "8"},
    {"PROCESS_ID": "1234", "NUM_PROCESSES": "8"},
    {"FOO_RANK": "9", "FOO_SIZE": "8"},
    {"CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "4"},
    {"CIRCLE_NODE_INDEX": "1", "CIRCLE_NODE_TOTAL": "4"},
    {"RANK": "0"},
    {"X_HOSTS": "gpu01,gpu02", "Y_HOST_ID": "7", "GROUP_SIZE": "128", "MIN_CLUSTER_SIZE": "5", "KAFKA_NODES": "3"},
    {"X_POD_ID": "71", "X_PODS": "3"},
    {"STARTER_RANK": "0", "STARTER_SIZE": "1"},
    {"STARTER_SIZE": "4", "OTHER_RANK": "1"},
    {"MODEL_PARALLEL_RANK": "1", "MODEL_PARALLEL_SIZE": "4"},
    {"TF_CONFIG": '{"cluster": {"worker": ["a:2222"]}, "task": {"type": "worker", "index": 0}}'},
    {"TF_CONFIG": "[" * 100_000},
    {"CLUSTER_SPEC": '{"cluster": 7}'},
    {"MASTER_ADDR": "localhost"},
    {"MASTER_ADDR": "127.0.0.1"},
    {"MASTER_ADDR": "::1"},
    {"MASTER_ADDR": "gpu02.cluster"},  # this machine's name
    {"MASTER_ADDR": "10.0.0.2"},
]


DOUBTFUL = [
    ({"RANK": "16"}, "RANK", "N"),  # of LoRA
    ({"PE": "3"}, "PE", "N"),
    ({"RANK": "0", "SIZE": "16"}, "SIZE", "16"),
    ({"RANK": "0", "TOTAL": "8"}, "TOTAL", "8"),
    ({"PROC_ID": "0", "NPROCS": "4"}, "NPROCS", "4"),
    ({"SVD_RANK": "32", "SVD_SIZE": "100"}, "SVD_SIZE", "100"),
    ({"PAGE_RANK": "1", "PAGE_SIZE": "4096"}, "PAGE_SIZE", "N"),
    ({"MATRIX_RANK": "16", "MATRIX_SIZE": "4096"}, "MATRIX_SIZE", "N"),
    ({"EMBEDDING_RANK": "16", "EMBEDDING_SIZE": "1024"}, "EMBEDDING_SIZE", "1024"),
    ({"DB_POOL_RANK": "1", "DB_POOL_SIZE": "20", "DB_HOST": "db", "PORT": "80"}, "DB_POOL_SIZE", "20"),
    ({"REPLICAS": "4", "REPLICA_INDEX": "1"}, "REPLICAS", "4"),
    ({"X_PROC_ID": "4", "X_NUM_PROCS": "4"}, "X_NUM_PROCS", "4"),  # numbered from 1, or no number of a process
]


@cases(("environ", "name", "count"), DOUBTFUL)
def test_a_name_with_another_meaning_stops_nothing_and_is_said(environ: dict[str, str], name: str, count: str) -> None:
    layout = lay(environ)
    assert layout.launch.num_nodes == 1
    [note] = layout.notes
    assert note.values == {"name": name, "value": environ[name], "count": count}
    assert note.values["value"] in ui(note.key, "en", **note.values)
    assert lay(environ, num_nodes=1).notes == ()


def test_a_number_beyond_all_clusters_is_never_proposed_as_that_of_nodes() -> None:
    with pytest.raises(UsageError, match=r"X_SIZE=9408 is set.*--nnodes N "):
        lay({"X_RANK": "5", "X_SIZE": "9408"})


@cases("environ", ALONE, ids=[str(row) for row in ALONE])
def test_what_speaks_for_one_node_or_for_nothing_is_no_question(environ: dict[str, str]) -> None:
    layout = lay(environ)
    assert (layout.launch.num_nodes, layout.notes) == (1, ())


@cases("master", ["gpu01", "10.0.0.1", "fd00::7", "worker.example.org"])
def test_a_master_on_another_machine_is_never_one_node(master: str) -> None:
    ways: list[tuple[dict[str, str], dict[str, Any], str]] = [
        ({"MASTER_ADDR": master}, {}, "MASTER_ADDR"),
        ({}, {"master_addr": master}, "--master"),
    ]
    for environ, flags, name in ways:
        with pytest.raises(UsageError, match=rf"^{name}.* is another machine"):
            lay(environ, **flags)
        assert lay(environ, **flags, num_nodes=1).launch.num_nodes == 1


@cases("master", ["127.0.0.1", "::1", "0.0.0.0", "localhost"])
def test_a_master_on_this_machine_is_one_node(master: str) -> None:
    assert lay({"MASTER_ADDR": master}).launch.num_nodes == 1


def test_steps_that_run_at_once_are_jobs_of_their_own() -> None:
    def meeting(step: str, **more: str) -> tuple[str, int]:
        launch = lay(SLURM | {"SLURM_STEP_ID": step} | more).launch
        return launch.job_id, launch.master_port

    assert meeting("0") == ("4711", 24711)
    assert len({meeting(str(step)) for step in range(40)}) == 40
    assert len({meeting(str(step))[1] for step in range(40)} | {24712, 24713}) == 42  # nor the next jobs'
    assert meeting("1")[0] == "4711.1"
    assert all(20_000 <= meeting(str(step))[1] < 30_000 for step in (1, 9, 99, 9999, 123_456))
    assert meeting("1", MASTER_PORT="29500") == ("4711.1", 29500)
    assert meeting("4294967291") == ("4711", 24711)  # the batch script's own
    # Started by one srun per node, with the number of nodes given: these meet.
    parts = [lay(SLURM | {"SLURM_STEP_ID": step}, num_nodes=2, node_rank=int(step)).launch for step in "01"]
    assert {(launch.job_id, launch.master_port) for launch in parts} == {("4711", 24711)}


def test_flags_win_over_a_list_of_hosts() -> None:
    launch = lay(PBS, of=machine("gpu01"), node_rank=1, num_nodes=3, master_addr="a").launch
    assert (launch.num_nodes, launch.node_rank, launch.master_addr) == (3, 1, "a")
    launch = lay(PBS, of=machine("gpu01"), node_rank=1).launch
    assert (launch.num_nodes, launch.node_rank, launch.master_addr) == (2, 1, "gpu01.cluster")
    assert lay(PBS, of=machine("gpu01")).launch.node_rank == 0
    assert lay(PBS, of=machine("elsewhere"), num_nodes=1).launch.num_nodes == 1


def test_a_prolog_knows_its_node_by_slurms_name_for_it() -> None:
    assert lay(PROLOG, of=machine("another-name")).launch.node_rank == 1
