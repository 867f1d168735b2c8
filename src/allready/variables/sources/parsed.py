"""What one file assigns, as its parser collects it."""

from collections.abc import Mapping

from msgspec import Struct

from allready.model.settings import LoaderPlan, Malformed, MeetingPlan, Setting, Slip, SourceCall, SourceKind
from allready.patterns import compiled

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_LOCAL_RANK = r"(?i)local_?(?:rank|id|process)"
"""LOCAL_RANK, SLURM_LOCALID, OMPI_COMM_WORLD_LOCAL_RANK, local_rank, ..."""
MAX_SETTINGS = 5000
MAX_VALUE_CHARS = 4096
MAX_LINES = 50_000
MAX_NODES = 200_000  # of a document


class Written(Struct, frozen=True):
    """A file that a script writes: by a here-document, or by `echo ... >> FILE`."""

    name: str
    text: str
    line: int  # of its first line


class Parsed(Struct, kw_only=True):
    """One file, read as what `kind` says.  Everything is bounded; what is beyond the bounds is unreadable."""

    source: str
    kind: SourceKind
    settings: list[Setting] = []
    calls: list[SourceCall] = []
    malformed: list[Malformed] = []
    loaders: list[LoaderPlan] = []
    meetings: list[MeetingPlan] = []
    written: list[Written] = []
    used: frozenset[str] = frozenset()  # variables that a shell script itself reads
    one_gpu_per_task: bool = False
    scope: tuple[int, ...] = ()  # of what is assigned now

    def assign(self, name: str, value: str | None, line: int, *, exported: bool = True, written: str = "") -> None:
        """NAME=VALUE on a line; value None where it is only known when the file runs, `written` then as it stands."""
        if len(self.settings) < MAX_SETTINGS:
            known = value[:MAX_VALUE_CHARS] if value is not None else None
            setting = Setting(
                name=name,
                value=known,
                source=self.source,
                line=line,
                kind=self.kind,
                exported=exported,
                scope=self.scope,
                is_of_rank=value is None and compiled(_LOCAL_RANK).search(written) is not None,
            )
            self.settings.append(setting)
            if len(self.settings) == MAX_SETTINGS:
                self.slip(line, f"only the first {MAX_SETTINGS} settings are read", Slip.UNREADABLE)

    def within(self) -> "Parsed":
        """An empty one for a part of the file."""
        return Parsed(source=self.source, kind=self.kind, scope=self.scope)

    def slip(self, line: int, text: str, why: Slip, *, name: str = "") -> None:
        """A line that assigns nothing, or something else than is meant."""
        if len(self.malformed) < MAX_SETTINGS:
            self.malformed.append(Malformed(source=self.source, line=line, text=text[:200], slip=why, name=name))


def read_environment(variables: Mapping[str, str], source: str = "environment") -> Parsed:
    """The variables of a process on this machine."""
    settings = [
        Setting(name=name, value=value, source=source) for name, value in sorted(variables.items())[:MAX_SETTINGS]
    ]
    return Parsed(source=source, kind=SourceKind.ENVIRONMENT, settings=settings)
