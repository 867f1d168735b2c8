"""Holders: one sleeping process per set of namespaces, and the way into them.

Everything that a lab makes in the kernel (interfaces, mounts, filters) lives in namespaces that only its holders and
the commands started in it keep alive.  When those processes end, the kernel takes everything back; nothing of it ever
is in the host's namespaces.

A holder waits for a line on its standard input before it settles.  The lab sends it after the holder is in the record,
so a creator that is killed at any moment leaves either a recorded holder or one that meets end-of-file and ends.
"""

import os
import select
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from allready.errors import LabError, StatedError
from allready.proc.kill import kill_all, reap
from allready.proc.process import ProcessId, identify

_NOT_INSTALLED = "{name} is not installed; install it with: apt-get install {package} (or dnf install {package})"

END_TIMEOUT_S = 5.0
_SBIN = "/usr/sbin:/sbin:/usr/bin:/bin"
_SETTLE = "echo ready; read -r go || exit 1; exec sleep infinity >/dev/null 2>&1 </dev/null"
_NODE = f"""
mount -n --bind "$1" /etc/hosts
[ ! -e /etc/resolv.conf ] || mount -n --bind "$2" /etc/resolv.conf
mount -n -t sysfs sysfs "$3"
[ ! -d /sys/fs/cgroup ] || mount -n --rbind /sys/fs/cgroup "$3/fs/cgroup"
mount -n --move "$3" /sys
[ ! -d /dev/shm ] || mount -n -t tmpfs -o "size=$4,mode=1777" tmpfs /dev/shm
{_SETTLE}
"""


def tool(name: str, package: str) -> str:
    """Path of a program, also when PATH lacks the sbin folders."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")
    if found is None:
        raise LabError(_NOT_INSTALLED, name=name, package=package)
    return found


class Holder:
    """A holder that has not been confirmed yet; `close` without `confirm` ends it."""

    def __init__(self, argv: Sequence[str]) -> None:
        """Start `argv` in a session of its own."""
        self.pid = 0
        self._settled = False
        stdin, self._gate = os.pipe()
        self._answer, stdout = os.pipe()
        environ = {"PATH": f"{os.environ.get('PATH', '')}:{_SBIN}", "LC_ALL": "C"}
        actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stdout, 2)]
        try:
            # Not subprocess: a lab outlives the object and the process that made it.
            self.pid = os.posix_spawn(argv[0], list(argv), environ, file_actions=actions, setsid=True)
        except OSError as error:
            self.close()
            raise LabError("cannot start {program}: {error}", program=argv[0], error=error.strerror) from error
        finally:
            os.close(stdin)
            os.close(stdout)

    def wait_ready(self, deadline: float) -> ProcessId:
        """Wait until the namespaces are there."""
        text = b""
        while b"ready\n" not in text:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._answer], [], [], left_s)[0]:
                raise LabError("a namespace of the lab was not ready in time")
            piece = os.read(self._answer, 4096)
            if not piece:
                reason = " ".join(text.decode(errors="replace").split())
                why = reason or StatedError("no reason given")
                raise LabError("this machine refuses a namespace of the lab: {why}{more}", why=why, more=_forbidden())
            text += piece
        process = identify(self.pid)
        if process is None:
            raise LabError("a holder of the lab was killed while it started")
        return process

    def confirm(self) -> None:
        """Let it stay; from now on only a signal ends it."""
        try:
            os.write(self._gate, b"go\n")
        except BrokenPipeError as error:
            raise LabError("a holder of the lab was killed while it started") from error
        self._settled = True

    def close(self) -> None:
        """Give back our ends of the pipes, and reap a holder that was never confirmed."""
        for descriptor in (self._gate, self._answer):
            if descriptor >= 0:
                os.close(descriptor)
        self._gate = self._answer = -1
        if self.pid > 0 and not self._settled:
            process = identify(self.pid)  # our child until we reap it, so it is this one and no other
            if process is not None:
                kill_all([process], timeout_s=END_TIMEOUT_S)
                reap(process)
        self.pid = 0


def hub(user_namespace: bool) -> Holder:
    """Start the hub: the net namespace of the bridge and, without root, the user namespace that owns all others."""
    user = ["--user", "--map-root-user"] if user_namespace else []
    unshare = tool("unshare", "util-linux")
    return Holder([unshare, *user, "--net", tool("sh", "dash"), "-ec", f"cd /\n{_SETTLE}"])


def node(
    hub_pid: int, user_namespace: bool, *, hosts: Path, resolver: Path, sys_folder: Path, shm_bytes: int
) -> Holder:
    """Start a node: net, uts and mount namespaces with its own /etc/hosts, /sys and /dev/shm."""
    unshare = [tool("unshare", "util-linux"), "--net", "--uts", "--mount", "--propagation", "private"]
    script = [tool("sh", "dash"), "-ec", f"cd /\n{_NODE}", "node", str(hosts), str(resolver), str(sys_folder)]
    return Holder([*into(hub_pid, user_namespace, "user"), *unshare, *script, str(shm_bytes)])


def into(pid: int, user_namespace: bool, *kinds: str) -> list[str]:
    """Beginning of a command line that runs the rest inside a holder's namespaces; empty when there are none."""
    files = {"user": "user", "net": "net", "uts": "uts", "mount": "mnt"}
    wanted = [kind for kind in kinds if kind != "user" or user_namespace]
    if not wanted:
        return []
    keep = ["--preserve-credentials"] if user_namespace else []
    return [tool("nsenter", "util-linux"), *keep, *(f"--{kind}=/proc/{pid}/ns/{files[kind]}" for kind in wanted)]


def user_namespaces_forbidden() -> StatedError | str:
    """The kernel settings that forbid user namespaces to ordinary users, as half a sentence; empty when none does."""
    found = _set_to(
        {
            "user.max_user_namespaces": "0",
            "kernel.unprivileged_userns_clone": "0",
            "kernel.apparmor_restrict_unprivileged_userns": "1",
        }
    )
    return StatedError("; user namespaces are forbidden by {settings}: run as root", settings=found) if found else ""


def _forbidden() -> StatedError | str:
    """The kernel settings that forbid the other namespaces to all users: there the kernel reports "No space left"."""
    found = _set_to({f"user.max_{kind}_namespaces": "0" for kind in ("net", "mnt", "uts")})
    return StatedError("; namespaces are forbidden by {settings}", settings=found) if found else ""


def _set_to(settings: dict[str, str]) -> str:
    """Those of the kernel settings that have the given value, as "name = value, ..."."""
    found = []
    for name, value in settings.items():
        try:
            text = Path("/proc/sys", name.replace(".", "/")).read_text(encoding="ascii").strip()
        except OSError:
            continue  # this kernel does not have the setting
        if text == value:
            found.append(f"{name} = {value}")
    return ", ".join(found)


def needs_user_namespace() -> bool:
    """Whether this process lacks the right to make net, uts and mount namespaces directly."""
    if os.geteuid() != 0:
        return True
    trial = [tool("unshare", "util-linux"), "--net", "--uts", "--mount", tool("sh", "dash"), "-c", _SETTLE]
    holder = Holder(trial)
    try:
        holder.wait_ready(time.monotonic() + 10)
    except LabError:
        return True
    finally:
        holder.close()
    return False
