"""Words by which a line says that something went wrong; behind a run's last progress they deny a good end."""

import functools
import re

from allready.patterns import compiled

_NAN = r"(?:nan|-?inf(?:inite|inity)?|non-?finite)"
_STATUS = (
    r"(?:exit[ _-]?(?:code|status)|exitcode|return[ _-]?(?:code|value)|returncode|\brc)\b['\"]?\s{0,4}[:=]?\s{0,4}"
)
_MEMBERS = (
    r"(?:ranks?|workers?|nodes?|tasks?|process(?:es)?|gpus?|pods?|jobs?|tests?|trials?|runs?|hosts?|replicas?|actors?|"
    r"members?)"
)


@functools.cache
def _bad() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:[a-z]*error|[a-z]*exception|[a-z]*interrupt|fail(?:ed|ure)|fatal|killed|terminated|cancell?ed|"
        r"abort(?:ed|ing)?|"
        r"errored|panic)\b(?!/\w|['\"]?\s{0,4}[:=(]?\s{0,24}[-+]?\.?\d)|"
        r"\b(?:traceback|segmentation|segfault|SIG(?:TERM|KILL|ABRT|SEGV|INT|BUS|HUP)|out of memory|"
        r"oom(?:killed|[-_]kill)?|timed? ?out|interrupted|preempt\w*|core dumped|terminate called|unhealthy|"
        r"unreachable|evicted|back-?off|"
        r"crash(?:ed|es)?|died|dead|diverged|divergence|corrupt(?:ed|ion)?|gave up|giving up|bail(?:ing|ed) out|"
        r"unexpectedly|prematurely|"
        r"(?:ended|stopped|terminated|exited|aborted) early|incomplete|unsuccessful(?:ly)?|stale file|broken pipe|"
        r"no space left|quota exceeded|limit exceeded|not found|cannot|can't|could not|couldn't|unable to|"
        r"permission denied|no such file|fallen off|no progress|not responding|stop(?:ped|ping)? (?:due|because)|"
        r"too many|"
        r"ctrl[ -]?\+?[ -]?c|not all|only \d{1,9} of|is lost|has been lost|lost (?:contact|connection|communication)|"
        r"connection (?:reset|refused|closed|lost|aborted)|with errors?|with failures?)\b|"
        r"\bNVRM: Xid|\^C\s*$|\bWTERMSIG [1-9]|\bWEXITSTATUS [1-9]|"
        r"\bError \d{1,6}\s*$|\b[1-9]\d{0,8} (?:\w{1,20} )?(?:errors?|failures?|failed|errored)\b|"
        r"\b(?:errors?|failed|failures?|errored)['\"]?\s{0,4}=\s{0,4}[1-9]\d{0,8}\b(?!\.\d)|"
        rf"{_STATUS}\(?-?[1-9]\d{{0,9}}\b(?!\.\d)|\bnon-?zero\b(?!\()"
        r"(?! (?:\w{1,20} )?(?:terms?|elements?|entries|values?|weights|coefficients|grad\w*|param\w*|count))|"
        r"\b(?:exit(?:ed|ing|s)?|finished|done|ended|completed)\b[^.;|]{0,30}?\b(?:status|code|"
        r"with)\b['\"]?\s{0,4}[:=]?\s{0,4}"
        r"\(?-?[1-9]\d{0,9}\b\)?(?=[\s.,;)]*$|[,;])|"
        r"\bsuccess['\"]?\s{0,4}[:=]\s{0,4}['\"]?(?:false|no|0)\b|"
        rf"\b(?:is|are|was|were|becomes?|became|turned|got|found|detected|encountered|has|contains|"
        rf"produced)\s+(?:an? |to )?{_NAN}\b|"
        rf"\b(?:lost|missing|dead|failed) {_MEMBERS}\b|\b{_MEMBERS}\b.{{0,12}}?\blost\b|"
        r"失败|错误|异常|中断|杀死|终止|故障|超时|未完成|崩溃|不足|エラー|異常|強制終了|失敗|"
        r"\b(?:Erreur|Fehler|Abgebrochen|Getötet|Terminado|Matado|Ошибка)\b",
        re.IGNORECASE,
    )


@functools.cache
def _harmless() -> re.Pattern[str]:
    return re.compile(
        r"(?<![=:.\w])(?:0|no|zero|without(?: any)?) (?:[a-z]+ ){0,4}?(?:\w*errors?|exceptions?|failures?|failed|"
        r"errored|timeouts?|corrupt(?:ed|ion)?|skipped|missing|dead|lost)\b|\bpress ctrl[ -]?\+?[ -]?c\b|"
        r"\bto (?:avoid|prevent) (?:\w{1,20} ){0,2}(?:oom|out of memory|\w*errors?|crash(?:es)?|timeouts?)\b|"
        r"\b(?:timeouts?|crash(?:es)?) (?:rates?|ratios?|cases)\b|"
        r"\bsubmitting \d{1,9} missing tasks\b|"
        r"\b\d{1,9} more process(?:es have|es has| has) sent help message .*|\bto see all help / error messages\b|"
        r"\b(?:cannot|could not|couldn't|unable to) (?:open|connect to) (?:the )?(?:X )?display\b|"
        r"\berrors? (?:analys[ie]s|histograms?|propagation|correction|distributions?|plots?|curves?)\b|"
        r"\berrors? (?:estimates?|bounds?|bars?|rates?|norms?|tolerances?|metrics?|functions?|terms?)\b|"
        r"\bterminated (?:normally|successfully|gracefully|cleanly|properly|of its own accord|on:|on \d|at )|"
        r"\b\d[\d.]{0,9} ?(?:s|ms|sec|seconds?|minutes?)[ -]timeout\b|['\"]\w{0,40}timeout\w{0,20}['\"]\s?:\s?[\dN]|"
        r"\b(?:failed|failures?|errors?|skipped)\b(?![^:=|]{0,40}\b(?:rank|gpu|device|node|worker|process|step)\b)"
        r"[^:=|]{0,40}[:=|]\s{0,60}0\s*$|\d(?: \w{1,40}){0,3}, (?:errors? on|failed for) 0\s*$|"
        r"\b(?:will|would|may|might|could|can(?!'t|not))\b.{0,40}?\b(?:\w*errors?|exceptions?|failures?)\b|"
        r"^005 \(\d{1,9}[.\d]{0,12}\).{0,40}\bjob terminated\.$|"
        r"\b(?:mean|abs|squared|absolute|rel(?:ative)?|max|rms|abs_|test|train|val|validation|top-?\d|word|character) "
        r"(?:\w+ )?errors?\b|"
        r"\b(?:ignore[ds]?|skip(?:ped|ping)?|disabled?|if|unless|handle|on|any|except|raise|until)\b.{0,40}?"
        r"\b(?:\w*errors?|exceptions?|failures?|nan|inf|timeouts?)\b",
        re.IGNORECASE,
    )


