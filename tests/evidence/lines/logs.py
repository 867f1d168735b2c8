"""Small made-up logs for the tests of the scanner."""

import random

OPERATIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Send", "Recv", "AlltoAll")


def operation(
    rng: random.Random,
    *,
    front: str = "",
    host: str = "gpu01",
    pid: int = 4711,
    comm: str = "0x55d0c0ffee00",
    name: str | None = None,
    count: int | None = None,
    number: int | None = None,
    tail: str | None = None,
) -> str:
    """One operation line; what is not given is drawn."""
    number = rng.choice((rng.randrange(16), rng.randrange(4096), rng.randrange(2**33))) if number is None else number
    count = rng.choice((1, 4, 1048576, 262144, 467019003)) if count is None else count
    stream = rng.choice(("(nil)", "0x5618a0b0", "0x7f3aa4001230")) if tail is None else tail
    name = name or rng.choice(OPERATIONS)
    return (
        f"{front}{host}:{pid}:{pid + rng.randrange(3)} [{rng.randrange(2)}] NCCL INFO {name}: opCount {number:x} "
        f"sendbuff 0x7f{rng.randrange(2**40):010x} recvbuff 0x7f{rng.randrange(2**40):010x} count {count} "
        f"datatype {rng.choice((7, 9))} op {rng.choice((0, 2))} root {rng.randrange(2)} comm {comm} [nranks=4] "
        f"stream {stream}"
    )


def other(rng: random.Random, *, front: str = "", host: str = "gpu01", pid: int = 4711) -> str:
    """Any other line that real logs have."""
    n = rng.randrange(2000)
    return rng.choice(
        (
            f"{front}{host}:{pid}:{pid} [0] NCCL INFO Channel {n % 64:02d}/1 : 0[0] -> 1[1] via P2P/CUMEM",
            f"{front}{host}:{pid}:{pid} [0] misc/socket.cc:{n} NCCL WARN Call to connect failed: Connection refused",
            f"{front}{host}:{pid}:{pid} [0] NCCL INFO NET/IB : No device found.",
            f"{front}epoch {n % 7} loss {n / 1000:.4f} lr 3e-4",
            "",
            "\r",
            "   ",
            f"Epoch 1:  {n % 100}%|####      | {n}/2000 [00:{n % 60:02d}<00:31, 31.2it/s]\r",
            f"{front}RuntimeError: CUDA out of memory. Tried to allocate {n}.00 MiB",
            "Traceback (most recent call last):",
            f'  File "train.py", line {n}, in <module>',
            f"[  {n}.123456] NVRM: Xid (PCI:0000:3b:00): 79, pid={n}, GPU has fallen off the bus.",
            f"{front}AllReduce: opCount {n:x} is what this line talks about",
            "x" * n,
        )
    )
