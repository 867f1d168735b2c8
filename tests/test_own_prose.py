"""Sentences are made at the end: nothing that decides reads a text of our own model.

A rule, the judge, a report or an agent that looks into a sentence for a word breaks without a sound when the sentence
changes.  What it needs is a field of its own, filled where the fact is collected or the foreign line is read (facts,
evidence), which is why those two may look into texts.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

from msgspec import Struct

from allready.text.catalog import words
from allready.text.forms import evidence_forms
from tests.text.sources import nodes, trees

PARTS = {
    "rules", "judging", "report", "agent", "live", "preflight", "cli", "launch", "messaging", "model", "text", "runtime"
}  # fmt: skip

TEXTS = {
    "message", "why", "text", "sentence", "remedy", "explanation", "notes", "title", "detail", "problem", "ending",
    "banner", "last_line", "last_words", "last_error", "error", "extra",
}  # fmt: skip
"""Fields of the model (and of what travels between nodes) that hold sentences or lines."""

PUT_TOGETHER = {"label", "labels", "site", "source", "group"}
"""Fields, and methods, whose text has several parts, or is a name: it may be compared with another one, but it is not
taken apart, nor is a word looked for in it."""

SAYING = {
    "arrows", "described", "named", "names", "node_label", "node_name", "ranges", "say_event", "say_position",
    "sentence",
}  # fmt: skip
"""Functions that make a text for a reader."""

NAMES = {
    "name", "signature", "id", "code", "area", "key", "fault_class", "file", "function", "path", "chain", "pattern",
    "address", "destination", "host", "metrics_host", "master_addr", "coordinator", "instance", "token", "gpu",
    "profiling_name",
}  # fmt: skip
"""Fields whose text is a name in a form that others have set, or a table of ours documents.  Every other field of a
struct that is a text is one that is composed for a reader, until it stands here: it is not taken apart."""

ENUMERATED = {"source", "way"}
"""Fields with an enumeration, whose values readers see as well: code has the enumeration's names."""

NAMED = TEXTS - {"text", "error", "extra"} | {"reason"}
"""Variables and parameters that hold such a text wherever they come from."""

DECIDING = {"rules", "judging"}
"""Here also a variable that is called `text` is taken for one of ours: what foreign text it holds is in the list."""

LOOKING = {
    "startswith", "endswith", "find", "rfind", "index", "rindex", "count", "partition", "rpartition", "split", "rsplit",
    "splitlines", "removeprefix", "removesuffix",
}  # fmt: skip
MATCHING = {"match", "search", "fullmatch", "findall", "finditer", "sub", "subn", "split"}
SAME = {
    "lower", "upper", "strip", "lstrip", "rstrip", "casefold", "title", "swapcase", "replace", "translate", "encode",
    "expandtabs",
}  # fmt: skip
"""Methods whose result is looked into like the text itself."""


class Foreign(Struct, frozen=True):
    """A file that may look into one kind of text, and whose text that is: never one of ours."""

    file: str
    field: str
    reason: str