@functools.cache
def _overcome() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:retry(?:ing)?|trying again|continu(?:e|ing)|going on|ignor(?:ed|ing|e)|skipp(?:ed|ing)|falling back|"
        r"fallback|recovered|us(?:ing|ed) (?:.{1,40} )?instead|optional|deprecated|"
        r"will be (?:ignored|disabled|skipped)|"
        r"to (?:suppress|silence|hide|disable) th(?:is|ese) (?:messages?|warnings?)|"
        r"(?:treat(?:ed|ing)?|count(?:ed|ing)?|tak(?:e|en|ing)) (?:it|them|this|these) (?:as|to be)|"
        r"assum(?:e[ds]?|ing)|"
        r"default(?:s|ing) to|us(?:e|ing) (?:the )?defaults?)\b",
        re.IGNORECASE,
    )


@functools.cache
def _share() -> re.Pattern[str]:
    return re.compile(
        rf"\b(?P<done>\d{{1,9}})\s?(?:of|/|out of)\s?(?P<total>\d{{1,9}})\s+(?:\w{{1,20}}\s)?{_MEMBERS}\b",
        re.IGNORECASE,
    )


_LIBRARY = (
    r"\s*(?:[\w.-]{1,255}: )?(?:\[rank\d+\]:)?\[?[WI]\d{3,4} |"
    r".{0,200}?(?:\bWarning: |\.py:\d{1,6}: [A-Z]\w{2,40}Warning: |"
    r"warnings\.warn\(|resource_tracker|\bWARN(?:ING)?\b|_WARN\b|"
    r"NCCL INFO )|"
    r"wandb: (?:WARNING|ERROR Error while (?:calling|uploading)) |"
    r"slurmstepd(?:-\S{1,80})?: error: (?:_is_a_lwp|"
    r"(?=.{0,200}\bcgroup)(?:.{0,80}\bwrite pid\b|[Uu]nable to move pid|error unlocking|"
    r".{0,80}\b(?:unable to|could not|failed to) (?:remove|rmdir|delete)\b))|"
    r"\[\d{9,12}\.\d{1,9}\] \[[\w.-]{1,255}:\d{1,10}:\w{1,20}\] {1,20}\S{1,80}:\d{1,6} {1,4}"
    r"UCX {1,4}(?:ERROR|WARN|DIAG)\b|"
    r"[WI]\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: [WI] \w{1,40}/"
)


_STACK = (
    r"\s{0,40}(?:[\w.-]{1,255}: )?(?:\[rank\d{1,7}\]: ?)?"
    r"(?:frame #\d{1,3}: |Exception raised from \w{1,80} at .{1,300}most recent call first)"
)
"""A stack that torch prints below its message, which says itself how grave it is."""


@functools.cache
def _of_a_member() -> re.Pattern[str]:
    """What also counts in a warning: another process or node is gone."""
    return re.compile(
        rf"\b{_MEMBERS}\b[^\]]{{0,24}}?\b(?:failed|lost|died|dead|crashed|killed|unreachable|not responding|"
        rf"fail(?:s|ure)?)\b|"
        rf"\b{_MEMBERS}\b[^\]]{{0,12}}\]:?\s{{1,3}}(?:(?:is|was|has) )?(?:failed(?! to)|lost|died|dead|crashed|killed|"
        r"unreachable|not responding)\b|"
        r"\bdeath signal\b|\bSIG(?:TERM|KILL|ABRT|SEGV)\b",
        re.IGNORECASE,
    )


def is_of_a_library(text: str) -> bool:
    """A warning or a note of a library, as they come at the door."""
    return compiled(_LIBRARY).match(text) is not None


@functools.lru_cache(2048)
def is_bad(text: str) -> bool:
    """Whether a line says that something went wrong."""
    if is_of_a_library(text):
        return _of_a_member().search(text) is not None
    if compiled(_STACK).match(text) is not None:
        return False
    plain = _harmless().sub("", text)
    return _bad().search(plain) is not None or is_of_some(plain)


def is_of_some(text: str) -> bool:
    """Whether it counts some of several: `7 of 8 ranks`."""
    return any(int(match["done"]) < int(match["total"]) for match in _share().finditer(text))


def is_overcome(text: str) -> bool:
    """Whether a line says itself that the program goes on."""
    return _overcome().search(text) is not None
