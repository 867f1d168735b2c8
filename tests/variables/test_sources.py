"""Every kind of file, read as the program that uses it reads it."""

import importlib.util
import itertools
import json
import shlex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allready.model import SourceKind
from allready.variables.sources.parsed import Parsed, read_environment
from allready.variables.sources.read import kind_of, read_text
from tests.cases import cases
from tests.clock import Stopwatch

HAS_YAML = importlib.util.find_spec("yaml") is not None
needs_yaml = pytest.mark.skipif(not HAS_YAML, reason="PyYAML is not installed")


def pairs(parsed: Parsed) -> list[tuple[str, str | None, int | None]]:
    return [(s.name, s.value, s.line) for s in parsed.settings]


def of_shell(*lines: str) -> list[tuple[str, str | None, int | None]]:
    return pairs(read_text("a.sh", "\n".join(lines)))


@cases(
    "line, expected",
    [
        ("export A=b", [("A", "b")]),
        ("export A='b c'", [("A", "b c")]),
        ('export A="b c" D=e', [("A", "b c"), ("D", "e")]),
        ("A=b python train.py", [("A", "b")]),
        ("env A=b C=d python train.py", [("A", "b"), ("C", "d")]),
        ("export A=b  # a comment", [("A", "b")]),
        ("# export A=b", []),
        ("export A=$B", [("A", None)]),
        ("export A=$(hostname)", [("A", None)]),
        ("export A='$B'", [("A", "$B")]),
        ("export A=b\\ c", [("A", "b c")]),
        ("export A=b; export C=d", [("A", "b"), ("C", "d")]),
        ("true && export A=b", [("A", "b")]),
        ("mpirun -x A=b -np 2 python t.py", [("A", "b")]),
        ("docker run -e A=b --env C=d --env=E=f image", [("A", "b"), ("C", "d"), ("E", "f")]),
        ("srun --export=ALL,A=b python t.py", [("A", "b")]),
        ("#SBATCH --export=ALL,A=b", [("A", "b")]),
        ("#SBATCH --nodes=4 -t 1:00 --export=ALL,A=b", [("A", "b")]),
        ("#PBS -l select=2 -v A=b", [("A", "b")]),
        ("if [ a = b ]; then export A=b; fi", [("A", "b")]),
        ("export A=", [("A", "")]),
        ("echo A=b", []),
        ("python t.py --lr=3 A=b", []),
        ("setenv A b", [("A", "b")]),
    ],
)
def test_shell(line: str, expected: list[tuple[str, str | None]]) -> None:
    assert [(name, value) for name, value, _ in of_shell(line)] == expected


def test_lines_are_counted_through_continuations_and_here_documents() -> None:
    found = of_shell("#!/bin/bash", "export A=b \\", "  C=d", "cat <<EOF", "export X=y", "EOF", "export E=f")
    assert [(n, v) for n, v, _ in found if n != "X"] == [("A", "b"), ("C", "d"), ("E", "f")]
    assert found[-1][2] == 7


@cases(
    "text, expected",
    [
        ("A=b\n", [("A", "b")]),
        ('A="b c"\n', [("A", "b c")]),
        ("export A=b\n", [("A", "b")]),
        ("# A=b\n\nC=d\n", [("C", "d")]),
        ("A=b # c\n", [("A", "b")]),
    ],
)
def test_dotenv(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(n, v) for n, v, _ in pairs(read_text(".env", text))] == expected


def test_an_environment_as_env_prints_it_or_the_kernel_keeps_it() -> None:
    printed = read_text("node0.txt", "A=b=c\nNCCL_DEBUG=INFO\n")
    kept = read_text("environ", "A=b=c\0NCCL_DEBUG=INFO\0")
    assert printed.kind is kept.kind is SourceKind.DUMP
    assert [s.value for s in printed.settings] == [s.value for s in kept.settings] == ["b=c", "INFO"]


def test_nccl_trims_nothing() -> None:
    found = read_text("/etc/nccl.conf", 'NCCL_DEBUG=INFO\nNCCL_ALGO="Ring"\n#NCCL_PROTO=LL\nNCCL_NET = IB\n')
    assert ("NCCL_ALGO", '"Ring"', 2) in pairs(found)
    assert [m.slip for m in found.malformed] == ["blank-before-equals"]


def test_dockerfile() -> None:
    text = 'FROM x\nENV A=b C="d e" \\\n    F=g\nENV OLD value of it\nARG H=i\nRUN J=k make\nENV L=$A\n'
    assert pairs(read_text("Dockerfile", text))[:4] == [
        ("A", "b", 2),
        ("C", "d e", 2),
        ("F", "g", 3),
        ("OLD", "value of it", 4),
    ]
    assert ("L", None, 7) in pairs(read_text("Dockerfile", text))


def test_python() -> None:
    text = """
import os
os.environ["A"] = "b"
os.environ.setdefault("C", "d")
os.environ.update({"E": "f", "G": x}, H="i")
os.putenv("J", "k")
os.environ[name] = "l"
environ["M"] = str(1)
dist.init_process_group("nccl", device_id=d)
"""
    found = read_text("train.py", text)
    assert [(n, v) for n, v, _ in pairs(found)] == [
        ("A", "b"), ("C", "d"), ("E", "f"), ("G", None), ("H", "i"), ("J", "k"), ("M", None),
    ]  # fmt: skip
    [call] = found.calls
    assert (call.function, call.line, call.keywords, call.backend) == ("init_process_group", 9, ("device_id",), "nccl")


