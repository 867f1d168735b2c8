"""What jobs of DDP, FSDP, pipelines and checkpoints leave when they fail: for `allready diagnose`.

    python benchmarks/record_gpu_frameworks.py OUT_DIR [--only NAME,...]                (2 GPUs)
    python benchmarks/record_gpu_frameworks.py OUT_DIR --cpu                            (Gloo: to try the program)
    python benchmarks/record_gpu_frameworks.py OUT_DIR --nodes 2                        (two agents of torchrun)

Three jobs at a time, each with 2 ranks.  Every folder holds `out.log` (torchrun's output, all ranks; with two nodes
`out.node0.log` and `out.node1.log`), `nccl.*.log` (NCCL_DEBUG=INFO), `fr_N` (the recorder's dumps), `pyspy.N.txt`
(stacks of rank N, where py-spy is there); `truth.json` says what was done to which rank.
"""

import argparse
import sys
import time
from pathlib import Path

from recorded_jobs import all_of, on_nodes, watched, write_truth

JOB = """
import ctypes, datetime, os, signal, sys, time, warnings
import torch, torch.distributed as dist
from torch import nn

name, rank, local = sys.argv[1], int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
cuda = os.environ["DEVICE"] == "cuda"
mine, at = rank == 1, 12
if cuda:
    torch.cuda.set_device(local)
device = torch.device("cuda", local) if cuda else torch.device("cpu")
open(os.path.join(os.environ["PIDS"], f"pid.{rank}"), "w").write(str(os.getpid()))
dist.init_process_group("nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=14))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 256), nn.Linear(256, 256)

    def forward(self, batch):
        return self.second(torch.relu(self.first(batch))).square().mean()

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 40 * 8

    def __getitem__(self, index):
        if mine and index == at * 8 and name == "loader_dead":
            os.kill(os.getpid(), signal.SIGKILL)
        if mine and index == at * 8 and name == "loader_stuck":
            time.sleep(300)
        return torch.full((256,), float(index))

def load_checkpoint():
    if mine and name == "checkpoint_missing":
        open("/data/checkpoints/step_1200/rank_1.pt", "rb")

def save_checkpoint(step):
    if rank == 0 and name == "rank0_saves":
        for part in range(300):
            time.sleep(1.0)
    dist.barrier()

def report_alone(step):
    if name == "barrier_rank0" and rank == 0:
        dist.barrier()
    if name == "object_alone" and mine:
        dist.all_gather_object([None, None], {"step": step})

def exchange(step):
    if name == "p2p_sizes":
        tensor = torch.ones(1 << (20 if mine else 18), device=device)
        dist.recv(tensor, 0) if mine else dist.send(tensor, 1)
    if name == "both_recv":
        dist.recv(torch.ones(1 << 18, device=device), 1 - rank)
    if name == "splits":
        out, into = ([5, 3], [5, 4]) if mine else ([5, 5], [5, 3])
        dist.all_to_all_single(torch.ones(sum(into), device=device), torch.ones(sum(out), device=device), into, out)
    if name == "wrong_root":
        dist.broadcast(torch.ones(1 << 10, device=device), src=rank)
    if name == "groups_cross":
        for group in (two, one) if mine else (one, two):
            dist.all_reduce(torch.ones(1 << 10, device=device), group=group)
            if cuda:
                torch.cuda.synchronize()
    if name == "group_by_one" and rank == 0:
        dist.new_group([0, 1])
    if name == "gil" and mine:
        ctypes.PyDLL(None).sleep(300)
    if name == "stops_itself" and mine:
        os.kill(os.getpid(), signal.SIGSTOP)
    if name == "disk_full" and rank == 0:
        raise OSError(28, "No space left on device", "/data/checkpoints/step_12.pt")
    if name == "extra_reduce" and mine:
        dist.all_reduce(torch.ones(1, device=device))

model = Net().to(device)
if name.startswith("fsdp"):
    from torch.distributed.fsdp import fully_shard
    for layer in (model.first, model.second):
        fully_shard(layer)
    fully_shard(model)
else:
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local] if cuda else None)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
one = dist.new_group([0, 1]) if name == "groups_cross" else None
two = dist.new_group([0, 1]) if name == "groups_cross" else None
load_checkpoint()
workers = 2 if name.startswith("loader") else 0
batches = torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=workers)

def train_step(step, batch):
    try:
        if mine and step == at and name == "oom_caught":
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 12.00 GiB.")
        if mine and step == at and name == "ddp_no_sync":
            with model.no_sync():
                return model(batch).backward()
        if mine and step == at and name == "fsdp_twice":
            model(batch)
        if mine and step == at and name == "fsdp_raises":
            raise RuntimeError("shape '[8, 256]' is invalid for input of size 1024")
        model(batch).backward()
    except torch.cuda.OutOfMemoryError as error:
        print(f"WARNING: rank {rank} skipped a batch: {error}", flush=True)
        return
    optimizer.step()
    optimizer.zero_grad()

def train():
    for step, batch in enumerate(batches):
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
        train_step(step, batch.to(device))
        if step == at:
            exchange(step)
            report_alone(step)
        if step == at and name in {"rank0_saves", "healthy_scary"}:
            save_checkpoint(step)
        if name == "healthy_scary" and step == 20:
            warnings.warn("NCCL error in an earlier run was: unhandled system error; watchdog timeouts are 14 s now")
            try:
                raise ConnectionResetError(104, "Connection reset by peer")
            except ConnectionResetError as error:
                print(f"WARNING: metrics server: {error}; retrying", flush=True)
        if cuda:
            torch.cuda.synchronize()
        if name == "finally_barrier" and mine and step == at:
            raise KeyError("labels")

if name == "finally_barrier":
    try:
        train()
    finally:
        dist.barrier()
else:
    train()
print("through", rank, flush=True)
dist.destroy_process_group()
"""

