"""A command in a remedy is data: to copy, with what is known filled in.  Sentences name programs at most."""

import re
from collections.abc import Iterator

from allready import model
from allready.docs import own_steps
from allready.judging.loading import load
from allready.judging.registry import placeholders
from allready.judging.values import hosts_of, processes_of
from allready.model.fill import UNKNOWN, fill_steps, steps_of
from allready.text.catalog import say_remedies
from allready.text.steps import NAMES, resolved, written
from allready.text.ui import entries, table
from tests.fleets import fleet

RULES = load()

COMMAND = re.compile(
    r"\bpy-spy dump|\bdmesg(?: -T)? \||\bdmesg -|\bnvidia-smi (?:-q|-L|-r|nvlink -|topo -)|\bdcgmi diag -"
    r"|\bsystemctl status|\bip (?:route get|neigh) [{A-Z]|\bip -|\bnc -|\bss -|\bgetent hosts|\bethtool -?[{A-Z]"
    r"|\bdf -|\bfree -[gh]\b|\blsmod \||\bmount \||\bcat /|\bps -[of]|\bibv_devinfo -|\bibstat -|\bmlxfwmanager -"
    r"|\bkill -\w+ [{P]|\bsacct -j|\bkubectl describe pod|\bulimit -[lnu](?! (?:unlimited|\d))"
    r"|\bedac-util -|\brocm-smi -|\bamd-smi [a-z]|\bras-mc-ctl -|\bkubectl (?:get|logs|describe) [\w{]"
    r"|\bpython3? -[cm]|\| (?:grep|sort|head|wc|tail|uniq|cut|sed|awk)\b|\bsysctl (?:-\w )?\w+\.\w|\benv \|"
    r"|\bldd [\w{/~]|\bnvidia-smi --?\w|\bsudo \w|\b(?:modprobe|rmmod) \w|\bsystemctl (?:(?:re)?start|enable|daemon)"
    r"|\blsof -|\bls (?:-\w|/)|\bpip (?:install|show)|\bfuser -|\brm [~/{-]|\bfi_\w+ -|\bgrep -"
    r"|\bsha256sum\b|\btime dd\b|\bchmod [0-7+]|\bkill PID|\becho [\"$]|\bscontrol show|\bln -s|\bmkdir -"
    r"|\btimeout \d+ \w|\bip link (?:show|set)|\bip route\b|\btc qdisc|\bumount|\bmount -|\btcpdump|\bfind [~/]|\bcurl "
    r"|\bping (?:-c \d )?[{A-Z]|\b(?:coredumpctl|lspci|ethtool|scontrol|env explain)\b[^;,.()]* \{"
)
"""Shell commands that show something, or act on a process.  Settings of the next start are none, nor names alone."""

PLACE = re.compile(
    r"(?:as root )?\bon (?:that|this|its|every|each|both|all) (?:node|machine|host)s?\b[^;,.]{0,20}:|\bas root on\b"
    r"|^在(?:该|每个|所有|报错的)(?:节点|机器|主机)上(?:执行)?：?"
)
"""A place before what is done there: `where` of the step."""

PART_OF_A_LONGER_ONE = {"VAR036": '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'}
"""A setting that contains a command."""


def explanations() -> Iterator[tuple[str, model.RemedyStep]]:
    """The steps of every rule and signature in both languages, by its code."""
    for code, rule in RULES.items():
        chinese = steps_of(entries("zh", rule.area).get(code, {}))
        yield from ((code, step) for step in (*own_steps(rule), *chinese))


def test_no_sentence_of_a_rule_or_signature_hides_a_command() -> None:
    failures = []
    for code, step in explanations():
        text = step.explanation.replace(PART_OF_A_LONGER_ONE.get(code, "\0"), "")
        if found := COMMAND.findall(text):
            failures.append(f"{code}: {found} in “{step.explanation}”")
    assert not failures, "make them a step, shared (text/steps.py) or its own:\n" + "\n".join(failures)


def test_no_sentence_of_a_rule_or_signature_hides_the_place_where_it_is_done() -> None:
    """But where one step is about several places."""
    failures = [
        f"{code}: {found} in “{step.explanation}”"
        for code, step in explanations()
        if not step.where and (found := PLACE.findall(step.explanation))
    ]
    assert not failures, "it is the step's `where`:\n" + "\n".join(failures)


