from tests.cases import cases
from tests.rules.variables.made import clear, settings, values

CODE = "VAR027"
POD = """\
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: a
    env:
    - name: NCCL_IB_DISABLE
      value: {}
"""


@cases("value", ["1", "true", "yes", "0.5"])
def test_what_yaml_does_not_take_for_a_text(value: str) -> None:
    found = values(CODE, settings(("pod.yaml", POD.format(value))))
    assert (found["name"], found["line"], found["value"]) == ("NCCL_IB_DISABLE", 8, value)


@cases("value", ["'1'", '"true"', "eth0", "$(NODE_NAME)"])
def test_texts(value: str) -> None:
    assert clear(CODE, settings(("pod.yaml", POD.format(value))))


def test_a_launcher_takes_numbers() -> None:
    assert clear(CODE, settings(("config.yaml", "env:\n  NCCL_IB_DISABLE: 1\n")))


def test_any_variable_counts_because_the_whole_object_is_refused() -> None:
    text = POD.format("'1'").replace("NCCL_IB_DISABLE", "MY_OWN").replace("'1'", "7")
    assert values(CODE, settings(("pod.yaml", text)))["name"] == "MY_OWN"
