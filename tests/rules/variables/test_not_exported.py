from tests.cases import cases
from tests.rules.variables.made import clear, hits, script, settings, values

CODE = "VAR025"


def test_a_variable_of_the_shell_alone() -> None:
    assert values(CODE, script("NCCL_DEBUG=WARN", "python train.py"))["line"] == 1


@cases(
    "lines",
    [
        ["export NCCL_DEBUG=WARN"],
        ["NCCL_DEBUG=WARN python train.py"],
        ["NCCL_DEBUG=WARN", "export NCCL_DEBUG"],
        ["export NCCL_DEBUG", "NCCL_DEBUG=WARN"],
        ["set -a", "NCCL_DEBUG=WARN"],
        ["declare -x NCCL_DEBUG=WARN"],
        ["MY_OWN=1"],
        ["env NCCL_DEBUG=WARN python train.py"],
    ],
)
def test_exported_one_way_or_another(lines: list[str]) -> None:
    assert clear(CODE, script(*lines))


def test_what_the_script_itself_uses_is_its_own_affair() -> None:
    assert clear(CODE, script("MASTER_PORT=29500", "torchrun --master-port $MASTER_PORT train.py"))


def test_only_shells_export() -> None:
    assert clear(CODE, settings((".env", "NCCL_DEBUG=WARN\n"), ("Dockerfile", "FROM x\nENV NCCL_DEBUG=WARN\n")))


def test_what_a_script_computes_and_its_launcher_sets() -> None:
    assert clear(CODE, script("WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))", "torchrun train.py"))
    assert hits(CODE, script("WORLD_SIZE=8", "python train.py"))