def test_a_python_file_that_does_not_parse() -> None:
    [malformed] = read_text("a.py", "def (:\n").malformed
    assert malformed.slip == "unreadable"


def test_markdown_blocks_by_their_language() -> None:
    text = '# A\n```bash\nexport A=b\n```\n\n```python\nimport os\nos.environ["C"] = "d"\n```\n\n    export E=f\n'
    found = read_text("guide.md", text)
    assert found.kind is SourceKind.MARKDOWN
    assert pairs(found)[:2] == [("A", "b", 3), ("C", "d", 8)]


@needs_yaml
def test_kubernetes() -> None:
    text = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
          - name: pytorch
            command: ["bash", "-c", "export NCCL_DEBUG=INFO; python t.py"]
            env:
            - name: A
              value: "b"
            - {name: C, value: 1}
            - name: D
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
"""
    found = read_text("job.yaml", text)
    assert found.kind is SourceKind.KUBERNETES
    assert pairs(found) == [("NCCL_DEBUG", "INFO", 11), ("A", "b", 14), ("C", "1", 15), ("D", None, 16)]
    assert [m.slip for m in found.malformed] == ["not-a-text"]


HELM = """{{- if .Values.enabled }}
kind: Pod
metadata:
  labels: {{- include "x.labels" . | nindent 4 }}
