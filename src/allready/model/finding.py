"""What a rule says (`Hit`) and what a report shows (`Finding`)."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """What happens if a finding is ignored."""

    INFO = "info"  # nothing
    WARNING = "warning"  # may fail or be slow under load
    ERROR = "error"  # wrong, or far too slow
    BLOCKER = "blocker"  # will not start, or will hang

    @property
    def weight(self) -> int:
        """0 for INFO to 3 for BLOCKER, to compare severities."""
        return list(Severity).index(self)

    @property
    def is_fault(self) -> bool:
        """Whether something is wrong now."""
        return self in {Severity.ERROR, Severity.BLOCKER}


class Confidence(StrEnum):
    """How sure a finding is."""

    POSSIBLE = "possible"
    LIKELY = "likely"
    CERTAIN = "certain"

    @property
    def weight(self) -> int:
        """0 for POSSIBLE to 2 for CERTAIN, to compare confidences."""
        return list(Confidence).index(self)


class FaultClass(StrEnum):
    """The fault classes of the report's contract; docs/glossary.md says what each means."""

    START_ABSENT = "START-ABSENT"
    START_NAME = "START-NAME"
    START_PATH = "START-PATH"
    ENV_LIMIT = "ENV-LIMIT"
    ENV_MISMATCH = "ENV-MISMATCH"
    CPU_BUSY = "CPU-BUSY"
    CPU_STUCK = "CPU-STUCK"
    DESYNC_FLOW = "DESYNC-FLOW"
    DESYNC_ARGS = "DESYNC-ARGS"
    DEAD = "DEAD"
    HW_HANG = "HW-HANG"
    NET_BROKEN = "NET-BROKEN"
    SLOW_COMP = "SLOW-COMP"
    SLOW_COMM = "SLOW-COMM"
    SLOW_MIXED = "SLOW-MIXED"
    SLOW_NOCULPRIT = "SLOW-NOCULPRIT"
    HEALTHY = "HEALTHY"


class Situation(StrEnum):
    """A run that visibly made no progress, or did not end well, while no finding is an error; `judging.raised` says how
    each is seen.  The order of the members is the order in which they are looked for."""

    NO_START = "no_start"  # communicators across nodes were begun, and none was completed
    FIRST_CALLS = "first_calls"  # the same, or no rank got beyond its first operations
    ENDED_FROM_OUTSIDE = "ended_from_outside"  # no log ends well
    LAST_WORDS = "last_words"  # no log goes on behind its lines


