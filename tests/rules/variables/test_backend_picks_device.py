from allready.model import Severity
from tests.cases import cases
from tests.rules.variables.made import clear, here, hits, settings, software, values

CODE = "VAR031"
NEW = software(torch="2.15.0")
WITHOUT = ("train.py", "import torch.distributed as dist\ndist.init_process_group('nccl')\n")
WITH = ("train.py", "import torch.distributed as dist\ndist.init_process_group('nccl', device_id=device)\n")


def test_a_rank_without_a_local_rank() -> None:
    found = values(CODE, settings(WITHOUT, here={"RANK": "9", "WORLD_SIZE": "16"}), software=NEW)
    assert (found["name"], found["call"]) == ("RANK", "train.py:2")


def test_one_visible_gpu_beside_a_local_rank() -> None:
    made = settings(WITHOUT, here={"RANK": "3", "LOCAL_RANK": "3", "CUDA_VISIBLE_DEVICES": "3"})
    assert values(CODE, made, software=NEW)["name"] == "CUDA_VISIBLE_DEVICES"


def test_without_the_script_it_is_information() -> None:
    [hit] = hits(CODE, here(RANK="9"), software=NEW)
    assert hit.severity is Severity.INFO


def test_what_torchrun_sets_is_right() -> None:
    made = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert clear(CODE, settings(WITHOUT, here=made), software=NEW)


def test_device_id_is_what_it_takes() -> None:
    assert clear(CODE, settings(WITH, here={"RANK": "9"}), software=NEW)


def test_earlier_versions_wait_for_the_first_collective() -> None:
    assert clear(CODE, settings(WITHOUT, here={"RANK": "9"}), software=software(torch="2.13.0"))
    assert clear(CODE, settings(WITHOUT, here={"RANK": "9"}), software=software())
    gloo = ("train.py", "import torch.distributed as dist\ndist.init_process_group(backend='gloo')\n")
    assert clear(CODE, settings(gloo), software=NEW)


@cases(
    "line",
    [
        "CUDA_VISIBLE_DEVICES=$SLURM_LOCALID python train.py",
        "export CUDA_VISIBLE_DEVICES=${OMPI_COMM_WORLD_LOCAL_RANK}",
        "CUDA_VISIBLE_DEVICES=${GPUS[$LOCAL_RANK]} LOCAL_RANK=$SLURM_LOCALID python train.py",
    ],
)
def test_a_gpu_for_each_rank_that_only_the_job_knows(line: str) -> None:
    assert values(CODE, settings(WITHOUT, ("rank.sh", line)), software=NEW)["name"] == "CUDA_VISIBLE_DEVICES"
    assert clear(CODE, settings(WITH, ("rank.sh", line)), software=NEW)
    alone = line.replace("LOCAL_RANK=$SLURM_LOCALID", "") + "\nexport LOCAL_RANK=0\n"
    assert clear(CODE, settings(WITHOUT, ("rank.sh", alone)), software=NEW)


def test_a_gpu_that_the_program_takes_from_all() -> None:
    lines = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = str(args.local_rank)\n"
    assert values(CODE, settings(("train.py", lines + WITHOUT[1])), software=NEW)["line"] == 2
    assert clear(CODE, settings(("train.py", lines.replace("local_rank", "gpus") + WITHOUT[1])), software=NEW)


@cases("option", ["#SBATCH --gpus-per-task=1", "#SBATCH -N 2 --gpu-bind=single:1", "#SBATCH --gpus-per-task=h100:1"])
def test_one_gpu_that_slurm_shows_to_each_task(option: str) -> None:
    lines = f"#!/bin/bash\n{option}\nexport LOCAL_RANK=$SLURM_LOCALID\nsrun python train.py\n"
    assert values(CODE, settings(WITHOUT, ("job.sbatch", lines)), software=NEW)["name"] == "LOCAL_RANK"
    assert clear(CODE, settings(WITH, ("job.sbatch", lines)), software=NEW)
    assert clear(CODE, settings(WITHOUT, ("job.sbatch", lines.replace("=$SLURM_LOCALID", "=0"))), software=NEW)
    for other in (
        "#SBATCH --gpus-per-task=10",
        "#SBATCH --gpus-per-node=8",
        "# --gpus-per-task=1",
        "#SBATCH --gpus-per-task=1 # none",
    ):
        is_one = other.endswith("none")
        made = settings(WITHOUT, ("job.sbatch", lines.replace(option, other)))
        assert clear(CODE, made, software=NEW) is not is_one