FOREIGN = (
    Foreign("cli/bench.py", "what", "names of operations, of the command line"),
    Foreign("cli/env_files.py", "place", "a file's path"),
    Foreign("cli/env_preset.py", "value", "an address of a user's file"),
    Foreign("cli/explain.py", "title", "a person's search through the titles of all rules"),
    Foreign("judging/causes.py", "text", "the exception of a traceback"),
    Foreign("judging/end_causes.py", "text", "what a process wrote at its end"),
    Foreign("judging/ends.py", "text", "the kernel's lines of killed processes; what Gloo throws"),
    Foreign("judging/environment_errors.py", "text", "the exception that a rank ended by"),
    Foreign("judging/firewall.py", "text", "an address of a rule"),
    Foreign("judging/hang.py", "error", "RAS's words about a communicator"),
    Foreign("judging/last_calls.py", "last_words", "what a rank wrote last"),
    Foreign("judging/last_calls.py", "text", "the exception that a rank ended by"),
    Foreign("judging/processes.py", "text", "the exception of a traceback"),
    Foreign("judging/processes.py", "last_line", "NCCL's last line of a rank"),
    Foreign("judging/signature_rules.py", "text", "ranks as a signature caught them in a line"),
    Foreign("judging/stages.py", "error", "the exception that a rank ended by"),
    Foreign("judging/stall_files.py", "text", "the exception that a rank ended by"),
    Foreign("judging/stall_files.py", "error", "RAS's words about a communicator"),
    Foreign("judging/watchdog_calls.py", "text", "torch's watchdog lines"),
    Foreign("judging/live_ends.py", "text", "the exception that a rank ended by"),
    Foreign("launch/request.py", "target", "a script, of the command line"),
    Foreign("launch/scheduler_values.py", "help", "names of values, and the help of each"),
    Foreign("live/monitor/readings.py", "text", "the exception that a rank ended by"),
    Foreign("preflight/collectives/rank.py", "message", "a warning of torch"),
    Foreign("judging/stages.py", "error", "the exception that a rank ended by"),
    Foreign("launch/host_lists.py", "group", "a part of a user's list of hosts"),
    Foreign("live/watch/choose.py", "source", "what started a job: a launcher's name"),
    Foreign("live/watch/foreign.py", "source", "what started a job: a launcher's name"),
    Foreign("live/watch/screen.py", "source", "what started a job: a launcher's name"),
    Foreign("preflight/check/staging.py", "versions", "names of packages, and the version of each"),
    Foreign("preflight/collectives/meetings.py", "group", "the ranks of a group"),
    Foreign("judging/stage_states.py", "error", "the exception that a rank ended by"),
    Foreign("rules/collective/ranks.py", "error", "the exception that a rank ended by"),
    Foreign("rules/desync/order.py", "text", "lines of a log"),
    Foreign("rules/desync/order.py", "error", "RAS's words about a communicator"),
    Foreign("rules/fabric/transports.py", "how", "NCCL's name of a transport"),
    Foreign("rules/fallback/_victims.py", "text", "the exception of a traceback"),
    Foreign("rules/gpu/driver.py", "versions", "names of packages, and the version of each"),
    Foreign("rules/net/links.py", "mode", "the kernel's name of it"),
    Foreign("rules/process_exit/ended_from_outside.py", "text", "Slurm's line about a job that it cancels"),
    Foreign("rules/variables/lines.py", "text", "a line of a user's file"),
    Foreign("rules/process_exit/ranks.py", "text", "the exception that a rank ended by"),
    Foreign("runtime/agreement.py", "group", "the ranks of a group"),
    Foreign("text/steps.py", "command", "a shell command with places to fill in"),
)  # fmt: skip


def bare(node: ast.expr) -> ast.expr:
    """The text that an expression is another form of: changed by a method, chosen, named on the way, put into another.

    What it is an element of counts as well: a field may hold several texts.
    """
    match node:
        case ast.Name() if (value := getattr(node, "stands_for", None)) is not None:
            return bare(value)
        case ast.NamedExpr(value=value) | ast.FormattedValue(value=value) | ast.Starred(value=value):
            return bare(value)
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in SAME:
            return bare(value)
        case ast.Call(func=ast.Name(id="str" | "repr" | "list" | "iter"), args=[value]):
            return bare(value)
        case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name)), *_]):
            return ast.Attribute(value=value, attr=name, ctx=ast.Load())
        case ast.Subscript(value=value, slice=ast.Slice() | ast.UnaryOp() | ast.Constant(value=int())):
            return bare(value)
    return node


def follow(tree: ast.AST) -> None:
    """Of a variable that one assignment of its function gives a field's text: note the field at each of its uses."""
    for function in nodes(tree, ast.FunctionDef, ast.AsyncFunctionDef):
        given: dict[str, list[ast.expr | None]] = defaultdict(list)
        used: list[ast.Name] = []
        for node in ast.walk(function):
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.NamedExpr(target=ast.Name(id=name), value=value)
                ):
                    given[name].append(value)
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    given[name].append(None)
                case ast.Name():
                    used.append(node)
        for node in used:
            values = given[node.id]
            fields = [one for one in values if one is not None and isinstance(bare(one), ast.Attribute)]
            if len(fields) == 1 and len(values) == 2:  # the assignment, and the name that it stores
                node.stands_for = fields[0]  # type: ignore[attr-defined]


