"""How a node gets through to node 0, and what to report while it does not.

`Contact.attempt` is one try: resolve, connect, greet.  It never raises for what the network does: every outcome is a
value of `MasterContactFacts.outcome`, so that the same rules judge it live and later.
"""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from allready.errors import ExchangeError, FactUnavailable
from allready.messaging import datagram
from allready.messaging.identify import Service, classify_bytes, identify
from allready.messaging.link import Link
from allready.messaging.silence import within
from allready.messaging.sockets import icmp_error, unanswered_arp, want_errors
from allready.messaging.token import HELLO, WANTS_TOKEN, Seal, Token, is_nonce, new_nonce
from allready.messaging.wire import (
    ANY_RANK,
    GREETING,
    MAX_ANSWER_BYTES,
    MAX_HELLO_BYTES,
    MAX_NODES,
    NodeHello,
    decode,
    encode,
    is_sealed,
    keep_segments_small,
    open_stream,
    plain,
    read_frame,
    read_payload,
    to_json,
    unsealed,
)
from allready.model import MasterContactFacts, Phrase, PortHolder, RollCall, TokenGap
from allready.model.addresses import is_loopback, parse
from allready.model.fill import phrase_of, said, texts

CONNECT_S = 1.5  # silence for this long is called silence; a handshake takes one round trip, a retried SYN 1 s more
RETRY_S = 0.4
SEARCH_NEARBY_AFTER_S = 1.0
NEARBY_S = 0.5
NEARBY = 8  # ports to each side of the master port
USUAL_PORTS = (29400, 29500)  # torchrun's defaults: c10d rendezvous, static
ANSWER_S = 2.0
HELLO_ANSWER_S = 10.0
IDENTIFY_S = 0.7  # per question; a silent service is reported as such within 5 s

Resolver = Callable[[str], Awaitable[tuple[str, ...]]]

# Outcomes that waiting does not fix: something else is there, it is not merely late.
HOPELESS = frozenset({"family_mismatch", "wrong_service", "stale_store"})

_NO_ROUTE = {
    errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EACCES, errno.EPERM,
    errno.EINVAL,  # a blackhole route
}  # fmt: skip
_NO_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}


# ICMP that ends a TCP connect and that only a packet filter sends (a closed port answers with a reset), IPv4 and IPv6.
_ICMP_OF_FILTERS = {(3, 3), (3, 9), (3, 10), (3, 13), (1, 1), (1, 4), (1, 5), (1, 6)}
_ICMP_OF_ROUTERS = {(3, 0), (3, 1), (1, 0), (1, 3)}  # from the machine itself they are a filter's as well


class _Rejected(OSError):  # noqa: N818 - an outcome
    """A packet filter refused the connection, by an ICMP message from `sender`."""

    sender = ""


class Refusal(Struct, frozen=True, kw_only=True):
    """Node 0's no."""

    reason: str
    roll: RollCall
    holder: PortHolder | None = None  # the agent that says it, once its roll call is over


