"""`allready bundle`: what a helper needs to see of this machine and of a run, in one file and without secrets."""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allready.cli.interrupts import Interrupts
from allready.cli.main import EXIT_HEALTHY, EXIT_UNCHECKED
from allready.cli.options import add_both_spellings, add_language, positive_s, size_bytes
from allready.cli.output import check_writable, deliver_json
from allready.errors import UsageError
from allready.text.catalog import choose_language
from allready.text.ui import ui
from allready.text.usage import error_text

if TYPE_CHECKING:
    from allready.bundle.manifest import LeftOut, Manifest
    from allready.bundle.pack import GeneratedMember, Order
    from allready.bundle.pseudonyms import Pseudonyms
    from allready.model import NodeFacts
    from allready.report.pieces import Block

DEADLINE_S = 10.0
GRACE_S = 1.0
"""For facts that come late."""
KERNEL_S = 3.0
MAX_KERNEL_LINES = 2000
MAX_PACKAGES = 2000
SHORTEST_SECRET = 8
OF_A_JOB = (
    "SLURM_", "PBS_", "LSB_", "OMPI_", "PMI", "PMIX_", "PET_", "KUBERNETES_", "TORCHELASTIC_", "ALLREADY_", "MASTER_",
    "CONDA_", "SINGULARITY_", "APPTAINER_", "ACCELERATE_", "DS_", "DEEPSPEED_", "HF_HUB_", "TOKENIZERS_", "TRITON_",
)  # fmt: skip
SINGLE = frozenset({
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "NNODES", "JOB_COMPLETION_INDEX",
    "PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TMPDIR", "LANG", "LC_ALL", "TZ", "PWD", "SHELL", "HOSTNAME",
})  # fmt: skip

EPILOG = """\
  allready bundle run-folder/                      facts of this machine, findings, and these logs
  allready bundle --dry-run run-folder/            what would be in it, what was changed, what is left out
  allready bundle --pseudonyms logs/ job.sbatch    other host names, users and addresses, the same by the same
  allready bundle --no-facts logs-of-all-nodes/    only the files: this machine took no part in the job
  allready diagnose allready-bundle-*.tar.gz       read it; also: doctor --from FILE, env lint FILE
  allready bundle --extract FILE DIR               unpack a bundle into a new folder
Exit codes: 0, 2 usage, 3 it could not be written or read.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bundle`."""
    parser.add_argument("paths", nargs="*", metavar="PATH", help="logs, report folders, scripts, archives of the run")
    what = parser.add_argument_group("what goes in")
    what.add_argument(
        "--pseudonyms", action="store_true", help="replace host names, users and addresses, the same by the same"
    )
    what.add_argument("--hide", action="append", default=[], metavar="NAME", help="one more name to replace")
    add_both_spellings(
        what, "max-size", type=size_bytes, default=64 << 20, metavar="SIZE", help="largest size of the file (64M)"
    )
    add_both_spellings(what, "no-facts", action="store_true", help="only files: nothing of this machine")
    what.add_argument("--timeout", type=positive_s, metavar="S", help="time for this machine's facts (default 10 s)")
    how = parser.add_argument_group("how")
    add_both_spellings(how, "dry-run", action="store_true", help="write no file; list what would be in it")
    how.add_argument("--out", metavar="FILE", help="the file to write (default: allready-bundle-TIME.tar.gz)")
    how.add_argument("--extract", metavar="FILE", help="unpack the bundle FILE into the new folder PATH")
    how.add_argument("--json", metavar="FILE", help="write the manifest to FILE (- for standard output)")
    add_language(how)
    how.add_argument("-q", "--quiet", action="store_true", help="print only the name of the file")


def run(args: argparse.Namespace) -> int:
    """Write, list or unpack; the exit code is the contract's."""
    with Interrupts(exit_code=EXIT_UNCHECKED):
        return _extract(args) if args.extract else _bundle(args)


