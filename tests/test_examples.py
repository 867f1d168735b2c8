"""What stands in `examples` for schedulers: the shell reads it, and our parser takes every command."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from allready.cli import check, doctor, run
from allready.cli.parser import Parser
from tests.cases import cases

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = ("slurm/train.sbatch", "slurm/prolog.sh", "slurm/healthcheck.sh", "pbs/train.pbs", "lsf/train.lsf")
FILES = (
    *SCRIPTS, "kubernetes/pytorchjob.yaml", "kubernetes/pytorchjob-roll-call.yaml", "kubernetes/jobset.yaml",
    "kubernetes/jobset-roll-call.yaml", "kubernetes/leaderworkerset.yaml",
    "skypilot/train.yaml", "aws-batch/job-definition.json",
)  # fmt: skip


def commands_in(text: str) -> list[list[str]]:
    """The words of every `allready check` and `allready run`, as a shell or a list of words has them."""
    found = [json.loads(words) for words in re.findall(r"\[\"allready\".*?\]", text)]
    text = re.sub(r"\$\(\(.*?\)\)", "1", text)  # what the shell works out
    for line in text.replace("\\\n", " ").splitlines():
        match = re.search(r"(?:^|[\s/])allready (?:check|doctor|run) [^\"&|)#]*(?:\"[^\"]*\"[^\"&|)#]*)*", line)
        if match and '["allready"' not in line and not line.startswith("#"):
            for part in line[match.start() :].split("&&"):
                words = shlex.split(part.split("2>")[0].split('"]')[0].replace(")", ""))
                found.append(words[next(i for i, word in enumerate(words) if word.endswith("allready")) :])
    return found


@cases("name", FILES)
def test_every_command_is_one_that_the_parser_takes(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    found = commands_in(text)
    assert found, "no command"
    for words in found:
        parser = Parser(prog="allready")
        {"check": check, "doctor": doctor, "run": run}[words[1]].add_arguments(parser)
        arguments = parser.parse(words[2:])
        if words[1] == "run":
            assert arguments.script == "train.py"


@cases("name", SCRIPTS)
def test_the_shell_reads_every_script(name: str) -> None:
    done = subprocess.run(["bash", "-n", str(EXAMPLES / name)], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_init_container_asks_for_the_job_that_follows_it() -> None:
    yaml = pytest.importorskip("yaml")
    manifest = yaml.safe_load((EXAMPLES / "kubernetes/jobset-roll-call.yaml").read_text())
    assert manifest["spec"]["network"]["publishNotReadyAddresses"], "an init container runs before its pod is ready"
    job = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = job["template"]["spec"]
    machine, roll_call = pod["initContainers"]
    parser, other = Parser(prog="allready"), Parser(prog="allready")
    check.add_arguments(parser)
    run.add_arguments(other)
    asked, wanted = parser.parse(roll_call["command"][2:]), other.parse(pod["containers"][0]["command"][2:])
    assert machine["command"] == ["allready", "doctor", "--prolog"]
    assert (asked.nnodes, asked.nnodes, asked.master_addr) == (*wanted.nnodes, wanted.master_addr)
    assert str(asked.nproc_per_node) == str(wanted.nproc_per_node)
    assert int(asked.nnodes) == job["completions"] == job["parallelism"]
    assert asked.wait >= 300
    assert asked.master_addr == f"{manifest['metadata']['name']}-node-0-0.{manifest['metadata']['name']}"


@cases("name", ["pytorchjob", "pytorchjob-roll-call", "jobset", "jobset-roll-call"])
def test_manifests_fit_the_schemas_of_their_kinds(name: str) -> None:
    """The schemas are those of released definitions, as far as the manifests use them; unknown fields are errors."""
    yaml, jsonschema = pytest.importorskip("yaml"), pytest.importorskip("jsonschema")
    schemas = json.loads((EXAMPLES.parent / "tests/fixtures/kubernetes/schemas.json").read_text())
    documents = list(yaml.safe_load_all((EXAMPLES / f"kubernetes/{name}.yaml").read_text()))
    job = documents[-1]
    validator = jsonschema.Draft202012Validator(schemas[f"{job['apiVersion']} {job['kind']}"])
    assert [error.message for error in validator.iter_errors(job)] == []
    first = job["spec"].get("replicatedJobs", [job["spec"].get("pytorchReplicaSpecs", {}).get("Master")])[0]
    first["replica"] = first.pop("replicas")
    assert [error.message for error in validator.iter_errors(job)] != []


@pytest.mark.parametrize("index", ["0", "2"])
def test_the_roll_call_of_a_pytorchjob_meets_at_a_name_that_resolves_before_the_pods_are_ready(
    index: str, tmp_path: Path
) -> None:
    """The shell of a worker really runs, with a program in the place of ours that shows what it was given."""
    yaml = pytest.importorskip("yaml")
    service, job = yaml.safe_load_all((EXAMPLES / "kubernetes/pytorchjob-roll-call.yaml").read_text())
    assert service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["clusterIP"] == "None"
    label = "training.kubeflow.org/replica-index"
    assert service["spec"]["selector"]["training.kubeflow.org/job-name"] == job["metadata"]["name"]
    assert service["spec"]["selector"][label] == "0"
    master, workers = (job["spec"]["pytorchReplicaSpecs"][kind] for kind in ("Master", "Worker"))
    pods = [one["template"]["spec"] for one in (master, workers)]
    for pod in pods:
        assert pod["initContainers"][0]["command"] == ["allready", "doctor", "--prolog"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        every = [*pod["initContainers"], *pod["containers"]]
        assert {mount["name"] for one in every for mount in one["volumeMounts"]} <= volumes
    [first, worker] = [pod["initContainers"][1] for pod in pods]
    assert label in worker["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]
    (tmp_path / "allready").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "allready").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", worker["env"][0]["name"]: index}
    done = subprocess.run(worker["command"], env=environ, capture_output=True, text=True, timeout=30, check=True)
    asked = []
    for words in (first["command"][2:], done.stdout.splitlines()[1:]):
        parser = Parser(prog="allready")
        check.add_arguments(parser)
        asked.append(parser.parse(words))
    assert [one.node_rank for one in asked] == [0, int(index) + 1]
    alike = [(one.nnodes, one.nproc_per_node, one.master_addr, one.stages, one.wait) for one in asked]
    assert alike[0] == alike[1]
    assert asked[0].master_addr == service["metadata"]["name"]
    assert int(asked[0].nnodes) == master["replicas"] + workers["replicas"]
    assert str(asked[0].nproc_per_node) == job["spec"]["nprocPerNode"]


def test_the_definition_for_aws_batch_is_json() -> None:
    definition = json.loads((EXAMPLES / "aws-batch/job-definition.json").read_text())
    assert definition["nodeProperties"]["numNodes"] == 2


@pytest.mark.parametrize("readme", ["README.md"])
def test_every_file_is_listed(readme: str) -> None:
    text = (EXAMPLES / readme).read_text(encoding="utf-8")
    assert [name for name in FILES if name not in text] == []
