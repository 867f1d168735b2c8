"""Regular expressions for every prefix that `evidence.prefix` takes off.  All are bounded: no line takes long."""

LEVEL = r"INFO|WARN|ATTN|TRACE|CALL|ABORT|VERSION|ERROR"
NCCL = (
    rf"([\w.\-]{{1,255}}):(\d{{1,9}}):(\d{{1,9}}) (?:\[(-?\d{{1,4}})\] )?"
    rf"(?:(?:[\d.]{{1,20}} )?([^\s:]{{1,200}}:\d{{1,7}}) (?:\([^\n]{{0,200}}?\) )?)?NCCL ({LEVEL})(?: |$)"
)
NCCL_WORD = rf"NCCL (?:{LEVEL})(?: |$)"
WORDS = {
    "I": "INFO", "W": "WARN", "E": "ERROR", "F": "FATAL", "D": "DEBUG", "WARNING": "WARN", "CRITICAL": "FATAL",
}  # fmt: skip
_MONTH = r"Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
LEVEL_NAME = r"DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
GLOG = (
    r"(?P<level>[IWEF])(?P<month>\d{1,2})(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"\.(?P<part>\d{1,9}) +(?:(?P<number>\d{1,20}) +)?(?P<file>[^\s:\]\[]{1,300}:\d{1,7})"
)
GLOG_INSIDE = GLOG + r"\] ?"
OLD_GLOG = r"\[(?P<level>[IWEF]) (?P<file>[\w./\-]{1,200}\.(?:cpp|hpp|cc|h|cu):\d{1,7})\] ?"
DATE = (
    r"(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T _](?P<hour>\d\d):(?P<minute>\d\d)"
    r"(?::(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?)?(?: ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d))?"
    r"(?!\d|:(?! ))"
)
TSL = r": (?P<level>[IWEFD]) +(?:\d{1,20} )?(?P<file>[^\s:\]\[]{1,300}:\d{1,7})\] ?"
"""What TensorFlow's and XLA's own logger puts behind its date."""

STAMP_END = r": |:$| \| "
CRI = r" (?:stdout|stderr) [FP] "  # what Kubernetes' nodes put behind the stamp of a container's line
DETERMINED = r"(?:[0-9a-f]{6,64} )?\|\| ?"
TABLE = r"(?: {0,60}\|){1,4} (?=\d{4}-\d\d-\d\d[T ]\d\d:|\[rank\d)"
"""A column in front of the stamp (CloudWatch) or of the rank (a table of a benchmark)."""

_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_PART = r"(?:[.,](?P<part>\d{1,9}))?"
US_DATE = rf"(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{{4}}) {_TIME}{_PART}(?![\d:])"
TIME = rf"{_TIME}{_PART}(?![\d:])"
C_DATE = rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<month>{_MONTH}) +(?P<day>\d{{1,2}}) {_TIME}{_PART} (?P<year>\d{{4}})"
SYSLOG = rf"(?P<month>{_MONTH}) {{1,2}}(?P<day>\d{{1,2}}) {_TIME}(?:\.(?P<part>\d{{1,9}}))? "
SYSLOG_WHO = r"(?P<host>[\w.\-]{1,255}) (?:kernel|(?P<program>[\w./@()\-]{1,100})\[(?P<pid>\d{1,9})\]): ?"
UPTIME = r"\[ *\d{1,12}\.\d{6}\](?:\[ *[TC]\d+\])? ?"
UCX = (
    r"\[(?:(?P<second>\d{10})\.(?P<part>\d{6})\] \[)?"
    r"(?P<host>[A-Za-z0-9][\w.\-]{0,254}):(?P<pid>\d{1,9}) {0,4}:\d{1,6}(?::\d{1,9})?\] +"
    r"(?=[\w./\-]{1,200}\.[ch]\w{0,2}:\d)"
)
"""UCX's logger: `[TIME] [HOST:PID:THREAD] file.c:12`, or without the time where it tells of an error; its seconds since
1970 look like the kernel's since it started."""

PRIORITY = r"<\d{1,3}>(?=\[)"
LABEL = r" {0,3}(?P<task>\d{1,6}):(?: |$)"
AFTER_LEVEL = r"(?: ?[-|:] | |$)"
LOGGED = rf"(?: [-|:] ?|[-|:] | )?\[?(?P<level>{LEVEL_NAME})\]?{AFTER_LEVEL}(?:[A-Za-z_][\w.]{{0,100}} - )?"
LOGGED_NAME = (
    rf"(?: [-|:] ?|[-|:] | )?(?P<file>[A-Za-z_][\w.\-]{{0,100}})(?: [-|:] ?|: | )"
    rf"\[?(?P<level>{LEVEL_NAME})\]?{AFTER_LEVEL}"
)
LOGGING = r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):(?P<file>[A-Za-z_][\w.\-]{0,200}):"
CLOUD = (
    rf"(?:{LEVEL_NAME}|DEFAULT|NOTICE)[\t ]{{1,12}}{DATE}[\t ]{{1,12}}"
    r"(?P<node>[a-z][\w.\-]{0,100})(?P<gap>[\t ]{1,40})"
)
"""What `gcloud` puts in front of a line of a training job: level, time, replica, in columns of tabs or of blanks."""

