"""What JAX jobs on two nodes leave when they fail: for `allready diagnose`.

    python benchmarks/record_gpu_jax.py OUT_DIR [--only NAME,...]                       (2 GPUs)
    python benchmarks/record_gpu_jax.py OUT_DIR --cpu                                   (to try the program)

Four jobs at a time, each with two agents of torchrun ("nodes") of one process each.  Every folder holds
`out.nodeN.log` (the agent's output and its process's), `nccl.*.log` (NCCL_DEBUG=INFO) and `pyspy.N.txt` (stacks of
process N, where py-spy is there); `truth.json` says what was done to which process.
"""

import argparse
import sys
import time
from pathlib import Path

from recorded_jobs import all_of, free_port, on_nodes, watched, write_truth

JOB = """
import os, signal, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

name, rank, address = sys.argv[1], int(os.environ["RANK"]), sys.argv[2]
mine, at = rank == 1, 12
open(os.path.join(os.environ["PIDS"], f"pid.{rank}"), "w").write(str(os.getpid()))
if os.environ["DEVICE"] == "cpu":
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
if name == "absent" and mine:
    time.sleep(300)
if name == "dies_first" and rank == 0:
    raise ImportError("cannot import name 'make_mesh' from 'training.mesh'")
if name == "wrong_port" and mine:
    address = address.rpartition(":")[0] + ":1"
if name == "wrong_name" and mine:
    address = "trainer-0.nowhere.invalid:" + address.rpartition(":")[2]
if name == "port_taken" and rank == 0:
    import socket
    taken = socket.socket(socket.AF_INET6)
    taken.bind(("::", int(address.rpartition(":")[2])))
    taken.listen()
if name == "late" and mine:
    time.sleep(15)
processes = 3 if name == "num_processes" and mine else 2
jax.distributed.initialize(
    address, processes, 0 if name == "same_id" else rank, initialization_timeout=25, heartbeat_timeout_seconds=12
)
assert jax.process_count() == 2, jax.devices()
mesh = Mesh(np.array(jax.devices()), ("data",))
rows = NamedSharding(mesh, PartitionSpec("data"))
everywhere = NamedSharding(mesh, PartitionSpec())

def gathered(value):
    return multihost_utils.process_allgather(value)

def spread(size):
    return jax.make_array_from_process_local_data(rows, np.full((size,), float(rank), np.float32))

total = jax.jit(lambda grads: jnp.sum(grads), out_shardings=everywhere)
mean = jax.jit(lambda grads: jnp.broadcast_to(jnp.mean(grads), (1 << 12,)), out_shardings=everywhere)

def save(step):
    if name == "save_fails" and rank == 0:
        raise PermissionError(13, "Permission denied", "/ckpt/step_12")
    multihost_utils.sync_global_devices("saved")

def load_batch(step):
    if mine and step == 0 and name == "first_collective":
        time.sleep(300)
    if mine and step == 3 and name == "compiles":
        jax.jit(lambda x: sum(jnp.sin(x * i) for i in range(4000)))(jnp.ones(4)).block_until_ready()
    if mine and step == at and name == "exception":
        raise ValueError("bad sample in shard 17")
    if mine and step == at and name == "sleeps":
        time.sleep(300)
    if mine and step == at and name == "waits_for_lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

def evaluate(step):
    if mine and name == "skips":
        return
    gathered(jnp.full((8,), float(step)))

def train_step(step):
    if mine and step == at and name == "order":
        mean(spread(1 << 12)).block_until_ready()
        return float(total(spread(1 << 12)))
    loss = float(total(spread(1 << 12)))
    mean(spread(1 << 12)).block_until_ready()
    return loss

def happen(step):
    if mine and name == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if mine and name == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
    if (mine and name == "sigstop") or (rank == 0 and name == "sigstop_first"):
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 0 and name == "sigkill_first":
        os.kill(os.getpid(), signal.SIGKILL)
    if mine and name == "segfault":
        import ctypes
        ctypes.string_at(0)
    if mine and name == "exits":
        sys.exit(0)
    if mine and name == "os_exit":
        os._exit(3)
    if mine and name == "out_of_memory":
        jnp.ones((1 << 20, 1 << 20)).block_until_ready()
    if mine and name == "barrier_name":
        multihost_utils.sync_global_devices("after_checkpoint")
    if rank == 0 and name == "barrier_name":
        multihost_utils.sync_global_devices("before_checkpoint")
    if mine and name == "assert_equal":
        multihost_utils.assert_equal(jnp.ones(3), "configs differ")
    if rank == 0 and name == "assert_equal":
        multihost_utils.assert_equal(jnp.zeros(3), "configs differ")
    if mine and name == "shuts_down":
        jax.distributed.shutdown()
        time.sleep(300)
    if name == "dtype":
        gathered(jnp.ones((8,), jnp.int32 if mine else jnp.float32))
    if name in {"save_fails", "saves"}:
        save(step)
    if name == "broadcast_alone" and rank == 0:
        multihost_utils.broadcast_one_to_all(jnp.ones(4))
    if name == "shape":
        gathered(jnp.ones((16 if mine else 8,)))

for step in range(40):
    load_batch(step)
    loss = train_step(step)
    if rank == 0:
        print(f"step {step} {loss}", flush=True)
    if step == at:
        happen(step)
    if step % 6 == 0:
        evaluate(step) if step == at else gathered(jnp.full((8,), float(step)))
    if name == "slow" and mine:
        time.sleep(0.3)
print("DONE", rank, flush=True)
jax.distributed.shutdown()
"""

