"""What a process of a job is, by its command line and its frames: a rank, its launcher, a data-loading worker."""

import re
from collections.abc import Iterable, Sequence

from allready.model import Frame
from allready.patterns import compiled

_LAUNCHER_PROGRAMS = {
    "torchrun", "deepspeed", "accelerate", "accelerate-launch", "srun", "mpirun", "mpiexec", "mpiexec.hydra",
    "orterun", "prterun", "orted", "prted", "hydra_pmi_proxy", "horovodrun", "colossalai", "composer", "slurmstepd",
    "allready",
}  # fmt: skip
_LAUNCHER_MODULES = (
    "torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic", "torchelastic",
    "accelerate.commands", "deepspeed.launcher", "colossalai.cli", "composer.cli", "allready",
)  # fmt: skip
_HELPER_MODULES = (
    "multiprocessing.resource_tracker", "multiprocessing.forkserver", "torch._inductor.compile_worker",
    "tensorboard", "wandb", "ipykernel", "jupyter", "ray", "pip",
)  # fmt: skip
_LAUNCHER_FILES = (
    "torch/distributed/elastic/agent/server/", "torch/distributed/launcher/api.py", "torch/distributed/run.py",
    "accelerate/commands/launch.py", "deepspeed/launcher/",
)  # fmt: skip
_LOADER_FILES = ("torch/utils/data/_utils/worker.py", "torchdata/_internal/worker.py")
_RANK_MODULES = ("allready.live.beacon",)  # wrappers inside of which a rank's script runs
_PYTHON = r"^(python|pypy)[\d.]*$"
_FLAGS_WITH_VALUE = {"-W", "-X", "-Q", "--check-hash-based-pycs"}

_RANK = r"(?:^|\s)(?:--(?:global[-_])?rank[= ]|RANK=|GLOBAL_RANK=)(\d{1,7})(?=\s|$)"
_LOCAL_RANK = r"(?:^|\s)(?:--local[-_]rank[= ]|LOCAL_RANK=)(\d{1,7})(?=\s|$)"


def rank_in_command(command: str) -> tuple[int | None, int | None]:
    """Global and local rank, where the command line names them."""
    world, local = compiled(_RANK).search(command), compiled(_LOCAL_RANK).search(command)
    return (int(world.group(1)) if world else None, int(local.group(1)) if local else None)


def role_of(command: str, frames: Sequence[Frame], parent_role: str | None = None) -> str:
    """`rank` unless the command line or the frames say otherwise."""
    files = {f.file for f in frames}
    if _any_in(files, _LOADER_FILES) or "pt_data_worker" in command:
        return "loader"
    program, module = _program(command)
    if _is_below(module, _RANK_MODULES):
        return "rank"
    if program in _LAUNCHER_PROGRAMS or _is_below(module, _LAUNCHER_MODULES) or _any_in(files, _LAUNCHER_FILES):
        return "launcher"
    if _is_below(module, _HELPER_MODULES):
        return "other"
    spawning = {f.function.rpartition(".")[2] for f in frames if "torch/multiprocessing/spawn.py" in f.file}
    if spawning:
        return "rank" if "_wrap" in spawning else "launcher"
    is_child = _any_in(files, ("multiprocessing/process.py", "multiprocess/process.py"))
    if is_child and parent_role == "rank":
        return "other"
    return "rank"


def _any_in(files: Iterable[str], parts: tuple[str, ...]) -> bool:
    return any(part in file for file in files for part in parts)


def _is_below(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(f"{p}.") for p in packages)


def _program(command: str) -> tuple[str, str]:
    """The name of the program or script that runs, and the module of `python -m` or of `python -c "import ..."`."""
    words = command.split()[:64]
    while words and ("=" in words[0] or words[0] in {"env", "sudo", "nohup", "exec", "numactl", "taskset"}):
        words.pop(0)
    if not words:
        return "", ""
    name = words[0].rpartition("/")[2]
    if not compiled(_PYTHON).match(name):
        return name, ""
    i = 1
    while i < len(words) and words[i].startswith("-"):
        if words[i] == "-m":
            return "", words[i + 1] if i + 1 < len(words) else ""
        if words[i] == "-c":
            match = re.search(r"(?:from|import) ([\w.]+)", " ".join(words[i + 1 :]))
            return "", match.group(1) if match else ""
        i += 2 if words[i] in _FLAGS_WITH_VALUE else 1
    return words[i].rpartition("/")[2] if i < len(words) else "", ""