TRUTH: dict[str, tuple[str, list[int]]] = {
    "healthy_scary": ("HEALTHY", []), "ddp_no_sync": ("DESYNC-FLOW", [1]), "fsdp_twice": ("DESYNC-FLOW", [1]),
    "fsdp_raises": ("DEAD", [1]), "rank0_saves": ("CPU-STUCK", [0]), "barrier_rank0": ("DESYNC-FLOW", [0]),
    "object_alone": ("DESYNC-FLOW", [1]), "p2p_sizes": ("DESYNC-ARGS", []), "both_recv": ("DESYNC-FLOW", []),
    "splits": ("DESYNC-ARGS", []), "wrong_root": ("DESYNC-ARGS", []), "groups_cross": ("DESYNC-FLOW", []),
    "group_by_one": ("HEALTHY", []), "gil": ("CPU-STUCK", [1]), "loader_dead": ("DEAD", [1]),
    "loader_stuck": ("CPU-STUCK", [1]), "oom_caught": ("DESYNC-FLOW", [1]), "finally_barrier": ("DESYNC-FLOW", [1]),
    "checkpoint_missing": ("DEAD", [1]), "stops_itself": ("CPU-STUCK", [1]), "disk_full": ("DEAD", [0]),
    "extra_reduce": ("DESYNC-FLOW", [1]),
}  # fmt: skip
"""Run -> fault class and culprit ranks; of two ranks the evidence cannot always tell which."""

LIMIT_S = 55.0
REACHED = b"step 10 "
STACKS_S = 6.0
"""After this line of the job stacks are taken."""


def record(name: str, out: Path, *, cpu: bool, nodes: int) -> str:
    """One job; everything of it is gone when this returns."""
    folder = out / name
    folder.mkdir(parents=True)
    (folder / "job.py").write_text(JOB)
    env = {
        "DEVICE": "cpu" if cpu else "cuda",
        "OMP_NUM_THREADS": "1",
        "NCCL_DEBUG": "INFO",
        "PIDS": str(folder),
        "NCCL_DEBUG_SUBSYS": "INIT,NET,COLL,ENV",
        "TORCH_FR_BUFFER_SIZE": "400",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/fr_",
    }
    environs, outputs = on_nodes(env, folder, nodes, "" if cpu else "0,1")
    began = time.monotonic()
    codes = watched(
        folder, [str(folder / "job.py"), name], environs, outputs, reached=REACHED, stacks_s=STACKS_S, limit_s=LIMIT_S
    )
    seconds = write_truth(folder, name, *TRUTH[name], codes, began)
    return f"{name:18} exit codes {codes} after {seconds} s"


def main() -> int:
    """Record them all; a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(TRUTH))
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=1)
    parser.add_argument("--at-a-time", type=int, default=3)
    args = parser.parse_args()
    out = args.out.absolute()
    all_of(args.only.split(","), lambda name: record(name, out, cpu=args.cpu, nodes=args.nodes), args.at_a_time)
    return 0


if __name__ == "__main__":
    sys.exit(main())