TRUTH: dict[str, tuple[str, list[int]]] = {
    "healthy": ("HEALTHY", []), "slow": ("HEALTHY", []), "absent": ("START-ABSENT", [1]),
    "dies_first": ("DEAD", [0]), "wrong_port": ("START-PATH", [1]), "wrong_name": ("START-NAME", [1]),
    "num_processes": ("HEALTHY", []), "same_id": ("ENV-MISMATCH", []), "interface": ("START-NAME", []),
    "exception": ("DEAD", [1]), "sleeps": ("CPU-STUCK", [1]), "waits_for_lock": ("CPU-STUCK", [1]),
    "skips": ("DESYNC-FLOW", [1]), "order": ("HEALTHY", []),
    "shape": ("DESYNC-ARGS", []), "sigkill": ("DEAD", [1]), "sigkill_first": ("DEAD", [0]), "sigterm": ("HEALTHY", []),
    "sigstop": ("CPU-STUCK", [1]), "sigstop_first": ("CPU-STUCK", [0]), "segfault": ("DEAD", [1]),
    "exits": ("DESYNC-FLOW", [1]), "os_exit": ("DEAD", [1]), "out_of_memory": ("DEAD", [1]),
    "barrier_name": ("DESYNC-FLOW", []), "assert_equal": ("ENV-MISMATCH", []), "port_taken": ("START-PATH", [0]),
    "late": ("HEALTHY", []), "save_fails": ("DEAD", [0]), "saves": ("HEALTHY", []),
    "first_collective": ("CPU-STUCK", [1]), "compiles": ("HEALTHY", []), "shuts_down": ("DESYNC-FLOW", [1]),
    "dtype": ("DESYNC-ARGS", []), "broadcast_alone": ("DESYNC-FLOW", [0]),
}  # fmt: skip
"""Run -> fault class and culprit processes; of two processes the evidence cannot always tell which.

Four of them do not fail: JAX catches SIGTERM and takes the coordinator's number of processes for all, two sums of one
number may change places, and no file has the times that would show who is slow.
"""

LIMIT_S = 75.0
REACHED = b"step 12 "
STACKS_S = 9.0
"""After this line of the job stacks are taken."""


def record(name: str, out: Path, *, cpu: bool) -> str:
    """One job; everything of it is gone when this returns."""
    folder = out / name
    folder.mkdir(parents=True)
    (folder / "job.py").write_text(JOB)
    env = {
        "DEVICE": "cpu" if cpu else "cuda",
        "JAX_PLATFORMS": "cpu" if cpu else "cuda",
        "OMP_NUM_THREADS": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,COLL,ENV",
        "PIDS": str(folder),
    }
    environs, outputs = on_nodes(env, folder, 2, "" if cpu else "0,1")
    if name == "interface":
        environs[1]["NCCL_SOCKET_IFNAME"] = "ib0"
    began = time.monotonic()
    program = [str(folder / "job.py"), name, f"127.0.0.1:{free_port()}"]
    codes = watched(folder, program, environs, outputs, reached=REACHED, stacks_s=STACKS_S, limit_s=LIMIT_S)
    seconds = write_truth(folder, name, *TRUTH[name], codes, began)
    return f"{name:18} exit codes {codes} after {seconds} s"


def main() -> int:
    """Record them all; a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(TRUTH))
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--at-a-time", type=int, default=4)
    args = parser.parse_args()
    out = args.out.absolute()
    all_of(args.only.split(","), lambda name: record(name, out, cpu=args.cpu), args.at_a_time)
    return 0


if __name__ == "__main__":
    sys.exit(main())