def is_text(node: ast.expr) -> str:
    """The field or variable whose text the expression is, or is a part or a sum of; "" for anything else."""
    match bare(node):
        case ast.Attribute(attr=name) if name in TEXTS:
            return name
        case ast.Name(id=name) if name in NAMED:
            return name
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="values"), attr="get"), args=[key, *_]):
            return is_text_of(key)
        case ast.Subscript(value=ast.Attribute(attr="values"), slice=key):
            return is_text_of(key)
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(), attr="join"), args=[ast.List(elts=parts) | ast.Tuple(elts=parts)]
        ):
            return next(filter(None, map(is_text, parts)), "")
        case ast.BinOp(left=left, op=ast.Add(), right=right) | ast.IfExp(body=left, orelse=right):
            return is_text(left) or is_text(right)
        case ast.BoolOp(values=values) | ast.JoinedStr(values=values):
            return next(filter(None, map(is_text, values)), "")
    return ""


def is_text_of(key: ast.expr) -> str:
    """The name of a value of a finding or event that is a text."""
    return str(key.value) if isinstance(key, ast.Constant) and key.value in TEXTS else ""


def is_put_together(node: ast.expr) -> str:
    """The same of the texts that may be compared as a whole."""
    match node:
        case ast.Attribute(value=ast.Attribute(attr="bad") | ast.Name(id="stage"), attr="name"):
            return "name"
        case ast.Attribute(attr=name) | ast.Call(func=ast.Attribute(attr=name)) if name in PUT_TOGETHER:
            return name
        case ast.Name(id=name) if name in PUT_TOGETHER - {"source"}:
            return name
        case ast.Call(func=ast.Name(id="str"), args=[value]):
            return is_put_together(value)
    return ""


def is_literal(node: ast.expr) -> bool:
    """A text that stands in the source, as it is, in a collection or as a constant's name."""
    match node:
        case ast.Constant(value=str(value)):
            return bool(value)
        case ast.Tuple(elts=items) | ast.Set(elts=items) | ast.List(elts=items):
            return any(map(is_literal, items))
        case ast.Dict(keys=items):
            return any(one is not None and is_literal(one) for one in items)
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple" | "list" | "dict"), args=[value]):
            return is_literal(value)
        case ast.Name(id=name):
            return name.strip("_").isupper()
        case ast.JoinedStr():
            return True
    return False


@cache
def composed() -> frozenset[str]:
    """The fields of all structs that are texts, and no names."""
    classes = (c for tree in trees().values() for c in nodes(tree, ast.ClassDef))
    fields = (
        field.target.id
        for one in classes
        if isinstance(one, ast.ClassDef) and {"Struct", "InGroup", "NamedTuple"} & {ast.unparse(b) for b in one.bases}
        for field in one.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if ast.unparse(field.annotation) in {"str", "str | None"}
    )
    return frozenset(fields) - NAMES


def is_composed(node: ast.expr) -> str:
    """The field of a struct whose text the expression is, if that is no name; or the function that makes it."""
    match node:
        case ast.Attribute(attr=name) if name in composed():
            return name
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in SAYING:
            return name
    return ""