CLOUD_COLUMN = 16

AFTER_DATE = rf"(?P<file>[A-Za-z_][\w.\-]{{0,200}}): \[(?P<level>{LEVEL_NAME})\] ?"
COMPOSE = r"(?:(?:pod|container|deployment|job)/)?(?P<node>[A-Za-z0-9][\w.\-]{0,200}) +\| ?"
NAMED = r"(?P<node>[A-Za-z][\w.\-]{0,200}): ?"
STERN = r"(?P<node>[a-z0-9][a-z0-9.\-]{0,200}) [a-z0-9][a-z0-9\-]{0,100} "
STREAM = r"(?P<node>[A-Za-z][\w.\-]{0,200}) \[std(?:out|err)\] ?"
RAY = r"\((?:[\w.:<>\-]{1,200},? )?(?:rank=\d{1,7},? )?pid=(?P<pid>\d{1,9})(?:, ip=(?P<node>[\w.:\-]{1,100}))?\) ?"
MPI = r"\[(?:(?:[\w.\-]{1,255}@)?\d{1,10},)?(?P<task>\d{1,7})\]<(?:stdout|stderr|stddiag)>: ?"
OUTPUT = r"(?:stdout|stderr): ?"
OUTPUT_TAG = r"(<(?:stdout|stderr|stddiag)>: ?)|(?=\[)"
ENGINE = (
    rf"(?P<level>{LEVEL_NAME}) \d\d-\d\d \d\d:\d\d:\d\d (?:\[(?P<file>[\w./]{{1,200}}\.py:\d{{1,7}})\]|"
    r"[\w./]{1,200}\.py:\d{1,7}\])(?: |$)"
)
"""vLLM's logger, with the day and without the year; of each line of a traceback, which it logs before it ends."""

NUMBER = r"\[(?P<local_rank>\d{1,6})\]:(?= *\S)"
"""A rank's number as runners of Megatron put it in front; alone on a line it begins an entry of torchrun's table."""

RANK = r"\[rank(?:: ?)?(?P<rank>\d{1,7})\](?:: ?| )"
RANK_INSIDE = r"\[rank\d{1,7}\]:"
GLOG_IN_CPP = (
    r"\[[IWEF](?:\d{3,4} \d\d:\d\d:\d\d\.\d{1,9}(?: +\d{1,20})?)? [\w./\-]{1,200}\.(?:cpp|hpp|cc|h|cu):\d{1,7}\]"
)
"""What torch puts in front of its lines by itself: whatever stands before it, its line begins there."""

AFTER_RANK = r"\[[IWEF](?:\d{3,4} \d\d:| [\w./\-]{1,200}:\d)| ?Traceback \(most recent call last\)"
"""Behind `[rankN]:`, what only torch or Python puts there: it is no sentence about that rank."""

_STAMP_WORD = (
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}|AM|PM|"
    rf"Z|UTC|GMT|[A-Z]{{1,3}}[SD]?T|{LEVEL_NAME}|stdout|stderr|F|P)"
)
_NUMBERED = r"(?=[A-Za-z_./\-]{0,100}\d)[\w.:,/+\-]{1,100}|[\w./\-]{1,100}\.\w{1,8}:\d{1,9}"
STAMP = rf"[\s|>\-]{{0,60}}(?:[\[(<#]{{0,3}}(?:{_STAMP_WORD}|{_NUMBERED})[\])>:,.|]{{0,3}}[\s|>\-]{{1,60}}){{0,8}}"
"""What may stand before `[rankN]:`, from the line's beginning or from what is known there on: dates, times, levels,
streams, names with a number, what grep puts there; no sentence has such words only."""

ROLE = r"\[[A-Za-z_][\w\-]{0,60}?(?P<local_rank>\d{1,4})\]:"
RUNNER = (
    r"\[node ?(?P<node>[\w.\-]{1,100})(?: rank ?(?P<rank>\d{1,7}))?(?: local[ _-]rank ?(?P<local_rank>\d{1,4}))?\] ?"
)
POD = r"\[(?:pod/)?(?P<node>[a-z0-9][a-z0-9.\-]{0,252})/[a-z0-9][a-z0-9.\-]{0,252}\] ?"
HYDRA = r"\[(?P<task>\d{1,6})\] "
BRACKETED_LEVEL = rf"\[(?P<level>{LEVEL_NAME})\] ?"
BRACKETED_FILE = r"\[(?P<file>[\w./\-]{1,200}\.\w{1,4}:\d{1,7})(?::[\w<>.]{1,100})?\] ?"
STARTS = r"[IWEF]\d{3,4} \d\d:\d\d:\d\d\.|\[|Traceback \(most recent|\d{4}-\d\d-\d\d[T ]|NCCL version "

GLUED_RANK = r'(?<=[^\s:|>])\[rank\d{1,7}\]:(?= Traceback \(most recent| {3}File "|\[[IWEF]\d{4} )'
"""`loss 0.31[rank1]: Traceback ...`: torch's prefix right behind what another process had not ended with a newline."""
