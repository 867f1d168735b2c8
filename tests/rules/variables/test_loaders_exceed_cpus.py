from allready.model import Settings
from tests.rules.variables.made import clear, hits, settings, values

CODE = "VAR034"


def job(cpus: str, *commands: str) -> Settings:
    return settings(("job.sbatch", "\n".join(["#!/bin/bash", "#SBATCH --nodes=2", cpus, "", *commands]) + "\n"))


def test_workers_count_for_each_rank_that_the_command_starts() -> None:
    command = ("srun torchrun --nproc-per-node=8 \\", "    train.py --epochs 3 \\", "    --num_workers 12")
    found = values(CODE, job("#SBATCH --cpus-per-task=64  # a comment", *command))
    assert (found["workers"], found["cpus"], found["line"], found["asked_line"], found["share"]) == (96, 64, 7, 3, 8)


def test_a_command_without_ranks_counts_as_one_and_short_options_are_read() -> None:
    assert len(hits(CODE, job("#SBATCH -N 2 -c 4", "srun python train.py --data.num-workers=8"))) == 1


def test_a_script_that_asks_for_no_cpus_is_not_judged() -> None:
    assert clear(CODE, job("#SBATCH --gpus=8", "srun torchrun --nproc_per_node 8 train.py --num-workers 12"))


def test_what_fits_or_is_not_known_is_left_alone() -> None:
    others = (
        job("#SBATCH --cpus-per-task=96", "srun torchrun --nproc_per_node 8 train.py --num-workers 12"),
        job("#SBATCH --gpus=8", "srun torchrun --nproc_per_node 8 train.py --num-workers 12"),
        job("#SBATCH --cpus-per-task=4", "# srun python train.py --num-workers 12"),
        job("#SBATCH --cpus-per-task=4", "srun python train.py --num-workers $WORKERS --my-num-workers-note 99"),
        job("#SBATCH --cpus-per-task=8", "srun python prepare.py --num-workers 8", "torchrun --nproc-per-node 8 t.py"),
    )
    assert [n for n, made in enumerate(others) if not clear(CODE, made)] == []
