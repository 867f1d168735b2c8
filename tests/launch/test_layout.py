"""What each scheduler's variables mean, one table per scheduler, and what contradicts itself."""

from typing import Any

import pytest

from allready.errors import UsageError
from allready.launch.layout import Layout, first_of_nodelist, lay_out, tasks_on_node
from tests.cases import cases


def lay(environ: dict[str, str], gpus: int = 0, **flags: Any) -> Layout:
    return lay_out(flags, environ, count_gpus=lambda: gpus)


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

TABLE = [
    # scheduler, variables, (nodes, node_rank, nproc, master, port, job id)
    ("torchrun", TORCHRUN, (2, 1, 4, "gpu01", 29501, "job7")),
    ("slurm", SLURM, (2, 1, 4, "gpu007", 24711, "4711")),
    ("openmpi", OPENMPI, (2, 1, 2, "gpu01", 23456, "none")),
    ("mpich", MPICH, (2, 1, 2, "gpu01", 29500, "none")),
    ("kubernetes-pytorchjob", PYTORCHJOB, (2, 1, 8, "job-master-0", 23456, "none")),
    ("kubernetes-pytorchjob-v1", PYTORCHJOB_V1, (2, 1, 1, "job-master-0", 23456, "none")),
    ("kubernetes-indexed-job", INDEXED_JOB, (2, 1, 1, "train-0.svc", 29500, "none")),
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
     (MPICH, "MPI_LOCALRANKID")],
)  # fmt: skip
def test_only_local_rank_0_acts_for_its_node(environ: dict[str, str], local: str) -> None:
    rank = {
        "LOCAL_RANK": "RANK",
        "SLURM_LOCALID": "SLURM_PROCID",
        "OMPI_COMM_WORLD_LOCAL_RANK": "OMPI_COMM_WORLD_RANK",
        "MPI_LOCALRANKID": "PMI_RANK",
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
        ({}, {"num_nodes": 0}, "--nnodes 0: 1 to 65536"),
        ({}, {"nproc_per_node": "many"}, "gpu, cpu or auto"),
        ({}, {"nproc_per_node": "gpu"}, "no GPU"),
        ({}, {"nproc_per_node": 3, "devices": ("0", "1")}, "--devices names 2"),
        ({}, {"nproc_per_node": 0}, "--nproc-per-node 0: 1 to 1024"),
        ({}, {"master_port": 70000}, "65535"),
        ({**PYTORCHJOB, "PET_NNODES": "1:4"}, {}, "--nnodes 4"),
        ({**TORCHRUN, "RANK": "four"}, {}, "RANK='four' is not a number"),
        ({"JOB_COMPLETION_INDEX": "1"}, {}, "--nnodes"),
        ({**OPENMPI, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, {}, "--node-rank"),
        ({**OPENMPI, "OMPI_COMM_WORLD_SIZE": "5"}, {}, "--nnodes"),
        ({k: v for k, v in OPENMPI.items() if k != "MASTER_ADDR"}, {}, "-x MASTER_ADDR"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "4"}, {}, "this is node 1"),
        ({**SLURM, "SLURM_STEP_NODELIST": "[[["}, {}, "node list"),
    ],
)
def test_says_what_is_missing_or_contradictory(environ: dict[str, str], flags: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("[", r"\[").replace("|", r"\|")):
        lay(environ, **flags)


@cases(
    ("text", "first"),
    [
        ("gpu01", "gpu01"), ("gpu01,gpu02", "gpu01"), ("gpu[003-007,11],login1", "gpu003"), ("gpu[9]", "gpu9"),
        ("rack[1-2]node[3-4]", "rack1node3"), ("a[1-2]-ib,b", "a1-ib"), ("10.0.0.1,10.0.0.2", "10.0.0.1"),
    ],
)  # fmt: skip
def test_first_host_of_a_slurm_node_list(text: str, first: str) -> None:
    assert first_of_nodelist(text) == first


@cases(("text", "node", "count"), [("2(x3),1", 2, 2), ("2(x3),1", 3, 1), ("8", 0, 8), ("1,4", 1, 4)])
def test_tasks_per_node_in_slurms_words(text: str, node: int, count: int) -> None:
    assert tasks_on_node(text, node) == count