class Raised(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a finding that is no error becomes the verdict.

    `where`: the situation.  `values`: name -> those of which the finding must have one.  `fault_class`: that of the
    verdict, where it is another one then: what is slow where it works may keep a job from starting.
    """

    where: Situation
    values: Mapping[str, tuple[str, ...]] = {}
    fault_class: FaultClass | None = None


class Culprits(Struct, frozen=True, kw_only=True):
    """Who is at fault.  Empty: unknown, for example on a tie."""

    nodes: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()  # (from node_rank, to node_rank): that direction is broken
    variables: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.ranks or self.links or self.variables)


class Phrase(Struct, frozen=True):
    """A value that is a clause of ours: a template, said in the reader's language, and its values."""

    form: str
    values: Mapping[str, "str | Phrase | tuple[Phrase, ...]"] = {}


class Evidence(Struct, frozen=True, kw_only=True):
    """One thing that was seen: where (file:line, rank or probe), and the text as it stood there.

    `file`, `line`: the place in a file, where it is one.
    `form`, `values`: of a text that is a sentence of ours, the template that it was made from; see `judging.stated`.
    `phrases`: values by name, and the "source", that are made of phrases of ours, which `values` and `source` have in
    English.
    """

    source: str
    text: str
    time: str | None = None  # ISO-8601
    node_rank: int | None = None
    form: str = ""
    values: Mapping[str, str] = {}
    phrases: Mapping[str, tuple[Phrase, ...]] = {}
    file: str = ""
    line: int | None = None


class Hit(Struct, frozen=True, kw_only=True):
    """A rule's answer: data only, never a finished sentence, so that every language can say it.

    `values` fill the placeholders of the rule's message and remedy; their `str()` must be neutral in language
    (numbers, names, paths, commands), or they are a `Phrase` or several.  `severity` and `fault_class` override the
    rule's own where one rule covers cases that differ in them.
    """

    values: Mapping[str, object] = {}
    culprits: Culprits = Culprits()
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence = Confidence.CERTAIN
    severity: Severity | None = None
    fault_class: FaultClass | None = None
    fault_time: str | None = None  # ISO-8601, when the fault began, if known


class RemedyStep(Struct, frozen=True, kw_only=True):
    """One step towards the fix, as a rule states it: templates with named placeholders.

    `where`: the machine that it is done on ("node {node}", "every node"); empty where that does not matter.
    `command`: one line to paste into a shell there; empty where there is none.
    `each`: a value of the hit that is a sequence of mappings: the step is there once for each, with its values besides.
    `shared`: one of the steps of `text/steps.py`, which has all the rest.  `elsewhere`: the place where `where` is not
    known.
    """

    explanation: str = ""
    command: str = ""
    where: str = ""
    each: str = ""
    shared: str = ""
    elsewhere: str = ""


PROCESSES = "processes"
"""`each` of a step that is there for each accused rank: values `rank`, `pid`, `on`, and how to `find` the pid."""
HOSTS = "hosts"
"""`each` of a step that is there for each host with an accused rank: value `on`."""


class Remedy(Struct, frozen=True, kw_only=True):
    """A step towards the fix with everything known filled in.

    `step`: which of the rule's own steps it is, from 0; `shared`: which of those that many rules have; `values`: what
    it has besides the finding's own.  By these the same step is written in another language.
    """

    where: str = ""
    command: str = ""
    explanation: str
    step: int = 0
    shared: str = ""
    values: dict[str, str] = {}


class Finding(Struct, frozen=True, kw_only=True):
    """A hit with its rule's text filled in: what every report shows.

    `message`, `remedy` and `remedies` are English (JSON and logs are); `values` let `allready.text` make the sentences
    of another language, with `phrases` in place of those that are made of phrases of ours.  `remedy` is made of
    `remedies`.
    """

    code: str
    severity: Severity
    fault_class: FaultClass
    confidence: Confidence
    culprits: Culprits
    message: str
    remedy: str
    evidence: tuple[Evidence, ...] = ()
    title: str = ""
    values: dict[str, str] = {}
    phrases: Mapping[str, tuple[Phrase, ...]] = {}
    fault_time: str | None = None
    remedies: tuple[Remedy, ...] = ()


class RunNote(Struct, frozen=True, kw_only=True):
    """Something about a run as a whole, beside the findings.

    `about`: a finding that is over; its message is the value `what` of the phrase.
    """

    phrase: Phrase
    about: Finding | None = None


class UncheckedKind(StrEnum):
    """Why something was not checked; `allready.text.reasons` has a sentence for each, with the values it needs."""

    UNSPECIFIED = "unspecified"  # why; also of reports written before there were kinds
    FACT_MISSING = "fact_missing"  # why: a node could not read a fact, or did not send it
    NO_END_YET = "no_end_yet"  # what, seconds, longer: a child of doctor that worked when the time was over
    PART_MISSING = "part_missing"  # a part of the job that was not examined
    NOT_ASKED = "not_asked"  # a stage that --stages leaves out
    BLOCKED = "blocked"  # code: a finding that had to come first
    NO_SUCH_STAGE = "no_such_stage"  # backend, stages
    NO_MASTER_PORT = "no_master_port"
    NODE_0_LOST = "node_0_lost"
    NODE_0_UNREACHED = "node_0_unreached"
    NODE_UNKNOWN = "node_unknown"  # nodes
    SCRIPT_UNREAD = "script_unread"  # nodes
    PAIRS_UNTRIED = "pairs_untried"  # done, planned
    ROUNDS_LEFT = "rounds_left"  # done: rounds of a bisection, whose time was over
    FEW_MEMBERS = "few_members"  # least
    ALL_SLOW = "all_slow"  # ranks: of groups that are slow, with none among them that is good
    NOTHING_COMMON = "nothing_common"  # source: of the baseline
    SIZES_LEFT = "sizes_left"  # sizes, first, time: sizes of the sweep that would have taken too long
    NO_EXPECTATION = "no_expectation"  # hardware: no bandwidth is published for it
    NOT_SAVED = "not_saved"  # a part that a saved report lacks
    NODE_SILENT = "node_silent"  # age_s: no status of its agent for so long
    NODE_LOST = "node_lost"  # why: the connection to its agent broke
    RULE_CRASHED = "rule_crashed"  # error
    DIAGNOSIS_FAILED = "diagnosis_failed"  # error: of the job, which goes on without it
    STANDS_STILL = "stands_still"  # seconds, ranks: none of them has moved, in a job whose diagnosis has failed
    INTERRUPTED = "interrupted"  # signal, stage
    JOB_INTERRUPTED = "job_interrupted"  # signal: before anything was proven of the running job
    RANKS_SIGNALLED = "ranks_signalled"  # signal, ranks: that it ended, and no agent got it
    JOB_FAILED = "job_failed"  # exit_code: the job ended with it, and no finding says why
    JOB_OVER = "job_over"  # the job ended before anything was known of it
    AGENT_KILLED = "agent_killed"  # the report that the agent left for that case
    CANCELLED = "cancelled"
    FAILED = "failed"  # error: allready could not go on
    INPUT_UNREADABLE = "input_unreadable"  # nothing in the input has a reader
    ENDS_MISSING = "ends_missing"  # missing, expected: ranks of which no source shows the end
    NOT_ENDED_WELL = "not_ended_well"  # ends are known, none of them good
    END_UNKNOWN = "end_unknown"
    END_UNANNOUNCED = "end_unannounced"  # done, where: the last count of a log that gives no total
    STOPPED_MIDWAY = "stopped_midway"  # done, total, where: the last progress of a log
    CHECK_ENDED = "check_ended"  # status of the check whose report was read
    NO_TIMES = "no_times"  # operations without a time


class Reason(Struct, frozen=True, kw_only=True):
    """Why something was not checked, as data; the sentence is made where it is shown."""

    kind: UncheckedKind
    values: dict[str, str] = {}
    phrases: Mapping[str, tuple[Phrase, ...]] = {}


class NotChecked(Struct, frozen=True, kw_only=True):
    """Something that was not checked; `node` is None when it concerns the whole job.

    `why` is the English sentence of `kind` with `values` (`allready.text.reasons.not_checked` makes it).
    """

    code: str
    node: int | None
    why: str
    kind: UncheckedKind = UncheckedKind.UNSPECIFIED
    values: dict[str, str] = {}
    phrases: Mapping[str, tuple[Phrase, ...]] = {}
