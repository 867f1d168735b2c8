"""Tables: which variables of each scheduler hold what a node needs to know.  The logic is in `allready.launch.layout`.

A table maps our fields to the variables that may hold them, best first.  `kind` is how to read the value:

    int            a decimal number
    number         a decimal number, not set where it is 0
    text           as it stands
    endpoint_host, endpoint_port: the parts of torchrun's HOST:PORT
    before_hash    what stands before a "#"
    first_word     the first of several words
    nodelist_first the first host of a Slurm node list
    tasks_here     Slurm's "2(x3),1" at the place of this node
    port_of_id     a port derived from a job id, equal on all nodes of the job and different for most others

`Scheduler.hosts` are lists of the job's nodes, of which the number of nodes, the place of this one and node 0 follow:

    nodelist       Slurm's gpu[003-007,11]
    words          host host ..., one for each slot
    pairs          host slots host slots ...
    file           the path of a file with a host in each line, one for each slot

Sources: torch/distributed/run.py and torch/distributed/argparse_util.py (PET_*); Slurm's srun manual, "OUTPUT
ENVIRONMENT VARIABLES"; Open MPI's mpirun manual; MPICH's hydra and Intel MPI's developer guide; Kubernetes
"Indexed Job" (JOB_COMPLETION_INDEX); the Kubeflow training operator (PyTorchJob sets the PET_ variables and, for the
whole pod, RANK = index of the pod, WORLD_SIZE = number of pods); LeaderWorkerSet (LWS_*); SkyPilot "Distributed
multi-node jobs" (SKYPILOT_*); AWS Batch "Multi-node parallel jobs"; OpenPBS' and Torque's qsub manual; LSF's
"Environment variable reference" (LSB_*); HPE's PALS, "mpiexec" (PALS_*); IBM's Job Step Manager (JSM_*).
"""

from msgspec import Struct


class SchedulerVariable(Struct, frozen=True):
    """One variable that may hold a field."""

    name: str
    kind: str = "int"


class Scheduler(Struct, frozen=True, kw_only=True):
    """One scheduler.

    `detect`: all of these variables must be set.  `absent`: none of these may be.  `fields`: our field -> variables,
    the first that is set wins.  `per_rank`: processes are started per rank, so that only local rank 0 may act for its
    node.  `port_shift`: added to the port where the scheduler's own store holds the one it announces.
    `hosts`: see above; `own_host`: the variable with this node's name in that list.  `main_node`: the variable with the
    index of the node that coordinates, if that need not be 0; it has no variable with its own address.
    `step`: one of these is set where the scheduler started the command on all nodes; without them only the first
    node's shell runs it, and `start` is what to put before it.  The first is the step's number: several steps of one
    allocation may run at once, and the one whose nodes are counted by `step_nodes` is a job of its own.
    `parts`: the variable with the number of parts of which a job may consist, `part_nodes` that with the nodes of one,
    and `start_parts` is `start` for all of them.
    """

    name: str
    detect: tuple[str, ...]
    fields: dict[str, tuple[SchedulerVariable, ...]]
    absent: tuple[str, ...] = ()
    per_rank: bool = False
    port_shift: int = 0
    hosts: tuple[SchedulerVariable, ...] = ()
    own_host: str = ""
    main_node: str = ""
    step: tuple[str, ...] = ()
    step_nodes: str = ""
    start: str = ""
    parts: str = ""
    part_nodes: str = ""
    start_parts: str = ""
    help: dict[str, str] = {}


def _v(*names: str, kind: str = "int") -> tuple[SchedulerVariable, ...]:
    return tuple(SchedulerVariable(name, kind) for name in names)


_MASTER = {"master_addr": _v("MASTER_ADDR", kind="text"), "master_port": _v("MASTER_PORT")}

