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


FILES = {
    "accelerate.yaml": "num_machines: 2\nnum_processes: 16\ndataloader_num_workers: 8\nslurm:\n  cpus_per_task: 32\n",
    "ds.json": '{"train": {"num_workers": 12, "nproc_per_node": 4}, "resources": {"cpus": "16"}}',
    "pod.yaml": "spec:\n  containers:\n  - command: [torchrun, --nproc-per-node=8, train.py, --num-workers, '8']\n"
    "    resources:\n      requests: {cpu: 4}\n      limits: {cpu: 32}\n",
    "sky.yaml": "resources:\n  cpus: 4\nrun: |\n"
    "  torchrun \\\n    --nproc-per-node 2 \\\n    train.py --num-workers 4\n",
}
FINE = {
    "accelerate.yaml": "num_machines: 2\nnum_processes: 16\ndataloader_num_workers: 4\nslurm:\n  cpus_per_task: 32\n",
    "hydra.yaml": "launcher:\n  cpus_per_task: 8\n  tasks_per_node: 8\ndata:\n  num_workers: 8\ndevices: 8\n",
    "unknown.yaml": "data:\n  num_workers: 64\n",
    "two.yaml": "a: {cpus: 8}\nb: {cpus: 64}\nnum_workers: 32\n",
    "part.yaml": "resources: {limits: {cpu: 500m}}\nnum_workers: 32\n",
}


def test_configurations_and_manifests_are_read() -> None:
    found = {name: values(CODE, settings((name, text))) for name, text in FILES.items()}
    assert {name: (v["workers"], v["cpus"], v["share"]) for name, v in found.items()} == {
        "accelerate.yaml": (64, 32, 4),
        "ds.json": (48, 16, 4),
        "pod.yaml": (64, 32, 4),
        "sky.yaml": (8, 4, 2),
    }
    assert found["sky.yaml"]["line"] == 6
    assert [name for name, text in FINE.items() if not clear(CODE, settings((name, text)))] == []
