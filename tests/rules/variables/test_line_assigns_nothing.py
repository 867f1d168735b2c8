from tests.cases import cases
from tests.rules.variables.made import clear, script, settings, values

CODE = "VAR026"


@cases("line", ["export NCCL_DEBUG = INFO", "export NCCL_DEBUG= INFO", "NCCL_DEBUG = INFO"])
def test_blanks_around_the_sign(line: str) -> None:
    found = values(CODE, script("#!/bin/bash", line))
    assert (found["name"], found["line"], found["file"]) == ("NCCL_DEBUG", 2, "train.sh")


def test_a_misspelt_name_counts_as_well() -> None:
    assert values(CODE, script("export NCCL_DEUBG = INFO"))["name"] == "NCCL_DEUBG"


@cases("line", ["export NCCL_DEBUG=INFO", "if [ $NCCL_DEBUG = INFO ]; then", "export A = b", "# NCCL_DEBUG = INFO"])
def test_other_lines(line: str) -> None:
    assert clear(CODE, script(line))


def test_a_python_file_may_have_blanks() -> None:
    assert clear(CODE, settings(("train.py", 'import os\nos.environ["NCCL_DEBUG"] = "INFO"\nNCCL_DEBUG = 1\n')))
