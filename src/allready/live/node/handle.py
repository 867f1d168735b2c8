"""What the observer needs to know of a rank that the launcher started."""

from pathlib import Path

from msgspec import Struct


class RankHandle(Struct, frozen=True, kw_only=True):
    """One rank of the present attempt.

    `nccl_log_glob`: a pattern for the files that NCCL writes for this rank; empty when there are none.
    `gpu`: its index as NVML counts; None when the rank has no GPU or it is not known which.
    """

    rank: int
    local_rank: int
    pid: int
    log_path: Path | None = None
    nccl_log_glob: str = ""
    gpu: int | None = None