def looks(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and field of every place that searches, cuts or compares a text, or decides by it."""
    follow(tree)
    for node in nodes(tree, ast.Compare, ast.Call, ast.Match, ast.Subscript):
        found = ""
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                found = next(filter(None, map(_compared, sides, ops, others)), "")
            case ast.Match(subject=subject, cases=cases) if any(map(_is_literal_case, cases)):
                subjects = subject.elts if isinstance(subject, ast.Tuple) else [subject]
                found = next(filter(None, map(is_text, subjects)), "")
            case ast.Subscript(value=value, slice=key) if is_literal(value) and not isinstance(key, ast.Name):
                found = is_text(key)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="str"), attr=method), args=[value, *_]) if (
                method in LOOKING
            ):
                found = _is_any(value)
            case ast.Call(func=ast.Attribute(value=value, attr="get"), args=[key, *_]) if is_literal(value):
                found = "" if isinstance(key, ast.Name) else is_text(key)
            case ast.Call(func=ast.Attribute(attr="contains" | "fnmatch" | "fnmatchcase"), args=[value, *_]):
                found = _is_any(value)
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=arguments, keywords=named):
                if method in LOOKING:
                    found = _is_any(value)
                if method in MATCHING:
                    found = found or next(filter(None, map(_is_any, [*arguments, *(one.value for one in named)])), "")
        if found:
            yield getattr(node, "lineno", 0), found


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr) -> str:
    """The field that one comparison of a chain is about."""
    found = ""
    if isinstance(op, ast.In | ast.NotIn):
        found = is_text(right) or is_put_together(right) or (is_text(left) if is_literal(right) else "")
        found = found or (is_composed(right) if is_literal(left) else "")
    elif isinstance(op, ast.Eq | ast.NotEq) and (is_literal(left) or is_literal(right)):
        found = is_text(left) or is_text(right)
    return found or _is_spelt(left, right) or _is_spelt(right, left)


def _is_literal_case(case: ast.match_case) -> bool:
    return any(isinstance(one, ast.MatchValue) and is_literal(one.value) for one in ast.walk(case.pattern))


def _is_spelt(node: ast.expr, other: ast.expr) -> str:
    """The field that has an enumeration of its own, where it is compared with a word of the source."""
    match node, other:
        case ast.Attribute(attr=name), ast.Constant(value=str()) if name in ENUMERATED:
            return name
        case ast.Attribute(attr=name), ast.Tuple(elts=items) | ast.Set(elts=items) if name in ENUMERATED:
            return name if any(isinstance(one, ast.Constant) for one in items) else ""
    return ""


def in_variables(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The same of variables called `text`."""
    for node in nodes(tree, ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=arguments):
                looked_into = [value] if method in LOOKING else []
                looked_into += arguments if method in MATCHING else []
                if any(isinstance(one, ast.Name) and one.id == "text" for one in looked_into):
                    yield getattr(node, "lineno", 0), "text"


def _is_any(node: ast.expr) -> str:
    return is_text(node) or is_put_together(node) or is_composed(node)


def test_nothing_that_decides_looks_into_a_text() -> None:
    wrong, used = [], set()
    for path, tree in trees().items():
        if Path(path).parts[0] not in PARTS:
            continue
        for line, field in chain(looks(tree), in_variables(tree) if Path(path).parts[0] in DECIDING else ()):
            entry = next((a for a in FOREIGN if (a.file, a.field) == (path, field)), None)
            if entry is None:
                wrong.append(f"{path}:{line}: {field}")
            used.add(entry)
    assert not wrong, "\n".join(wrong)
    assert set(FOREIGN) == used - {None}, "not needed any more"


@cache
def phrases() -> frozenset[str]:
    """Texts of ours that readers see, and that no name has: they have a blank or a bracket."""
    known = {*evidence_forms("zh"), *(text for section in words("zh").values() for text in section)}
    return frozenset(text for text in known if any(mark in text.strip() for mark in " (")) - READ


READ = {"timed out"}
"""Of these, what other programs write as well."""


def constants(tree: ast.Module) -> dict[str, str]:
    """The texts that a module gives a name."""
    return {
        target.id: str(node.value.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def compared(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every place that compares something with a phrase of ours, by its name or as it is."""
    named = constants(tree)
    for node in nodes(tree, ast.Compare, ast.Call):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOOKING:
            sides = [node.func.value, *node.args]
        else:
            continue
        parts = [one for side in sides for one in (side.elts if isinstance(side, ast.Set | ast.Tuple) else [side])]
        texts = (one.value if isinstance(one, ast.Constant) else named.get(getattr(one, "id", "")) for one in parts)
        yield from ((node.lineno, text) for text in texts if isinstance(text, str) and text in phrases())


def test_no_value_is_compared_with_a_phrase_of_ours() -> None:
    """What is absent is None, why it is has an enumeration: a value may be the very text, and the text may change."""
    wrong = [f"{path}:{line}: {text}" for path, tree in trees().items() for line, text in compared(tree)]
    assert not wrong, "\n".join(wrong)
    old = """
UNSET = "(not set)"
is_absent = value == UNSET
is_off = pair.p2p == "disabled by the driver's settings" or pair.level == "PIX"
is_known = why not in {"no data", "died"} and text.endswith("(not set)")
"""
    assert [line for line, _ in compared(ast.parse(old))] == [3, 4, 5, 5]


def test_what_the_old_code_did_is_found() -> None:
    old = """
def judge(item, why, facts, loss, row):
    if why.startswith("--on-hang"):
        return
    crashed = item.why.startswith("the rule itself failed")
    silent = "no sign of life" in loss.text
    one_way = loss.text.endswith(ONLY_HEARD)
    chain = _CHAIN.match(drop.text)
    died = re.search(r"exit code ([0-9]+)", row.ending.lower())
    same = verdict.sentence == "nodes differ"
    first = finding.message.partition(":")[0]
    host = world.label(0).partition("(")[2]
    is_isolated = run.label.startswith("isolate")
    place = finding.evidence[0].source.rpartition(":")
    function = before.site.rpartition(" ")[2]
    is_own = any(word in stage.name for word in ("import", "device"))
    is_interrupt = str(finding.values.get("text")).startswith("KeyboardInterrupt")
    is_killed = "Killed" in finding.values["text"]
    is_pair = " send " in progress.group
    name = group.group.partition(" [")[0]
    mark = mark_of(live, rank, group.partition(" send ")[0])
    index = row.activity.partition(" ")[0]
    is_short = "s: " in state.where
    lasts = _LASTS.match(state.where)
    place = names(live, [node]).removeprefix("node ")
    spans = model.ranges(numbers).split(",")
    is_ras = progress.source == "ras"
    is_torch = progress.source in {"ras", "flight recorder"}
"""
    assert sorted(line for line, _ in looks(ast.parse(old))) == [3, 5, *range(6, 29)]


def test_other_ways_to_look_are_found_as_well() -> None:
    ways = """
match item.why:
    case "timed out": pass
match (item.why, rank):
    case "timed out" | "gone", _: pass
kind = {"nodes differ": 1}[verdict.sentence]
kind = KINDS.get(item.why)
kind = KINDS[item.message]
is_late = f"{item.why}" == "late"
is_late = "timed out" == item.why == other
if (w := item.why).startswith("late"): pass
is_late = (item.why if item else "").endswith("late")
is_late = str.startswith(item.why, "late")
is_late = item.why[0] == "-"
is_late = item.notes[-1].startswith("late")
is_late = getattr(item, "why").startswith("late")
is_late = item.why.replace("-", " ") == "timed out"
is_late = re.search("late", string=item.why)
is_late = operator.contains(item.why, "late")
is_late = fnmatch.fnmatch(item.why, "late*")
is_late = item.why in frozenset({"late", "gone"})
is_late = " ".join([item.why, "x"]).find("late") >= 0
def is_late(item):
    words = item.why.strip()
    return words.startswith("late")
"""
    assert sorted(line for line, _ in looks(ast.parse(ways))) == [2, 4, *range(6, 23), 25]


def test_a_table_that_was_written_into_a_text_is_found() -> None:
    old = 'def _table(text):\n    return [part.rpartition("=") for part in text.split(";")]\n'
    assert list(in_variables(ast.parse(old))) == [(2, "text")]


def test_fields_values_and_files_are_no_texts() -> None:
    new = """
def judge(item, loss, line, row):
    is_crashed = item.kind is UncheckedKind.RULE_CRASHED
    is_silent = loss.reason in {LossReason.SILENT, LossReason.ONE_WAY}
    name = line.split("=")[0]
    is_known = event.signature == "elastic.death_signal"
    shown = [item.message, item.why]
    is_same = one.label == other.label and stage.name in OWN_STAGES and progress.source == Recorder.RAS
    is_one_group = one.group == other.group and name == progress.name
    has_text = bool(row.text) and item.why != other.why
"""
    assert list(looks(ast.parse(new))) == []
