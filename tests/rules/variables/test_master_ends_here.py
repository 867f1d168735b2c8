"""VAR036: a loopback address as master in a file that itself asks for several nodes."""

import pytest

from tests.cases import cases
from tests.clock import cpu_s
from tests.rules.variables.made import clear, hits, settings, values

CODE = "VAR036"
SBATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus=8\n"
ACCELERATE = "distributed_type: MULTI_GPU\nnum_machines: {}\nnum_processes: 16\nmain_process_ip: {}\n"
BAD = [
    ("default_config.yaml", ACCELERATE.format(2, "127.0.0.1"), 4, 2, 2),
    ("job.sbatch", SBATCH + "export MASTER_ADDR=localhost\nsrun python train.py\n", 4, 2, 2),
    ("job.sbatch", "#!/bin/bash\n#SBATCH -J x -N 4\nMASTER_ADDR=127.0.0.1 srun python train.py\n", 3, 2, 4),
    ("run.sh", "torchrun --nnodes 2 --nproc-per-node 8 \\\n  --master_addr 127.0.0.1 train.py\n", 2, 1, 2),
    ("run.sh", "torchrun --nnodes=2:4 --rdzv-endpoint=localhost:29500 --rdzv-backend=c10d train.py\n", 1, 1, 2),
    ("run.sh", "NNODES=2\nHEAD=127.0.1.1\ntorchrun --nnodes=$NNODES --master_addr=${HEAD} train.py\n", 2, 1, 2),
    ("run.sh", "accelerate launch --num_machines 3 --main_process_ip ::1 train.py\n", 1, 1, 3),
    ("run.sh", 'torchrun --nnodes="2" --rdzv_endpoint="[::1]:29500" train.py\n', 1, 1, 2),
    ("pod.yaml", "spec:\n  containers:\n  - args:\n    - --nnodes=2\n    - --master_addr=localhost\n", 5, 4, 2),
]
GOOD = [
    ("default_config.yaml", ACCELERATE.format(1, "127.0.0.1")),
    ("default_config.yaml", ACCELERATE.format(2, "10.0.0.1")),
    ("job.sbatch", SBATCH + "# export MASTER_ADDR=localhost\nsrun python train.py\n"),
    ("job.sbatch", SBATCH + "export MASTER_ADDR=$(hostname)\nsrun python train.py\n"),
    ("job.sbatch", SBATCH + "if x; then MASTER_ADDR=$(hostname); else MASTER_ADDR=localhost; fi\n"),
    ("job.sbatch", SBATCH + "export MASTER_ADDR=localhost\nsrun -N1 python train.py &\nsrun -N1 python eval.py\n"),
    ("job.sbatch", SBATCH + "srun torchrun --nnodes=1 --master_addr=localhost train.py\n"),
    ("job.sbatch", SBATCH + "srun torchrun --standalone --nproc-per-node 8 train.py\nexport MASTER_ADDR=localhost\n"),
    ("job.sbatch", "#SBATCH --nodes=1\nexport MASTER_ADDR=localhost\nsrun python train.py\n"),
    ("job.sbatch", SBATCH + "srun torchrun --nnodes 2 --rdzv_endpoint $HOST:29500 train.py\n"),
    ("run.sh", "torchrun --nnodes=1:4 --rdzv-endpoint=localhost:29500 train.py\n"),
    ("run.sh", "torchrun --nnodes=$NNODES --master_addr=localhost train.py\n"),
    ("run.sh", "# SBATCH --nodes=2\nexport MASTER_ADDR=localhost\n"),
    ("run.sh", "torchrun --nnodes 2 --master_addr 10.0.0.1 train.py; curl http://localhost:8080/\n"),
    ("two.sh", "for n in 0 1; do torchrun --nnodes 2 --node-rank $n --master-addr 127.0.0.1 train.py & done\n"),
    ("two.sh", "".join(f"torchrun --nnodes 2 --node_rank={n} --master_addr localhost train.py &\n" for n in (0, 1))),
    ("run.sh", "torchrun --nnodes 2 --master_addr localhost.cluster.org train.py\n"),
]


@cases("name, text, line, nodes_line, nodes", BAD)
def test_names_file_and_line(name: str, text: str, line: int, nodes_line: int, nodes: int) -> None:
    found = values(CODE, settings((name, text)))
    assert (found["file"], found["line"], found["nodes_line"], found["nodes"]) == (name, line, nodes_line, nodes)


@cases("name, text", GOOD)
def test_leaves_one_node_and_addresses_of_others(name: str, text: str) -> None:
    assert clear(CODE, settings((name, text)))


def test_each_file_is_judged_by_itself() -> None:
    one = ("one.sh", "export MASTER_ADDR=localhost\npython train.py\n")
    assert clear(CODE, settings(one, ("job.sbatch", SBATCH + "srun python train.py\n")))
    assert len(hits(CODE, settings(*[(f"{n}.sh", BAD[3][1]) for n in range(3)]))) == 3


@pytest.mark.thorough
@cases(
    "piece",
    ["--nnodes 2 ", "--master_addr localhost ", "#SBATCH ", "srun ", "srun -N", "a: ", "- ", " ", "$A", "for a in "],
)
def test_reads_any_text_in_linear_time(piece: str) -> None:
    """Four times the text takes about four times as long; what takes no time that can be measured passes."""
    whole, quarter = ("#SBATCH --nodes=2\n" + (piece * num)[:num] for num in (100_000, 25_000))
    took_s = cpu_s(lambda: settings(("job.sbatch", whole)), enough_s=0.1)
    assert took_s < max(0.1, 6 * cpu_s(lambda: settings(("job.sbatch", quarter))))
