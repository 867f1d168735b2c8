"""A real sshd for tests."""

import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from allready.launch.ssh_words import SshOptions, Target
from tests.clock import Deadline

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")
needs_sshd = pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="needs OpenSSH's ssh and sshd")
ME = pwd.getpwuid(os.getuid()).pw_name


def new_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=20)


class Sshd:
    """An sshd of our own on a free port of 127.0.0.1, with its own keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("host_key", "user_key"):
            new_key(folder / name)
        shutil.copy(folder / "user_key.pub", folder / "authorized")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        (folder / "known").write_text(
            f"[127.0.0.1]:{self.port} {(folder / 'host_key.pub').read_text()}"
            f"[127.0.0.2]:{self.port} {(folder / 'host_key.pub').read_text()}"
        )
        (folder / "config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nListenAddress 127.0.0.2:{self.port}\nHostKey {folder}/host_key\n"
            f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\nPidFile none\nMaxStartups 50\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        )
        assert SSHD is not None
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's chroot of its unprivileged part
        self.process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "config")], stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = Deadline(10)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                break
            except OSError:
                assert not deadline.passed(), "sshd does not come up"
                assert self.process.poll() is None
                time.sleep(0.05)

    def options(self, **more: object) -> SshOptions:
        base = (
            "IdentitiesOnly=yes",
            f"IdentityFile={self.folder}/user_key",
            f"UserKnownHostsFile={self.folder}/known",
            "GlobalKnownHostsFile=/dev/null",
            "ControlPath=none",
            f"User={ME}",
        )
        extra = more.pop("extra", ())
        assert isinstance(extra, tuple)
        given = {"directory": str(self.folder), "end_s": 10.0, "settle_s": 10.0, **more}
        return SshOptions(options=(*extra, *base), **given)  # type: ignore[arg-type]

    def targets(self, number: int = 2) -> tuple[Target, ...]:
        return tuple(Target(host=f"127.0.0.{i + 1}", port=self.port) for i in range(number))

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=10)