TORCHRUN = Scheduler(
    name="torchrun",
    detect=("TORCHELASTIC_RUN_ID", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    fields={
        "num_nodes": _v("GROUP_WORLD_SIZE"),
        "node_rank": _v("GROUP_RANK"),
        "nproc_per_node": _v("LOCAL_WORLD_SIZE"),
        "local_rank": _v("LOCAL_RANK"),
        "rank": _v("RANK"),
        "world_size": _v("WORLD_SIZE"),
        "job_id": _v("TORCHELASTIC_RUN_ID", kind="text"),
        **_MASTER,
    },
    per_rank=True,
    port_shift=1,  # torchrun's agent keeps its store on MASTER_PORT while its workers run
)

SLURM_PROLOG = Scheduler(
    name="slurm-prolog",
    detect=("SLURM_JOB_ID", "SLURM_SCRIPT_CONTEXT", "SLURMD_NODENAME"),
    absent=("SLURM_PROCID",),
    fields={
        "num_nodes": _v("SLURM_JOB_NUM_NODES"),
        "job_id": _v("SLURM_JOB_ID", kind="text"),
        "master_port": _v("SLURM_JOB_ID", kind="port_of_id"),
    },
    hosts=_v("SLURM_JOB_NODELIST", "SLURM_NODELIST", kind="nodelist"),
    own_host="SLURMD_NODENAME",
)

SLURM = Scheduler(
    name="slurm",
    detect=("SLURM_JOB_ID",),
    fields={
        "num_nodes": _v("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
        "node_rank": _v("SLURM_NODEID"),
        "nproc_per_node": (
            *_v("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", kind="tasks_here"),
            *_v("SLURM_NTASKS_PER_NODE"),
        ),
        "local_rank": _v("SLURM_LOCALID"),
        "rank": _v("SLURM_PROCID"),
        "world_size": _v("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        "job_id": _v("SLURM_JOB_ID", kind="text"),
        "master_addr": (
            *_v("MASTER_ADDR", kind="text"),
            *_v("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST", kind="nodelist_first"),
        ),
        "master_port": (*_v("MASTER_PORT"), *_v("SLURM_JOB_ID", kind="port_of_id")),
    },
    per_rank=True,
    step=("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_NODES"),
    step_nodes="SLURM_STEP_NUM_NODES",
    start="srun --nodes={num_nodes} --ntasks-per-node=1",
    # A heterogeneous job: the shell has the variables of its own part, tasks of a step over all parts those of all.
    parts="SLURM_HET_SIZE",
    part_nodes="SLURM_JOB_NUM_NODES_HET_GROUP_{part}",
    start_parts="srun --het-group=0-{last} --ntasks-per-node=1",
)

OPENMPI = Scheduler(
    name="openmpi",
    detect=("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    fields={
        "rank": _v("OMPI_COMM_WORLD_RANK"),
        "world_size": _v("OMPI_COMM_WORLD_SIZE"),
        "local_rank": _v("OMPI_COMM_WORLD_LOCAL_RANK"),
        "nproc_per_node": _v("OMPI_COMM_WORLD_LOCAL_SIZE"),
        **_MASTER,
    },
    per_rank=True,
    help={"master_addr": "mpirun -x MASTER_ADDR=HOST_OF_RANK_0 ..."},
)

MPICH = Scheduler(
    name="mpich",
    detect=("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),  # srun --mpi=pmi2 sets the first two as well
    fields={
        "rank": _v("PMI_RANK"),
        "world_size": _v("PMI_SIZE"),
        "local_rank": _v("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK"),
        "nproc_per_node": _v("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
        **_MASTER,
    },
    per_rank=True,
    help={"master_addr": "mpiexec -genv MASTER_ADDR HOST_OF_RANK_0 ..."},
)

PALS = Scheduler(
    name="pals",
    detect=("PALS_RANKID", "PMI_SIZE", "PMI_LOCAL_SIZE"),
    fields={
        "rank": _v("PALS_RANKID"),
        "world_size": _v("PMI_SIZE"),
        "local_rank": _v("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
        "nproc_per_node": _v("PMI_LOCAL_SIZE"),
        "job_id": _v("PBS_JOBID", kind="text"),
        "master_addr": _v("MASTER_ADDR", kind="text"),
        "master_port": (*_v("MASTER_PORT"), *_v("PBS_JOBID", kind="port_of_id")),
    },
    per_rank=True,
    help={"master_addr": "mpiexec --env MASTER_ADDR=HOST_OF_RANK_0 ..., often $(head -1 $PBS_NODEFILE)"},
)

JSRUN = Scheduler(
    name="jsrun",
    detect=("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    fields={
        "rank": _v("JSM_NAMESPACE_RANK"),
        "world_size": _v("JSM_NAMESPACE_SIZE"),
        "local_rank": _v("JSM_NAMESPACE_LOCAL_RANK"),
        "nproc_per_node": _v("JSM_NAMESPACE_LOCAL_SIZE"),
        "job_id": _v("LSB_JOBID", kind="text"),
        "master_addr": _v("MASTER_ADDR", kind="text"),
        "master_port": (*_v("MASTER_PORT"), *_v("LSB_JOBID", kind="port_of_id")),
    },
    per_rank=True,
    help={"master_addr": "jsrun --env MASTER_ADDR=HOST_OF_RANK_0 ..., not the batch node's"},
)

PYTORCHJOB = Scheduler(
    name="kubernetes-pytorchjob",
    detect=("PET_NNODES", "PET_NODE_RANK"),
    fields={
        "num_nodes": _v("PET_NNODES"),
        "node_rank": _v("PET_NODE_RANK"),
        "nproc_per_node": _v("PET_NPROC_PER_NODE", kind="text"),
        "job_id": _v("PET_RDZV_ID", kind="text"),
        "master_addr": _v("PET_MASTER_ADDR", "MASTER_ADDR", kind="text"),
        "master_port": _v("PET_MASTER_PORT", "MASTER_PORT"),
    },
)

PYTORCHJOB_ELASTIC = Scheduler(
    name="kubernetes-pytorchjob-elastic",
    detect=("PET_NNODES",),
    fields={
        "num_nodes": _v("PET_NNODES"),
        "nproc_per_node": _v("PET_NPROC_PER_NODE", kind="text"),
        "job_id": _v("PET_RDZV_ID", kind="text"),
        "master_addr": (*_v("PET_RDZV_ENDPOINT", kind="endpoint_host"), *_v("PET_MASTER_ADDR", kind="text")),
        "master_port": (*_v("PET_RDZV_ENDPOINT", kind="endpoint_port"), *_v("PET_MASTER_PORT")),
    },
)

PYTORCHJOB_V1 = Scheduler(
    name="kubernetes-pytorchjob-v1",
    detect=("KUBERNETES_SERVICE_HOST", "MASTER_ADDR", "WORLD_SIZE", "RANK"),
    absent=("LOCAL_RANK", "PET_NNODES"),
    fields={"num_nodes": _v("WORLD_SIZE"), "node_rank": _v("RANK"), **_MASTER},
)

LEADER_WORKER_SET = Scheduler(
    name="kubernetes-leaderworkerset",
    detect=("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"),
    fields={
        "num_nodes": _v("LWS_GROUP_SIZE"),
        "node_rank": _v("LWS_WORKER_INDEX"),
        "nproc_per_node": _v("NPROC_PER_NODE"),
        "master_addr": _v("LWS_LEADER_ADDRESS", kind="text"),
        "master_port": _v("MASTER_PORT"),
    },
)

SKYPILOT = Scheduler(
    name="skypilot",
    detect=("SKYPILOT_NUM_NODES", "SKYPILOT_NODE_RANK"),
    fields={
        "num_nodes": _v("SKYPILOT_NUM_NODES"),
        "node_rank": _v("SKYPILOT_NODE_RANK"),
        "nproc_per_node": _v("SKYPILOT_NUM_GPUS_PER_NODE", kind="number"),
        "job_id": _v("SKYPILOT_TASK_ID", kind="text"),
        "master_addr": (*_v("SKYPILOT_NODE_IPS", kind="first_word"), *_v("MASTER_ADDR", kind="text")),
        "master_port": _v("MASTER_PORT"),
    },
)

AWS_BATCH = Scheduler(
    name="aws-batch",
    detect=("AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_NODE_INDEX"),
    fields={
        "num_nodes": _v("AWS_BATCH_JOB_NUM_NODES"),
        "node_rank": _v("AWS_BATCH_JOB_NODE_INDEX"),
        "job_id": _v("AWS_BATCH_JOB_ID", kind="before_hash"),
        "master_addr": _v("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "MASTER_ADDR", kind="text"),
        "master_port": _v("MASTER_PORT"),
    },
    main_node="AWS_BATCH_JOB_MAIN_NODE_INDEX",
)

PBS = Scheduler(
    name="pbs",
    detect=("PBS_JOBID", "PBS_NODEFILE"),
    fields={
        "job_id": _v("PBS_JOBID", kind="text"),
        "master_addr": _v("MASTER_ADDR", kind="text"),
        "master_port": (*_v("MASTER_PORT"), *_v("PBS_JOBID", kind="port_of_id")),
    },
    hosts=_v("PBS_NODEFILE", kind="file"),
)

LSF = Scheduler(
    name="lsf",
    detect=("LSB_JOBID",),
    fields={
        "job_id": _v("LSB_JOBID", kind="text"),
        "master_addr": _v("MASTER_ADDR", kind="text"),
        "master_port": (*_v("MASTER_PORT"), *_v("LSB_JOBID", kind="port_of_id")),
    },
    hosts=(*_v("LSB_DJOB_HOSTFILE", kind="file"), *_v("LSB_MCPU_HOSTS", kind="pairs"), *_v("LSB_HOSTS", kind="words")),
)

INDEXED_JOB = Scheduler(
    name="kubernetes-indexed-job",
    detect=("JOB_COMPLETION_INDEX",),
    absent=("RANK",),
    fields={
        "num_nodes": _v("NNODES", "NUM_NODES"),
        "node_rank": _v("JOB_COMPLETION_INDEX"),
        "nproc_per_node": _v("NPROC_PER_NODE"),
        **_MASTER,
    },
    help={
        "num_nodes": "a pod of an indexed Job or JobSet cannot see how many there are: "
        "add --nnodes (the Job's spec.completions)",
        "master_addr": "the pod with index 0, by its DNS name: JOB-0.SERVICE (indexed Job with a headless service) or "
        "JOBSET-REPLICATEDJOB-0-0.JOBSET (JobSet)",
    },
)

ENVIRONMENT = Scheduler(
    name="environment",
    detect=("MASTER_ADDR",),
    fields={
        "num_nodes": _v("NNODES", "NUM_NODES", "GROUP_WORLD_SIZE"),
        "node_rank": _v("NODE_RANK", "GROUP_RANK"),
        "nproc_per_node": _v("NPROC_PER_NODE", "LOCAL_WORLD_SIZE"),
        "local_rank": _v("LOCAL_RANK"),
        "rank": _v("RANK"),
        "world_size": _v("WORLD_SIZE"),
        **_MASTER,
    },
    per_rank=True,
)

BINDING_LAUNCHERS = frozenset({OPENMPI.name, MPICH.name, PALS.name, JSRUN.name, SLURM.name})
"""These bind the processes that they start to CPUs, also a single one per node."""

SCHEDULERS = (
    TORCHRUN, OPENMPI, PALS, JSRUN, PYTORCHJOB, LEADER_WORKER_SET, SKYPILOT, AWS_BATCH, PYTORCHJOB_V1, INDEXED_JOB,
    MPICH, SLURM_PROLOG, SLURM, PBS, LSF, PYTORCHJOB_ELASTIC, ENVIRONMENT,
)  # fmt: skip
"""In order of detection: what started this process comes before the allocation it runs in (mpirun or torchrun
inside a Slurm job), and plain variables come last."""
