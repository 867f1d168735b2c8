"""VAR027."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Settings, Severity, Slip
from allready.rules.variables._settings import at_line, line_remedy


@Rule(
    code="VAR027",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A value in a manifest that is no text",
    message="the value of {name} is a number or a truth value for YAML; Kubernetes takes texts only",
    remedy=line_remedy('put it in quotation marks: value: "{value}"'),
)
def manifest_value_not_text(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Entries of `env:` in a manifest whose value YAML reads as a number, true or false: `value: 1`, `value: yes`.
    ## Why it matters
    The API server refuses the whole object: "cannot unmarshal number into Go struct field EnvVar.value of type string".
    ## Check by hand
    `kubectl apply --dry-run=server -f FILE`.
    ## When it is harmless
    When a template makes a text of it before it is sent.
    """
    for line in settings.malformed:
        if line.slip is Slip.NOT_A_TEXT:
            name, _, value = line.text.partition(": ")
            yield at_line(line.source, line.line, name, value=value[:80])