def _bundle(args: argparse.Namespace) -> int:
    from msgspec import to_builtins

    from allready.bundle.pack import MIN_BYTES, bundle_name, list_bundle, write_bundle
    from allready.report.terminal import show_blocks

    if args.no_facts and not args.paths:
        raise UsageError("--no-facts without a PATH leaves nothing to put in")
    if args.max_size < MIN_BYTES:
        raise UsageError("--max-size: at least {size}", size=f"{MIN_BYTES >> 10}K")
    target = Path(args.out or bundle_name())
    if not args.dry_run:
        check_writable("--out", target)
        if target.exists():
            raise UsageError("--out {path}: this file exists; nothing is overwritten", path=target)
    for path in args.paths:
        if not os.path.lexists(path) and not any(c in path for c in "*?["):
            raise UsageError("{name}: there is no such file or folder", name=path)
    order = _order(args, target.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz"))
    try:
        manifest = list_bundle(order) if args.dry_run else write_bundle(order, target.absolute())
    except OSError as error:
        sys.stderr.write(f"allready bundle: {target}: {error.strerror or error}\n")
        return EXIT_UNCHECKED
    if args.json:
        deliver_json(args.json, to_builtins(manifest))
    if args.json != "-":
        language = choose_language(args.lang)
        if args.quiet:
            sys.stdout.write("" if args.dry_run else f"{target}\n")
        else:
            show_blocks(_shown(manifest, None if args.dry_run else target, language), sys.stdout, language)
    return EXIT_HEALTHY


def _order(args: argparse.Namespace, name: str) -> "Order":
    from allready.bundle.pack import Order, texts_of

    parts, left_out, facts = ((), (), None) if args.no_facts else _parts_here(args)
    names = _names_of(args, facts) if args.pseudonyms or args.hide else None
    if names is not None and args.pseudonyms:
        for part in parts:
            names.learn_hosts(part.data.decode("utf-8", "replace"))
        texts_of(args.paths, names.learn_hosts)
    return Order(
        name=name,
        parts=parts,
        paths=tuple(args.paths),
        left_out=left_out,
        max_bytes=args.max_size,
        secrets=secret_values(os.environ),
        hide=None if names is None else names.hide,
    )


def _names_of(args: argparse.Namespace, facts: "NodeFacts | None") -> "Pseudonyms":
    from allready.bundle.pseudonyms import Pseudonyms
    from allready.model import HostFacts, NameFacts

    hosts = list(args.hide)
    users = []
    if args.pseudonyms:
        import socket

        hosts.append(socket.gethostname())
        if facts is not None and isinstance(facts.host, HostFacts):
            hosts.append(facts.host.hostname)
        if facts is not None and isinstance(facts.names, NameFacts):
            hosts += [facts.names.own_name, facts.names.master_name]
        users = [os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")]
        users.append(Path(os.environ.get("HOME", "/")).name)
    return Pseudonyms(hosts, users, addresses=args.pseudonyms)


def _parts_here(args: argparse.Namespace) -> "tuple[tuple[GeneratedMember, ...], tuple[LeftOut, ...], NodeFacts]":
    """Facts, findings, environment, versions and the kernel's lines of this machine."""
    from allready.bundle import manifest as names
    from allready.bundle.pack import GeneratedMember
    from allready.cli.doctor_files import facts_json
    from allready.cli.env_settings import settings_here
    from allready.errors import FactUnavailable
    from allready.facts.apart import ReaderProcess
    from allready.facts.live import Answered
    from allready.facts.order import Also, FactsOrder
    from allready.model.fill import phrase_of, texts
    from allready.preflight.doctor.examine import examine, judge
    from allready.preflight.doctor.request import launch_for
    from allready.report import json_report

    launch, _ = launch_for({}, os.environ)
    limit_s = args.timeout or DEADLINE_S
    with ReaderProcess(limit_s=limit_s) as reader:
        until_s = time.monotonic() + limit_s
        reader.ask(FactsOrder(launch=launch, also=Also(), until_s=until_s))
        found = examine(reader, latest_s=until_s + GRACE_S)
    host = Answered(found.conf_files)
    report = judge([found.facts], settings_here(host, found.facts))
    parts = [
        GeneratedMember(name=names.FACTS, source="this machine", data=facts_json(found.facts)),
        GeneratedMember(name=names.ENVIRONMENT, source="this process", data=environment_json(os.environ)),
        GeneratedMember(name=names.REPORT, source="allready doctor", data=json_report.encode(report)),
        GeneratedMember(name=names.VERSIONS, source="this Python", data=versions_json()),
    ]
    left_out: list[LeftOut] = []
    try:
        parts.append(GeneratedMember(name=names.KERNEL, source="the kernel log", data=kernel_log()))
    except FactUnavailable as error:
        left_out.append(names.LeftOut(source="the kernel log", **texts(why=phrase_of(error))))
    return tuple(parts), tuple(left_out), found.facts


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What the variables that hold secrets are set to here: a log may repeat it without their names."""
    from allready.redaction import is_secret_name

    found = {v for name, v in environ.items() if is_secret_name(name) and len(v) >= SHORTEST_SECRET and v[0] != "/"}
    return tuple(sorted((v for v in found if not v.isalpha() and not v.isdecimal()), key=len, reverse=True))


def environment_json(environ: Mapping[str, str]) -> bytes:
    """The variables of a job, its scheduler and its libraries; of all others the names."""
    from allready.bundle.manifest import ENVIRONMENT_SCHEMA
    from allready.facts.env import is_read
    from allready.redaction import redact
    from allready.variables import table

    known = table.load()
    wanted = {n for n in environ if is_read(n) or n in SINGLE or n in known or n.startswith(OF_A_JOB)}
    variables = {name: redact(name, environ[name]) for name in sorted(wanted)}
    body = {"schema": ENVIRONMENT_SCHEMA, "variables": variables, "other_names": sorted(set(environ) - wanted)}
    return _json(body)


def versions_json() -> bytes:
    """Python, the system, and every package that this Python would import."""
    import importlib.metadata
    import platform

    from allready import __version__

    packages: dict[str, str] = {}
    for found in importlib.metadata.distributions():
        name = found.metadata["Name"]
        if name and len(packages) < MAX_PACKAGES:
            packages.setdefault(str(name), str(found.version))
    body = {
        "schema": "allready.versions/1",
        "allready": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "packages": dict(sorted(packages.items(), key=lambda row: row[0].lower())),
    }
    return _json(body)


def kernel_log() -> bytes:
    """Those lines of the kernel log that a signature knows, the newest 2000, as `dmesg -T` prints them.

    Raises:
        FactUnavailable: it may not be read here.
    """
    from allready.facts.kernel_log import as_dmesg, kernel_lines
    from allready.facts.live import LiveHost
    from allready.signatures import table

    shapes = [(anchor, line) for anchor, line, signature in table.by_anchor() if signature.family == "kernel"]

    def matters(record: str) -> bool:
        return any(anchor in record and shape.pattern.search(record) for anchor, shape in shapes)

    now = datetime.now(UTC)
    matter = [as_dmesg(line, now) for line in kernel_lines(LiveHost(), timeout_s=KERNEL_S) if matters(line.text)]
    return "".join(f"{line}\n" for line in matter[-MAX_KERNEL_LINES:]).encode("utf-8", "replace")


def _json(body: Any) -> bytes:
    import msgspec

    from allready.report.safe import safe_json

    return safe_json(msgspec.json.format(msgspec.json.encode(body), indent=1)) + b"\n"


def _extract(args: argparse.Namespace) -> int:
    from allready.bundle.read import BundleError, extract
    from allready.report.safe import plain

    if len(args.paths) != 1:
        raise UsageError("--extract FILE takes one PATH: the folder to make")
    folder = Path(args.paths[0])
    try:
        names = extract(args.extract, folder)
    except (BundleError, OSError) as error:
        sys.stderr.write(f"allready bundle: {plain(args.extract)}: {plain(error_text(error), most=2000)}\n")
        return EXIT_UNCHECKED
    for name in names if not args.quiet else ():
        sys.stdout.write(f"{plain(str(folder / name), most=4000)}\n")
    return EXIT_HEALTHY


def _shown(manifest: "Manifest", target: Path | None, language: str) -> "Iterator[Block]":
    from allready import units
    from allready.report.pieces import Gap, Grid, Piece, StyledLine
    from allready.report.safe import plain
    from allready.text.catalog import say_text, source_name

    columns = ("member", "size", "redacted", "cut", "source")
    rows = [
        (
            Piece(plain(entry.name, most=200)),
            Piece(units.size(entry.size_bytes)),
            Piece(str(entry.num_redacted or "")),
            Piece(units.size(entry.cut_bytes) if entry.cut_bytes else ""),
            Piece(plain(source_name(entry.source, language), most=200), "dim"),
        )
        for entry in manifest.entries
    ]
    head = tuple(ui(f"bundle.{name}", language) for name in columns)
    yield Grid(head=head, rows=tuple(rows), right=(False, True, True, True, False))
    yield Gap()
    for item in manifest.left_out[:20]:
        source, why = source_name(item.source, language), say_text(item, "why", language)
        pieces = (Piece(f"{plain(source, most=200)}{ui('report.colon', language)}{plain(why)}"),)
        yield StyledLine(pieces, lead=Piece(ui("bundle.left_out", language), "warn"))
    if manifest.num_left_out > 20:
        yield StyledLine((Piece(ui("bundle.more_left_out", language, count=manifest.num_left_out - 20), "dim"),))
    redacted = sum(entry.num_redacted for entry in manifest.entries)
    values = {"members": len(manifest.entries), "redacted": redacted}
    if target is None:
        yield StyledLine((Piece(ui("bundle.would_write", language, **values), "bold"),))
    else:
        size = units.size(target.stat().st_size)
        yield StyledLine((Piece(ui("bundle.written", language, file=plain(str(target)), size=size, **values), "bold"),))
        yield StyledLine((Piece(ui("bundle.look", language), "dim"),))