class Contact:
    """One node's way to node 0; `close` at the end unless a link was handed out."""

    def __init__(self, hello: NodeHello, master_port: int, resolve: Resolver, *, token: Token | None = None) -> None:
        """`token`: node 0 must have it as well."""
        self._hello = hello
        self._port = master_port
        self._resolve = resolve
        self._started = time.monotonic()
        self._token = token
        self._caller = datagram.DatagramCaller(token)
        self._attempts = self._num_broken = 0
        self._addresses: tuple[str, ...] = ()
        self._nearby: tuple[tuple[int, str], ...] | None = None
        self.refusal: Refusal | None = None
        self.facts = MasterContactFacts(
            outcome="not_tried",
            master_addr=hello.master_addr,
            master_port=master_port,
            **texts(detail=said("no attempt ended yet")),
        )

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._started

    def close(self) -> None:
        self._caller.close()

    async def attempt(self) -> Link | None:
        """One try; a link when node 0 let us in.  `facts` (and `refusal`) then say what happened."""
        self._attempts += 1
        self._addresses = ()
        try:
            self._addresses = await self._resolve(self._hello.master_addr)
        except FactUnavailable as error:
            self._set("unresolved", detail=phrase_of(error))
            return None
        worst: MasterContactFacts | None = None
        for address in self._addresses:
            link = await self._try(address)
            if link is not None or self.refusal is not None:
                return link
            if worst is None or _informative(self.facts) > _informative(worst):
                worst = self.facts
        if worst is not None:
            self.facts = worst
        return None

    def _set(
        self,
        outcome: str,
        *,
        detail: str | Phrase = "",
        address: str | None = None,
        service: str | None = None,
        rejected_by: str | None = None,
        error: str | None = None,
    ) -> None:
        self.facts = replace(
            self.facts,
            outcome=outcome,
            **texts(detail=detail),
            addresses=self._addresses,
            address=address,
            service=service,
            attempts=self._attempts,
            num_broken=self._num_broken,
            waited_s=round(self.waited_s, 3),
            heard_by_datagram=self._caller.heard,
            rejected_by=rejected_by,
            error=error,
        )

    def _misnamed(self, address: str) -> bool:
        """A loopback address that stands behind a name; asked for literally, it means one machine on purpose."""
        name = self._hello.master_addr
        return is_loopback(address) and name != "localhost" and name.strip("[]") != address

    async def _try(self, address: str) -> Link | None:
        try:
            reader, writer = await within(CONNECT_S, _connect(address, self._port))
        except TimeoutError:
            # The kernel gives up on a neighbour that does not answer ARP only after 3 s; its table says so earlier.
            device = unanswered_arp(address)
            if device is not None:
                detail = said("no answer to ARP on {device} (EHOSTUNREACH)", device=device)
                self._set("no_route", detail=detail, address=address, error="EHOSTUNREACH")
                return None
            await self._call(address, "silent", timeout_s=0.6)
            self._set(
                "loopback" if self._misnamed(address) else "silent",
                detail=said("no answer to a TCP connection within {seconds} s", seconds=CONNECT_S),
                address=address,
            )
            return None
        except OSError as error:
            # Nothing listens on our own loopback because node 0 is another machine: the name is at fault, not the port.
            outcome = "loopback" if self._misnamed(address) else _outcome_of(error, address)
            by = error.sender if isinstance(error, _Rejected) and outcome == "refused" else None
            name = errno.errorcode.get(error.errno or 0)
            self._set(outcome, detail=_words(error), address=address, rejected_by=by, error=name)
            if outcome == "refused" and self.waited_s > SEARCH_NEARBY_AFTER_S:
                await self._call(address, "refused", timeout_s=0.3)  # a filter that rejects refuses like a closed port
                await self._search_nearby(address)
            return None
        try:
            return await self._greet(address, reader, writer)
        except (ExchangeError, OSError, TimeoutError) as error:
            writer.close()
            self._num_broken += 1
            await self._identify(address, error)
            return None
        except BaseException:
            writer.close()
            raise

    async def _call(self, address: str, contact: str, *, timeout_s: float) -> None:
        """Tell node 0 by datagram that we are here, and hear whether it answers."""
        call = datagram.UdpCall(
            job_id=self._hello.job_id,
            node_rank=self._hello.node_rank,
            num_nodes=self._hello.num_nodes,
            name=self._hello.name,
            contact=contact,
            hears_us=self._caller.heard,
        )
        heard = await self._caller.call(address, self._port, call, timeout_s=timeout_s)
        self.facts = replace(self.facts, heard_by_datagram=heard)

    async def _search_nearby(self, address: str) -> None:
        """Once: whether our own job's node 0 answers on another of the usual ports, which tells a wrong port from a
        node 0 that was not started."""
        if self._nearby is None:
            ports = [*range(max(1, self._port - NEARBY), min(65535, self._port + NEARBY) + 1), *USUAL_PORTS]
            found = await asyncio.gather(*(self._is_ours(address, p) for p in dict.fromkeys(ports) if p != self._port))
            self._nearby = tuple((port, "allready") for port in found if port is not None)
        self.facts = replace(self.facts, nearby=self._nearby)

    async def _is_ours(self, address: str, port: int) -> int | None:
        try:
            async with asyncio.timeout(NEARBY_S):
                reader, writer = await _connect(address, port)
                try:
                    if await reader.readexactly(len(GREETING)) != GREETING:
                        return None
                    _, here = await read_frame(reader, limit_bytes=MAX_HELLO_BYTES)
                finally:
                    writer.close()
        except (OSError, TimeoutError, EOFError, ExchangeError):
            return None
        return port if isinstance(here, dict) and here.get("job_id") == self._hello.job_id else None

    async def _greet(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Link | None:
        greeted = await within(ANSWER_S, self._exchange_greetings(address, reader, writer))
        if greeted is None:
            writer.close()
            return None
        here, seal = greeted
        kind, body = await within(HELLO_ANSWER_S, _answer(reader, seal))
        if kind == "refused":
            writer.close()
            self._set_refused(_refusal_of(body), here, address)
            return None
        if kind != "joined":
            raise ExchangeError(f"node 0 answered {kind[:20]!r}")
        self._set("joined", address=address)
        return Link(_rank_given(body, self._hello.node_rank), reader, writer, seal=seal)

    async def _exchange_greetings(
        self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[dict[str, Any], Seal | None] | None:
        """What node 0 says of itself, and the seal where there is a token; None where it is none of ours."""
        # With a token nothing is sent before node 0 has greeted: it belongs to node 0's nonce.
        hello = replace(self._hello, waited_s=self.waited_s)
        writer.write(GREETING + (encode("hello", hello) if self._token is None else b""))
        await writer.drain()
        answer = await reader.read(len(GREETING))
        while answer and len(answer) < len(GREETING) and GREETING.startswith(answer):
            answer += await reader.read(len(GREETING) - len(answer))
        if answer != GREETING:
            if answer:
                answer += await reader.read(200)
                self._set_service(address, classify_bytes(answer))
                return None
            raise ExchangeError("closed without an answer")
        _, here = await read_frame(reader, limit_bytes=MAX_HELLO_BYTES)
        here = here if isinstance(here, dict) else {}
        if self._token is None:
            return here, None
        if not is_nonce(here.get("nonce")):
            writer.write(encode("hello", {**msgspec.to_builtins(hello), WANTS_TOKEN: True}))
            await writer.drain()
            self._give_up_without_token(here, address)
            return None
        proven, seal = self._with_proof(self._token, hello, here["nonce"])
        writer.write(encode("hello", proven))
        await writer.drain()
        return here, seal

    @staticmethod
    def _with_proof(token: Token, hello: NodeHello, theirs: str) -> tuple[dict[str, Any], Seal]:
        nonce, said = new_nonce(), to_json(hello)
        proof = token.proof(HELLO, theirs.encode(), nonce.encode(), said).hex()
        body = {**msgspec.json.decode(said), "nonce": nonce, "proof": proof}
        return body, token.seal((theirs, nonce), is_node_0=False)

    def _give_up_without_token(self, here: dict[str, Any], address: str) -> None:
        """Node 0 does not ask for the token that this node has."""
        is_other_job = here.get("job_id") != self._hello.job_id
        none = RollCall(num_nodes=self._hello.num_nodes, claims=(), partial=True)
        reason = "job_id_differs" if is_other_job else TokenGap.NOT_ASKED
        self._set_refused(Refusal(reason=reason, roll=none), here, address)

    def _set_refused(self, refusal: Refusal, here: dict[str, Any], address: str) -> None:
        self.refusal = refusal
        detail: str | Phrase = refusal.reason
        if refusal.reason == "job_id_differs" or refusal.holder is not None:
            detail = said("{why}: node 0 has job id {job}", why=refusal.reason, job=repr(here.get("job_id")))
        outcome = "rejected" if detail == refusal.reason else "other_job"
        self._set(outcome, detail=detail, address=address)
        self.facts = replace(self.facts, holder=refusal.holder)

    async def _identify(self, address: str, error: BaseException) -> None:
        try:
            service = await identify(address, self._port, timeout_s=IDENTIFY_S)
        except (OSError, TimeoutError):
            self._set(
                "refused",
                detail=said("the connection was accepted, then it broke: {error}", error=error),
                address=address,
            )
            return
        self._set_service(address, service)

    def _set_service(self, address: str, service: Service) -> None:
        # Another allready that accepts and then closes is one that is just ending: like refused, it may come back.
        outcome = {"torch-store": "stale_store", "allready": "refused"}.get(service.kind, "wrong_service")
        self._set(outcome, detail=service.banner or service.kind, address=address, service=service.kind)


async def _connect(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect with small segments (see wire.keep_segments_small)."""
    [(family, kind, protocol, _, where), *_] = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        keep_segments_small(sock)
        want_errors(sock, True)
        try:
            await asyncio.get_running_loop().sock_connect(sock, where)
        except OSError as error:
            raise _as_rejected(sock, address, error) from error
        want_errors(sock, False)
        return await open_stream(sock)
    except BaseException:
        sock.close()
        raise


def _as_rejected(sock: socket.socket, address: str, error: OSError) -> OSError:
    icmp = icmp_error(sock)
    if icmp is None:
        return error
    kind, code, sender = icmp
    if (kind, code) not in _ICMP_OF_FILTERS and ((kind, code) not in _ICMP_OF_ROUTERS or sender != address):
        return error
    rejected = _Rejected(error.errno, error.strerror)
    rejected.sender = sender
    return rejected


def _rank_given(body: object, asked: int) -> int:
    """The node rank that node 0 says is ours."""
    given = body.get("node_rank") if isinstance(body, dict) else None
    if isinstance(given, int) and 0 <= given < MAX_NODES:
        return given
    if asked == ANY_RANK:
        raise ExchangeError("node 0 gave no node rank")
    return asked


async def _answer(reader: asyncio.StreamReader, seal: Seal | None) -> tuple[str, object]:
    """The hub's word: at once when we may join or belong to another job, within seconds in a clash (see Hub)."""
    while True:
        payload, flags = await read_payload(reader, limit_bytes=MAX_ANSWER_BYTES)
        if seal is not None and not is_sealed(flags):
            return _unproven(payload, flags)
        payload, flags = unsealed(payload, flags, seal)
        kind, body = decode(payload, flags, limit_bytes=MAX_ANSWER_BYTES)
        if kind != "beat":
            return kind, plain(body)


def _unproven(payload: bytes, flags: int) -> tuple[str, object]:
    """The answer of a node 0 that does not take our proof: its reason counts, and nothing else that it says.

    Raises:
        ExchangeError: anything but a refusal.
    """
    kind, body = decode(payload, flags, limit_bytes=MAX_ANSWER_BYTES)
    refusal = _refusal_of(plain(body)) if kind == "refused" else None
    if refusal is None or refusal.reason not in {TokenGap.MISSING, TokenGap.DIFFERS, "job_id_differs"}:
        raise ExchangeError("an answer without the seal of the shared token")
    return kind, Refusal(reason=refusal.reason, roll=RollCall(num_nodes=1, claims=(), partial=True))


def _refusal_of(body: object) -> Refusal:
    try:
        return body if isinstance(body, Refusal) else msgspec.convert(body, Refusal, str_keys=True)
    except msgspec.ValidationError as error:
        raise ExchangeError(f"not a refusal of ours: {error}") from error


def _outcome_of(error: OSError, address: str) -> str:
    if isinstance(error, _Rejected):
        return "refused"
    if error.errno in _NO_FAMILY or (error.errno == errno.ENETUNREACH and not _has_family_of(address)):
        return "family_mismatch"
    if error.errno in _NO_ROUTE:
        return "no_route"
    if error.errno == errno.ETIMEDOUT:
        return "silent"
    return "refused"


def _words(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, "")
    if isinstance(error, _Rejected):
        name += f", ICMP from {error.sender}"
    return f"{os.strerror(error.errno)} ({name})" if error.errno else str(error)


def _has_family_of(address: str) -> bool:
    """Whether this machine has any address of the same family beyond loopback and link-local."""
    import psutil  # only here, where something is wrong already: every node starts faster without it

    wanted = parse(address)
    own = [parse(entry.address) for entries in psutil.net_if_addrs().values() for entry in entries]
    return wanted is not None and any(
        one is not None and one.version == wanted.version and not one.is_loopback and not one.is_link_local
        for one in own
    )


_INFORMATIVE = ("not_tried", "unresolved", "family_mismatch", "no_route", "silent", "loopback", "refused",
                "wrong_service", "stale_store", "other_job", "rejected", "joined")  # fmt: skip


def _informative(facts: MasterContactFacts) -> int:
    """Of several addresses, the one that got furthest says most."""
    return _INFORMATIVE.index(facts.outcome) if facts.outcome in _INFORMATIVE else 0