def test_a_command_for_a_process_is_there_for_each_that_a_rule_accuses() -> None:
    """A rule may accuse several ranks; a signature is about the one process that wrote the line or that it names, and a
    rule about the facts of nodes about what is on one of them."""
    failures = [
        f"{code}: {step.command}"
        for code, rule in RULES.items()
        for step in rule.steps
        if not rule.signature and not any(need.per_node for need in rule.needs)
        if not step.each and "pid" in placeholders(step.command)
    ]
    assert not failures, "each=PROCESSES:\n" + "\n".join(failures)


def test_every_shared_step_has_texts_and_every_text_a_step() -> None:
    for language in ("en", "zh"):
        assert set(table(language, "steps")) == NAMES, language
    for name in NAMES:
        step, other = written(name), written(name, "zh")
        assert step.command == other.command
        assert placeholders(step.explanation) == placeholders(other.explanation), name
    used = {step.shared for rule in RULES.values() for step in rule.steps}
    assert used - {""} <= NAMES
    assert NAMES - used == set(), "no remedy uses these"


def test_commands_of_all_rules_are_filled_for_a_known_process_and_host() -> None:
    """Rank, pid and host of the accused stand in the commands, and no step looks for the pid."""
    evidence = model.RunEvidence(processes=(model.ProcessRecord(rank=1, pid=4242, host="gpu07"),))
    known = model.Fleet(world=model.World(num_nodes=1, world_size=2), run_evidence=evidence)
    culprits = model.Culprits(ranks=(1,))
    values = {model.PROCESSES: processes_of(known, (1,)), model.HOSTS: hosts_of(known, culprits)}
    failures = []
    for code, rule in RULES.items():
        shared = tuple(step for step in rule.steps if step.shared)
        failures += [
            f"{code}: {remedy.where}: {remedy.command}"
            for remedy in fill_steps(shared, values)
            if re.search(r"\bPID\b|/proc/\[0-9\]", remedy.command) or remedy.where not in {"gpu07", ""}
        ]
    assert not failures, "\n".join(failures)


def test_what_is_not_known_keeps_its_placeholder_and_a_step_says_how_to_find_it() -> None:
    steps = resolved((model.RemedyStep(shared="stack"), model.RemedyStep(shared="xids")))
    nothing = fleet(2)
    values = {model.PROCESSES: processes_of(nothing, ()), model.HOSTS: hosts_of(nothing, model.Culprits())}
    find, stack, xids = fill_steps(steps, values)
    assert (find.command, stack.command, stack.where) == ("pgrep -af python", "py-spy dump --pid PID", "")
    assert xids.where == "every node"
    find, stack = fill_steps(steps[:2], values | {model.PROCESSES: processes_of(nothing, (1,))})
    assert "=1$" in find.command
    assert stack.explanation.endswith("rank 1")


def test_words_in_capitals_of_shared_commands_are_explained() -> None:
    """But a pid, which has a step of its own, a variable and a signal, which every rule that names the step knows."""
    for name in NAMES - {"find_pid", "explain_variable", "note_senders", "noted_senders"}:
        for language in ("en", "zh"):
            step = written(name, language)
            for placeholder in placeholders(step.command) - {"pid"}:
                word = {"peer": "ADDRESS"}.get(placeholder, placeholder.upper())
                assert word in step.explanation, f"{name}: {word} in “{step.explanation}”"


def test_shared_steps_follow_the_language() -> None:
    steps = resolved((model.RemedyStep(shared="gpus"),))
    remedies = fill_steps(steps, {model.HOSTS: ({"on": UNKNOWN},)})
    finding = model.Finding(
        code="CUD005",
        severity=model.Severity.ERROR,
        fault_class=model.FaultClass.HW_HANG,
        confidence=model.Confidence.CERTAIN,
        culprits=model.Culprits(),
        message="",
        remedy="",
        remedies=remedies,
    )
    [chinese] = say_remedies(finding, "zh")
    assert (chinese.where, chinese.command, chinese.explanation) == ("所有节点", "nvidia-smi -L", "列出 GPU")
