"""The shared token of a job's nodes: who does not have it is neither let in nor obeyed, and it is never sent.

Both sides choose a nonce and derive keys from token and nonces (HMAC-SHA256).  A node proves with its hello that it has
the token; node 0 proves it with the seal of its answer.  Every later frame carries a seal over its number and content,
so that nothing can be put in, changed, repeated or left out on the way.  The content is not hidden.
"""

import contextlib
import hmac
import os
import secrets
import select
import stat
import time
from collections.abc import MutableMapping

from allready.errors import ExchangeError, UsageError
from allready.names import TOKEN_VARIABLE

SEAL_BYTES = 16
HELLO = b"hello"
"""The purpose of a node's proof."""
WANTS_TOKEN = "wants_token"  # noqa: S105
"""Key in the hello of a node that has a token and leaves because node 0 does not ask for one."""

_MIN_BYTES = 16
_MAX_BYTES = 4096
_STDIN_S = 30.0


class Token:
    """A secret that prints as nothing, and can be neither encoded nor pickled by mistake."""

    __slots__ = ("_key",)

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(b"allready token", secret, "sha256")

    def __repr__(self) -> str:
        return "Token()"

    def __reduce__(self) -> str:
        raise TypeError("a token stays in its process")

    def proof(self, purpose: bytes, *parts: bytes) -> bytes:
        """Shows that one has the token, for these parts and this purpose only."""
        text = b"".join(len(part).to_bytes(4, "big") + part for part in (purpose, *parts))
        return hmac.digest(self._key, text, "sha256")

    def is_proof(self, proof: object, purpose: bytes, *parts: bytes) -> bool:
        """Whether `proof`, in hexadecimal, is one."""
        expected = self.proof(purpose, *parts).hex()
        return isinstance(proof, str) and proof.isascii() and hmac.compare_digest(proof, expected)

    def seal(self, nonces: tuple[str, str], *, is_node_0: bool) -> "Seal":
        """Of one end of the connection on which these nonces, node 0's and the node's, were exchanged."""
        down, up = (self.proof(way, *(n.encode() for n in nonces)) for way in (b"from node 0", b"to node 0"))
        return Seal(down, up) if is_node_0 else Seal(up, down)


class Seal:
    """The seals of one end of a connection, in the order of its frames."""

    def __init__(self, own: bytes, other: bytes) -> None:
        self._own, self._other = own, other
        self._num_sent = self._num_received = 0

    def put(self, content: bytes) -> bytes:
        """The seal of the next frame that is sent."""
        self._num_sent += 1
        return _seal(self._own, self._num_sent, content)

    def check(self, seal: bytes, content: bytes) -> None:
        """Of the next frame that came.

        Raises:
            ExchangeError: it is not from who has the token, or not the next one.
        """
        self._num_received += 1
        if not hmac.compare_digest(seal, _seal(self._other, self._num_received, content)):
            raise ExchangeError("a message without the seal of the shared token")


def _seal(key: bytes, number: int, content: bytes) -> bytes:
    return hmac.digest(key, number.to_bytes(8, "big") + content, "sha256")[:SEAL_BYTES]


def new_nonce() -> str:
    """Chosen anew for every connection."""
    return secrets.token_hex(16)


def is_nonce(text: object) -> bool:
    """Whether the other side's nonce can be one."""
    return isinstance(text, str) and len(text) == 32 and text.isascii()


def token_from(path: str | None, environ: MutableMapping[str, str]) -> Token | None:
    """The token of this process; see `secret_from`."""
    secret = secret_from(path, environ)
    return None if secret is None else Token(secret.encode("utf-8", "surrogateescape"))


def secret_from(path: str | None, environ: MutableMapping[str, str]) -> str | None:
    """The text of the token: in a file ("-": the first line of standard input), else in `ALLREADY_TOKEN`.

    The variable is taken out of `environ`, so that no rank and no report has it.

    Raises:
        UsageError: the file cannot be read or is none, or the token is too short to be one.
    """
    variable = environ.pop(TOKEN_VARIABLE, None)
    if path is not None:
        where, data = f"--token-file {path}", _first_line() if path == "-" else _read(path)
        secret = data.decode("utf-8", "surrogateescape").strip()
    elif variable is not None:
        where, secret = TOKEN_VARIABLE, variable.strip()
    else:
        return None
    if len(secret) < _MIN_BYTES:
        raise UsageError(
            "{where}: a token has at least {least} characters; make one with `openssl rand -hex 32`",
            where=where,
            least=_MIN_BYTES,
        )
    return secret


def _read(path: str) -> bytes:
    descriptor = -1
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(
                "--token-file {path}: no token can be read: {reason}",
                path=path,
                reason=UsageError("it is no regular file"),
            )
        data = os.read(descriptor, _MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            "--token-file {path}: no token can be read: {reason}", path=path, reason=error.strerror or str(error)
        ) from None
    finally:
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    if len(data) > _MAX_BYTES:
        raise UsageError(
            "--token-file {path}: no token can be read: {reason}",
            path=path,
            reason=UsageError("more than {num} bytes", num=_MAX_BYTES),
        )
    return data


def _first_line() -> bytes:
    """Of standard input, and nothing after it: what follows are the signs of life of who started this agent."""
    deadline, line = time.monotonic() + _STDIN_S, b""
    try:
        while not line.endswith(b"\n") and len(line) <= _MAX_BYTES:
            if not select.select([0], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise UsageError(
                    "--token-file {path}: no token can be read: {reason}",
                    path="-",
                    reason=UsageError("nothing came for {seconds} s", seconds=f"{_STDIN_S:.0f}"),
                )
            byte = os.read(0, 1)
            if not byte:
                break
            line += byte
    except (OSError, ValueError) as error:
        raise UsageError("--token-file {path}: no token can be read: {reason}", path="-", reason=str(error)) from None
    return line
