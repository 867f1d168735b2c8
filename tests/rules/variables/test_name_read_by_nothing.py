from tests.cases import cases
from tests.rules.variables.made import clear, here, hits, script, settings, values

CODE = "VAR001"


def test_says_where_it_stands_and_what_does_it_instead() -> None:
    found = values(CODE, script("# timeouts", "export NCCL_TIMEOUT=3600"))
    assert (found["name"], found["value"], found["file"], found["line"]) == ("NCCL_TIMEOUT", "3600", "train.sh", 2)
    assert "init_process_group" in str(found["instead"])
    assert found["command"] == ""


def test_in_this_environment_it_can_be_typed() -> None:
    found = values(CODE, here(NCCL_SOCKET_TIMEOUT="60"))
    assert (found["line"], found["command"]) == (None, "unset NCCL_SOCKET_TIMEOUT")


def test_several_lines_of_one_value_are_one_finding() -> None:
    [hit] = hits(CODE, script("export NCCL_TIMEOUT=1", "NCCL_TIMEOUT=1 python train.py"))
    assert [e.source for e in hit.evidence] == ["train.sh:1", "train.sh:2"]


@cases("name, instead", [("NCCL_ENABLE_IB", "NCCL_IB_DISABLE"), ("PYTORCH_NCCL_TIMEOUT", "init_process_group")])
def test_a_slip_of_such_a_name_is_read_by_nothing_either(name: str, instead: str) -> None:
    assert instead in str(values(CODE, here(**{name: "1"}))["instead"])


@cases(
    "name",
    ["NCCL_DEBUG", "TORCH_NCCL_BLOCKING_WAIT", "MY_NCCL_TIMEOUT", "NCCL_A_NAME_OF_TOMORROW", "SLURM_JOB_ID", "PATH"],
)
def test_accuses_no_name_that_may_be_read(name: str) -> None:
    assert clear(CODE, here(**{name: "1"}))


@cases("name", ["NCCL_TIMEOUT", "NCCL_SOCKET_TIMEOUT", "NCCL_CONNECT_TIMEOUT", "NCCL_IB_ENABLE"])
def test_every_kind_of_file_counts(name: str) -> None:
    for file, text in {
        "job.sbatch": f"#!/bin/bash\n#SBATCH -N 2\nexport {name}=1\n",
        "Dockerfile": f"FROM x\nENV {name}=1\n",
        ".env": f"{name}=1\n",
        "guide.md": f"# a\n```bash\nexport {name}=1\n```\n",
        "train.py": f'import os\nos.environ["{name}"] = "1"\n',
        "pod.yaml": f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - env:\n    - name: {name}\n      value: '1'",
    }.items():
        assert values(CODE, settings((file, text)))["name"] == name, file