spec:
  containers:
  - env:
    - name: A
      value: "b"
    {{- /* two
    lines */}}
    - {name: B, value: {{ .Values.b | quote }}}
    {{- range $k, $v := .Values.env }}
    - name: {{ $k }}
      value: {{ $v | quote }}
    {{- end }}
    - name: C
      value: "{{ .Values.c }}"
    - name: D
      value: "true"
{{- end }}
"""
JINJA = """{# note #}
env:
{% for k, v in env.items() %}
  {{ k }}: "{{ v }}"
{% endfor %}
  A: b
"""


@needs_yaml
def test_templates_of_manifests() -> None:
    found = read_text("templates/pod.yaml", HELM)
    assert [row for row in pairs(found) if row[0] in "ABCD"] == [
        ("A", "b", 9), ("B", None, 12), ("C", None, 18), ("D", "true", 20),
    ]  # fmt: skip
    assert found.malformed == []
    assert pairs(read_text("job.yaml.j2", JINJA)) == [("A", "b", 6)]


def test_copies_of_the_environment_in_python() -> None:
    lines = [
        "import os, subprocess",
        "mine = os.environ.copy()",
        "mine['A'] = 'b'",
        "mine.update(C='d')",
        "subprocess.run(['x'], env=dict(os.environ, E='f'))",
        "other = {}",
        "other['G'] = 'h'",
        "merged = {**os.environ, 'I': 'j'}",
        "merged['K'] = 'l'",
    ]
    found = pairs(read_text("launch.py", "\n".join(lines)))
    assert found == [("A", "b", 3), ("C", "d", 4), ("E", "f", 5), ("I", "j", 8), ("K", "l", 9)]


@needs_yaml
@cases(
    "name, text, expected",
    [
        ("compose.yaml", "services:\n  a:\n    environment:\n    - A=b\n    - C\n", [("A", "b")]),
        ("compose.yaml", "services:\n  a:\n    environment:\n      A: b\n      C: 1\n", [("A", "b"), ("C", "1")]),
        ("sky.yaml", "envs:\n  A: b\nrun: |\n  export C=d\n  python t.py\n", [("A", "b"), ("C", "d")]),
        ("ray.json", '{"env_vars": {"A": "b"}}', [("A", "b")]),
        ("env.json", '{"A": "b", "NCCL_DEBUG": "INFO"}', [("A", "b"), ("NCCL_DEBUG", "INFO")]),
        ("other.yaml", "num_machines: 2\nmain_process_port: 29500\n", []),
        (
            "accelerate.yaml",
            "distributed_type: MULTI_GPU\nnum_processes: 16\nmain_process_ip: 10.0.0.1\nmain_process_port: 99999\n",
            [("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "99999")],
        ),
        ("local.yaml", "distributed_type: NO\nnum_processes: 1\nmain_process_ip: null\n", []),
        ("ds.json", '{"train_batch_size": 8, "zero_optimization": {"stage": 3}}', []),
    ],
)
def test_launchers(name: str, text: str, expected: list[tuple[str, str]]) -> None:
    assert [(n, v) for n, v, _ in pairs(read_text(name, text))] == expected


@needs_yaml
def test_yaml_that_is_none() -> None:
    assert [m.slip for m in read_text("a.yaml", "a: [b\n").malformed] == ["unreadable"]
    assert read_text("a.yaml", "").settings == []


@cases(
    "name, text, kind",
    [
        ("a.sh", "", SourceKind.SHELL),
        ("Dockerfile", "", SourceKind.DOCKERFILE),
        ("gpu.Dockerfile", "", SourceKind.DOCKERFILE),
        ("Dockerfile.cuda", "", SourceKind.DOCKERFILE),
        (".env.local", "", SourceKind.DOTENV),
        (".deepspeed_env", "", SourceKind.DOTENV),
        ("t.py", "", SourceKind.PYTHON),
        ("nccl.conf", "", SourceKind.NCCL_CONF),
        ("a.yml", "", SourceKind.CONFIG),
        ("README.md", "", SourceKind.MARKDOWN),
        ("launch", "#!/bin/bash\npython t.py\n", SourceKind.SHELL),
        ("node0", "A=b\nC=d\n", SourceKind.DUMP),
    ],
)
def test_the_kind_of_a_file(name: str, text: str, kind: SourceKind) -> None:
    assert kind_of(name, text) is kind


def test_a_script_for_a_scheduler() -> None:
    assert read_text("job.sh", "#!/bin/bash\n#SBATCH -N 2\nexport A=b\n").kind is SourceKind.BATCH
    assert read_text("job", "#!/bin/bash\n#PBS -l select=2\nexport A=b\n").kind is SourceKind.BATCH
    assert read_text("job.sh", "#!/bin/bash\n# SBATCH would be\nexport A=b\n").kind is SourceKind.SHELL


def test_this_environment() -> None:
    [setting] = read_environment({"A": "b"}).settings
    assert (setting.place, setting.kind.is_for_this_machine) == ("environment", True)


WORDS = st.sampled_from(
    [
        "export ", "ENV ", "A=", "NCCL_DEBUG", "=", "'", '"', "\\", "\n", "$", "(", ")", "{", "}", "`", "#", ";", "|",
        "&", " ", "<<EOF", "EOF", "- ", ": ", "env:", "name: ", "value: ", "```", "bash", "\t", "\0", "é",
        "os.environ[", "]", ",", "&a", "*a",
    ]
)  # fmt: skip
NAMES = [
    "a.ipynb",
    "a.tf",
    "Makefile",
    "a.ps1",
    "supervisord.conf",
    "a.toml",
    "a.sh",
    "Dockerfile",
    ".env",
    "nccl.conf",
    "t.py",
    "a.md",
    "unknown",
]
if HAS_YAML:
    NAMES += ["a.yaml", "a.json"]


@pytest.mark.thorough
@given(st.sampled_from(NAMES), st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=60).map("".join)))
@settings(max_examples=600, deadline=None)
def test_any_text_can_be_read(name: str, text: str) -> None:
    parsed = read_text(name, text)
    lines = text.count("\n") + text.count("\r") + text.count("\0") + 2
    for setting in parsed.settings:
        assert setting.name.isidentifier()
        assert setting.line is None or 1 <= setting.line <= lines, text
    for malformed in parsed.malformed:
        assert 1 <= malformed.line <= lines + 1


@pytest.mark.thorough
@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,20}", fullmatch=True), st.text(max_size=30), max_size=8))
@example({"A": "\\\U0003ffff", "B": "\\\\\U0001f600\\ud83d\\ude00"})
@settings(max_examples=200, deadline=None)
def test_what_is_quoted_comes_back(variables: dict[str, str]) -> None:
    clean = {k: v for k, v in variables.items() if "\0" not in v and "\r" not in v and v.isprintable()}
    text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in clean.items())
    assert {s.name: s.value for s in read_text("a.sh", text).settings} == clean
    if HAS_YAML:
        # $(A) and {{ a }} are filled in later
        fixed = {k: v for k, v in clean.items() if "$" not in v and "{{" not in v}
        assert {s.name: s.value for s in read_text("a.json", json.dumps({"env": fixed})).settings} == fixed


@pytest.mark.thorough
@cases("text", ["export A=b\n" * 6000, "true\n" * 60_000])
def test_what_is_beyond_the_bounds_is_not_passed_over_in_silence(text: str) -> None:
    found = read_text("a.sh", text)
    assert [m.slip for m in found.malformed] == ["unreadable"]
    assert "only the first" in found.malformed[0].text


@needs_yaml
def test_aliases_of_aliases_are_read_once() -> None:
    """Seen: 400 bytes of YAML that a walk along every alias takes hours for."""
    names = "abcdefghij"
    rows = [f"{names[0]}: &{names[0]} [num_workers, 8]"]
    rows += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in itertools.pairwise(names)]
    watch = Stopwatch()
    assert pairs(read_text("job.yaml", "\n".join([*rows, "cpus_per_task: 4"]))) == []
    assert watch.s < 3.0


@pytest.mark.thorough
def test_a_command_of_endless_lines_is_read_in_time() -> None:
    """Seen: an instruction of 50,000 continued lines took minutes; each line was read again with all before it."""
    watch = Stopwatch()
    found = read_text("Dockerfile", "FROM x\nENV A=1 \\\n" + "  B=2 \\\n" * 40_000 + "  C=3\n")
    assert watch.s < 15.0
    assert ("A", "1", 2) in pairs(found)
    assert ("B", "2", 180) in pairs(found)
