"""What NCCL jobs under torchrun leave when they fail: logs, flight-recorder dumps and outputs, for `allready diagnose`.

    python benchmarks/record_gpu_failed.py OUT_DIR [--only NAME,...]                     (4 GPUs)
    python benchmarks/record_gpu_failed.py OUT_DIR --cpu                                 (Gloo: to try the program)

Two jobs at a time, each with 2 ranks on GPUs of its own.  Every folder holds `out.log` (torchrun's output, all ranks;
with `--nodes 2`, two agents of torchrun, `out.node0.log` and `out.node1.log`),
`nccl.*.log` (NCCL_DEBUG=INFO) and `fr_N` (the recorder's dumps); `truth.json` says what was done to which rank.
"""

import argparse
import concurrent.futures
import sys
import time
from pathlib import Path

from recorded_jobs import on_nodes, started, write_truth

JOB = """
import ctypes, datetime, os, signal, sys, time
import torch, torch.distributed as dist

name, rank, local = sys.argv[1], int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
cuda = os.environ["DEVICE"] == "cuda"
mine = rank == 1
if name == "never_joins" and mine:
    time.sleep(300)
if cuda:
    torch.cuda.set_device(0 if name == "same_gpu" else local)
device = torch.device("cuda", 0 if name == "same_gpu" else local) if cuda else torch.device("cpu")
limit = datetime.timedelta(seconds=10)
dist.init_process_group("nccl" if cuda else "gloo", timeout=limit)
grads, flag = torch.ones(1 << 20, device=device), torch.ones(4, device=device)

def load_batch(step):
    if mine and step == 12 and name == "exception":
        raise ValueError("bad sample in shard 17")
    if mine and step == 12 and name == "cuda_oom":
        return torch.empty(1 << 45, device=device)
    if mine and step == 12 and name == "device_assert":
        table = torch.ones(8, device=device)
        return table[torch.tensor([9], device=device)].sum().item()
    if mine and step == 12 and name == "segfault":
        ctypes.string_at(0)
    if mine and step == 12 and name == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if mine and step == 12 and name == "exits_early":
        sys.exit(0)
    if mine and step == 12 and name == "os_exit":
        os._exit(0)
    if mine and step == 12 and name == "sleeps":
        time.sleep(300)
    if mine and step == 12 and name == "spin" and cuda:
        torch.cuda._sleep(10**13)
    if mine and name == "slow":
        time.sleep(0.2)

def train_step(step):
    load_batch(step)
    if mine and step == 12 and name == "size":
        dist.all_reduce(grads[: 1 << 19])
    elif mine and step == 12 and name == "dtype":
        dist.all_reduce(grads.to(torch.float16))
    elif mine and step == 12 and name == "order":
        dist.all_gather_into_tensor(torch.empty(8, device=device), flag)
    elif mine and step == 12 and name == "skip":
        pass
    elif mine and step == 12 and name == "send_alone":
        dist.send(grads, 0)
    else:
        dist.all_reduce(grads)
    dist.all_gather_into_tensor(torch.empty(8, device=device), flag)
    grads.fill_(1.0)
    if cuda:
        torch.cuda.synchronize()

steps = 25 if mine and name == "fewer_steps" else 40
for step in range(steps):
    if rank == 0 and step % 5 == 0:
        print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
    train_step(step)
    time.sleep(0.02)
if name in {"slow", "healthy"} and cuda:
    with open(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}", "wb") as file:
        c10d = torch._C._distributed_c10d  # torch 2.15 has a recorder for each backend
        by_name = hasattr(c10d, "_set_comm_profiling_name") and os.environ.get("TORCH_DIST_USE_NCCL2") != "0"
        dump = c10d._dump_fr_trace(True, True, False, "nccl2") if by_name else c10d._dump_nccl_trace(True, True, False)
        file.write(dump)
print("through", rank, flush=True)
dist.destroy_process_group()
"""

TRUTH: dict[str, tuple[str, list[int]]] = {
    "healthy": ("HEALTHY", []), "exception": ("DEAD", [1]), "cuda_oom": ("DEAD", [1]), "device_assert": ("DEAD", [1]),
    "segfault": ("DEAD", [1]), "sigkill": ("DEAD", [1]), "exits_early": ("DESYNC-FLOW", [1]),
    "os_exit": ("DESYNC-FLOW", [1]), "sleeps": ("CPU-STUCK", [1]), "spin": ("HW-HANG", [1]), "slow": ("SLOW-COMP", [1]),
    "size": ("DESYNC-ARGS", [1]), "dtype": ("DESYNC-ARGS", [1]), "order": ("DESYNC-FLOW", [1]),
    "skip": ("DESYNC-FLOW", [1]), "send_alone": ("DESYNC-FLOW", [1]), "fewer_steps": ("DESYNC-FLOW", [1]),
    "never_joins": ("START-ABSENT", [1]), "same_gpu": ("ENV-MISMATCH", []), "no_interface": ("START-NAME", []),
}  # fmt: skip
"""Run -> fault class and culprit ranks; of two ranks the evidence cannot always tell which."""

LIMIT_S = 32.0


def record(name: str, out: Path, gpus: str, *, cpu: bool, nodes: int) -> str:
    """One job; everything of it is gone when this returns."""
    folder = out / name
    folder.mkdir(parents=True)
    (folder / "job.py").write_text(JOB)
    env = {
        "DEVICE": "cpu" if cpu else "cuda",
        "OMP_NUM_THREADS": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,COLL,ENV",
        "TORCH_FR_BUFFER_SIZE": "400",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/fr_",
        "NCCL_DEBUG_TIMESTAMP_FORMAT": "[%F %T.%6f] ",
        "NCCL_DEBUG_TIMESTAMP_LEVELS": "ALL",
    }
    if name == "no_interface":
        env["NCCL_SOCKET_IFNAME"] = "bond7"
    environs, outputs = on_nodes(env, folder, nodes, "" if cpu else gpus)
    began = time.monotonic()
    with started(folder, [str(folder / "job.py"), name], environs, outputs) as agents:
        agents.wait(began + LIMIT_S)
        codes = agents.codes
    seconds = write_truth(folder, name, *TRUTH[name], codes, began)
    return f"{name:14} exit codes {codes} after {seconds} s"


def main() -> int:
    """Record them all; a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(TRUTH))
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=1)
    parser.add_argument("--gpus", nargs="+", default=["0,1", "2,3"], help="pairs; as many jobs at a time as there are")
    args = parser.parse_args()
    args.out = args.out.absolute()
    with concurrent.futures.ThreadPoolExecutor(len(args.gpus)) as pool:
        free = list(args.gpus)

        def take(name: str) -> None:
            gpus = free.pop()
            try:
                sys.stdout.write(record(name, args.out, gpus, cpu=args.cpu, nodes=args.nodes) + "\n")
                sys.stdout.flush()
            finally:
                free.append(gpus)

        for task in [pool.submit(take, name) for name in args.only.split(",")]:
            task.result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
