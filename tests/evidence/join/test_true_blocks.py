"""Whole blocks as people post them: which finding explains them, and whom it names."""

from allready.evidence.log import read_lines
from allready.judging.assemble import assemble
from allready.judging.engine import judge
from allready.model import Finding, Fleet, Severity, World
from tests.cases import cases
from tests.rules.runs import NONE

PYXIS = """\
pyxis: importing docker image ...
slurmstepd: error: pyxis: container start failed with error code: 1
slurmstepd: error: pyxis: printing contents of log file ...
slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file or directory
slurmstepd: error: pyxis: couldn't start container
slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1
slurmstepd: error: Failed to invoke spank plugin stack
srun: error: hpc-pg0-2: task 1: Exited with exit code 1
"""
PYXIS_WITHOUT_A_REASON = """\
slurmstepd-sp-0016: error: pyxis: couldn't start container
slurmstepd-sp-0016: error: Failed to invoke spank plugin stack
srun: error: sp-0016: task 0: Exited with exit code 1
"""
MPI = """\
+ mpirun -np 16 -bind-to none /usr/bin/nvidia-smi
ssh: Could not resolve hostname nccl-tests-worker-0.nccl-tests.default.svc: Name or service not known
--------------------------------------------------------------------------
ORTE was unable to reliably start one or more daemons.
This usually is caused by:
"""
AMD = """\
[ 2742.462312] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring page1 timeout, signaled seq=2216, emitted seq=2218
[ 2742.462662] amdgpu 0000:2b:00.0: amdgpu: GPU reset begin!
[ 2744.090643] [drm] VRAM is lost due to GPU reset!
"""
MLX5 = """\
[   12.926115] mlx5_core 0000:03:00.0: firmware version: 14.32.1010
[   14.059052] mlx5_core 0000:03:00.0: mlx5_load_one failed with error code -22
[   14.059582] mlx5_core: probe of 0000:03:00.0 failed with error -22
"""
RAY = """\
ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.
Memory on the node (IP: 10.20.49.141, ID: 4748aa6d1bc1) where the task (actor ID: 9e43ace6a123, \
name=WorkerDict.__init__, pid=4100606, memory used=56.57GB) was running was 246.41GB / 251.54GB (0.979583), \
which exceeds the memory usage threshold of 0.95. Ray killed this worker (ID: c9e16e95ed0c)
"""
ANALYZER = """\
Not all ranks joining collective: sequence number: 31117
group info: 0:default_pg
missing ranks: {3, 4}
expected ranks: {0, 1, 2, 3, 4, 5, 6, 7}
"""
SGLANG = """\
[2025-03-17 17:15:55 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl-workspace/sglang/python/sglang/srt/model_executor/model_runner.py", line 417, in load_model
    raise ValueError(
ValueError: TP rank 1 could finish the model loading, but there are other ranks that didn't finish loading. It is \
likely due to unexpected failures (e.g., OOM) or a slow node.
"""
CLOSED = """\
Traceback (most recent call last):
  File "/usr/local/lib/python3.10/site-packages/torch/distributed/run.py", line 909, in run
    elastic_launch(
torch.distributed.elastic.rendezvous.api.RendezvousClosedError
"""
PODS = """\
NAME                 READY   STATUS             RESTARTS   AGE
ddp-master-0         0/2     CrashLoopBackOff   8          2m32s
ddp-worker-0         0/1     Init:1/2           0          2m31s
"""

IDLE_AMD = """\
[ 2744.090494] amdgpu 0000:2b:00.0: amdgpu: ring gfx uses VM inv eng 0 on hub 0
[ 2744.190522] amdgpu 0000:9d:00.0: {1}socket: 6, die: 1, 15 new correctable hardware errors detected in umc block
[ 2744.190529] amdgpu 0000:9d:00.0: amdgpu: socket: 6, die: 1, 0 uncorrectable hardware errors detected in umc block
"""
PULLED = """\
pyxis: importing docker image: ubuntu:22.04
pyxis: imported docker image: ubuntu:22.04
slurmstepd: error: pyxis:     [INFO] Authenticating with user: <anonymous>
"""
SCALED_DOWN = """\
[2025-07-03 11:12:01,375 I 42 42] (gcs_server) gcs_node_manager.cc:386: Removing node, node name = 172.24.1.211, \
death reason = EXPECTED_TERMINATION, death message = received SIGTERM node_id=3f59adf5
"""
ALL_THERE = """\
expected ranks: {0, 1, 2, 3}
missing ranks: set()
"""


def findings(text: str) -> tuple[Finding, ...]:
    after = assemble([read_lines(text.splitlines(), "job.log", mtime_s=1.0)])
    return judge(Fleet(world=World(num_nodes=0, world_size=0), run_evidence=after, inapplicable=NONE))[0]


@cases(
    ("text", "code", "words", "ranks"),
    [
        (PYXIS, "LCH041", "failed to execute: /bin/bash", ()),
        (PYXIS_WITHOUT_A_REASON, "LCH042", "couldn't start container", ()),
        (MPI, "LCH043", "nccl-tests-worker-0", ()),
        (AMD, "KRN041", "ring page1 timeout", ()),
        (MLX5, "KRN011", "0000:03:00.0", ()),
        (RAY, "LCH023", "10.20.49.141", ()),
        (ANALYZER, "TCH042", "ranks 3, 4 did not join", (3, 4)),
        (SGLANG, "PYL041", "other ranks did not", ()),
        (CLOSED, "ELA013", "closed", ()),
        (PODS, "LCH020", "pod ddp-master-0", ()),
    ],
)
def test_the_block_is_explained(text: str, code: str, words: str, ranks: tuple[int, ...]) -> None:
    first = findings(text)[0]
    assert (first.code, first.culprits.ranks) == (code, ranks)
    assert words in first.message


@cases("text", [IDLE_AMD, PULLED, SCALED_DOWN, ALL_THERE])
def test_what_looks_like_it_is_no_fault(text: str) -> None:
    assert not [f.code for f in findings(text) if f.severity.weight >= Severity.WARNING.weight]
