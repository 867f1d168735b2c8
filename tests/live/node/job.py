"""A job for tests: rank 1 makes no progress after some steps, in the middle of Python."""

import sys
import time

import torch
import torch.distributed as dist

STEPS = int(sys.argv[1])

if __name__ == "__main__":
    dist.init_process_group("gloo")
    tensor = torch.ones(1000)
    for step in range(10**9):
        dist.all_reduce(tensor)
        tensor.fill_(1)
        sys.stdout.write(f"step {step}\n")
        if dist.get_rank() == 1 and step == STEPS:
            sys.stdout.write("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345\n")
            time.sleep(10**6)
