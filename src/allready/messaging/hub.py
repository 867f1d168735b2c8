"""Node 0's side of the store: accepts the nodes, keeps the roll, passes messages."""

import asyncio
import contextlib
import logging
import resource
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from allready.errors import ExchangeError
from allready.messaging import datagram
from allready.messaging.channel import LOST, ConnectionLostError, convert, loss_of, take
from allready.messaging.inbox import Inbox
from allready.messaging.silence import LATE_FACTOR, RunTime, receive, within
from allready.messaging.sockets import BACKLOG, Delivery, TcpState, listening_socket, writer_state
from allready.messaging.token import HELLO, WANTS_TOKEN, Seal, Token, is_nonce, new_nonce
from allready.messaging.wire import (
    ANY_RANK,
    GREETING,
    MAX_HELLO_BYTES,
    PROTOCOL,
    NodeHello,
    check_sound,
    decode,
    encode,
    plain,
    read_frame,
    read_payload,
    sealed,
    to_json,
)
from allready.model import GAVE_UP, Caller, Claim, Loss, LossReason, PortHolder, RollCall, TokenGap
from allready.model.addresses import plain_address
from allready.model.fill import said, texts

log = logging.getLogger(__name__)

HEARTBEAT_S = 2.0  # a sign of life is sent this often
SILENCE_S = 10.0  # a peer without one for this long is lost (a stopped process, a vanished machine)
GIVEN_UP_S = 2 * LATE_FACTOR * SILENCE_S
"""Behind a pause of our own, in which the other end may have given us up: by then its silence or end is noticed."""
_GIVES_UP = {LossReason.PEER_CLOSED, LossReason.BROKEN}
"""So the connection of a node ends that has given node 0 up; one that is silent has not closed it."""
RETURN_S = 4.0  # a node whose connection broke tries again within this, if it is still alive; counted while we serve
_GREETING_S = 5.0  # a client that says nothing for this long is a stranger
_SEND_S = 10.0
_READ_BYTES = 65536
_MAX_CALLERS = 32
_ACCEPT_AT_ONCE = 64  # asyncio takes so many before any of them is served, and before the limit below can be raised
_MAX_CLAIMS_KEPT_REFUSED = 64


class _Peer(Struct):
    """A connection with a node rank.

    `is_answering`: at our last heartbeat, its kernel had acknowledged the one before.
    `is_member`: it said something after our answer.  Before, it may have given us up: on a machine with more work
    than processors we serve connections that a node closed long ago, and it is about to try again.
    """

    claim: Claim
    instance: str
    writer: asyncio.StreamWriter
    seal: Seal | None = None
    is_member: bool = False
    is_answering: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    delivery: Delivery = field(default_factory=Delivery)


class Hub:
    """Implements `HubSide`.  `open` once, `close` always; every task and socket ends with `close`."""

    def __init__(
        self, me: NodeHello, *, wait_limit_s: float, gives_ranks: bool = False, token: Token | None = None
    ) -> None:
        """`gives_ranks`: nodes may leave their rank to this one.  `token`: no node is admitted without it."""
        self._me = me
        self._token = token
        self._gives_ranks = gives_ranks
        self._wait_limit_s = wait_limit_s
        self._started = time.monotonic()
        self._peers: dict[int, _Peer] = {}
        self._refused: list[_Peer] = []
        self._silent: dict[int, _Peer] = {}
        """Lost by silence, their connections still open: who wakes learns by them how all ended."""
        self._claims: list[Claim] = [self._claim_of(me, "")]
        self._callers: dict[tuple[str, str, int | None], Caller] = {}
        self._lost: dict[int, Loss] = {}
        self._served = RunTime(long_s=SILENCE_S)
        self._sign_of_lost_s = float("-inf")
        self._inbox: Inbox[int] = Inbox()
        self._local: LocalNode | None = None
        self._servers: list[asyncio.Server] = []
        self._udp: asyncio.DatagramTransport | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.changed = asyncio.Event()  # set whenever the roll changes; the waiter clears it
        self.clash_since: float | None = None  # monotonic time of the first claim that cannot be reconciled
        self._closed_by: PortHolder | None = None

    # The port

    async def open(self, port: int, *, loopback_only: bool = False) -> None:
        """Listen on `port`, TCP on all addresses (as torch's store does) and UDP for calls.

        Raises:
            OSError: EADDRINUSE when another process holds the port, EACCES below 1024.
        """
        # start_server keeps a reference to the handler's tasks; closing the writers in close() ends them.
        sock = listening_socket(port, loopback_only=loopback_only)
        self._servers.append(await asyncio.start_server(self._serve, sock=sock, backlog=_ACCEPT_AT_ONCE))
        sock.listen(BACKLOG)
        self._started = time.monotonic()
        if not loopback_only:
            self._udp = await datagram.listen(port, self._me.job_id, self._on_call, token=self._token)
        self._spawn(self._served.run())
        self._spawn(self._send_heartbeats())

    async def close(self) -> None:
        """Close the port and every connection, and wait for the tasks to end (2 s at most)."""
        for server in self._servers:
            server.close()
        if self._udp is not None:
            self._udp.close()
        for peer in (*self._peers.values(), *self._refused, *self._silent.values()):
            peer.writer.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2.0)
        self._peers.clear()
        self._servers.clear()

    # The roll

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def expects_return(self) -> bool:
        """Whether a node was lost only now, or greeted us since from its address: it may be back at once, as when we
        were too busy to answer at first."""
        return bool(self._lost) and self._served.now_s - self._sign_of_lost_s < RETURN_S

    def roll(self, *, finished: bool) -> RollCall:
        return RollCall(
            num_nodes=self._me.num_nodes,
            claims=tuple(self._claims),
            callers=tuple(self._callers.values()),
            waited_s=round(self.elapsed_s, 3),
            wait_limit_s=self._wait_limit_s,
            finished=finished,
            lost=tuple(sorted(self._lost)),
            lost_why=tuple(str(loss) for _, loss in sorted(self._lost.items())),
            lost_silently=tuple(sorted(n for n, loss in self._lost.items() if loss.is_silent)),
            losses=tuple(loss for _, loss in sorted(self._lost.items())),
            resent={n: (p.delivery.num_sent, p.delivery.num_resent) for n, p in sorted(self._peers.items())},
        )

    def note_half_open(self, addresses: Sequence[str]) -> None:
        """Record remote addresses whose SYN arrived and whose handshake does not complete."""
        for address in addresses:
            self._note(
                Caller(
                    kind="half_open", address=address, **texts(detail=said("SYN received, our answer not acknowledged"))
                )
            )

    def note_rival(self, roll: RollCall, address: str = "") -> None:
        """Record that another node 0 refused us at the master's `address`: its claim clashes with ours.

        It does not know by which address it is seen.
        """
        for claim in roll.claims:
            if claim.node_rank == 0 and claim.refused is None and claim.pid != self._me.pid:
                self._claims.append(replace(claim, refused="duplicate_rank", address=claim.address or address))
        if self.clash_since is None:
            self.clash_since = time.monotonic()
        self.changed.set()

    def close_roll(self, holder: PortHolder) -> None:
        """The roll call is over: who cannot be let in from now on is refused at once."""
        self._closed_by = holder

    async def refuse_all(self, roll: RollCall) -> None:
        """Tell every refused node why, with the roll to judge by; then close their connections."""
        refused, self._refused = self._refused, []
        for peer in refused:
            await self._refuse_one(peer, roll)

    # HubSide

    @property
    def nodes(self) -> tuple[int, ...]:
        here = [rank for rank, peer in self._peers.items() if peer.is_member]
        if self._local is not None:
            here.append(0)
        return tuple(sorted(here))

    @property
    def answering(self) -> frozenset[int]:
        """Connected nodes whose kernel acknowledges our heartbeats, also where their agent is silent."""
        return frozenset(rank for rank, peer in self._peers.items() if peer.is_answering)

    def local_node(self) -> "LocalNode":
        """Node 0's own `NodeSide`, without a socket."""
        if self._local is None:
            self._local = LocalNode(self._inbox)
        return self._local

    async def send(self, node_rank: int | None, kind: str, body: Any) -> None:
        targets = self.nodes if node_rank is None else (node_rank,)
        frame = encode(kind, body)
        if 0 in targets and self._local is not None:
            self._local.deliver(kind, body)
        peers = [self._peers[r] for r in targets if r in self._peers]
        await asyncio.gather(*(self._send_frame(peer, frame) for peer in peers))

    async def send_last(self, kind: str, body: Any) -> None:
        """Send to all nodes how all ended, also to those that fell silent: a process that was stopped may go on.

        Nothing waits for these, which may never read it.
        """
        frame = encode(kind, body)
        for peer in self._silent.values():
            if not peer.writer.is_closing():
                peer.writer.write(sealed(frame, peer.seal))
        await self.send(None, kind, body)

    async def receive(self, *, timeout_s: float) -> tuple[int, str, Any]:
        return await self._inbox.take(timeout_s)

    # Inside

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _claim_of(self, hello: NodeHello, address: str, refused: str | None = None) -> Claim:
        return Claim(
            node_rank=hello.node_rank,
            name=hello.name[:255],
            address=address,
            pid=hello.pid,
            num_nodes=hello.num_nodes,
            nproc_per_node=hello.nproc_per_node,
            job_id=hello.job_id[:255],
            arrival_s=round(time.monotonic() - self._started, 3),
            waited_s=round(hello.waited_s, 3),
            master_addr=hello.master_addr[:255],
            refused=refused,
        )

    def _note(self, caller: Caller) -> None:
        key = (caller.kind, caller.address, caller.node_rank)
        if self._callers.get(key) != caller and (key in self._callers or len(self._callers) < _MAX_CALLERS):
            self._callers[key] = caller
            self.changed.set()

    def _on_call(self, call: datagram.UdpCall, address: str) -> None:
        if (call.job_id, call.num_nodes) != (self._me.job_id, self._me.num_nodes):
            return
        if 0 < call.node_rank < call.num_nodes and call.node_rank not in self._peers:
            self._note(
                Caller(
                    kind="datagram",
                    address=plain_address(address),
                    node_rank=call.node_rank,
                    name=call.name[:255],
                    detail=call.contact[:200],
                    tcp=call.contact[:20],
                    hears_us=call.hears_us,
                )
            )

    def _why_refused(self, hello: NodeHello) -> str | None:
        if hello.protocol != PROTOCOL:
            return "version"
        if hello.job_id != self._me.job_id:
            return "job_id_differs"
        if hello.num_nodes != self._me.num_nodes:
            return "num_nodes_differs"
        if hello.node_rank == self._me.node_rank or hello.node_rank in self._peers:
            return "duplicate_rank"
        return None if 0 < hello.node_rank < hello.num_nodes else "num_nodes_differs"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        _have_room_for_connections(len(self._tasks))
        address = plain_address(str((writer.get_extra_info("peername") or ("?",))[0]))
        peer: _Peer | None = None
        try:
            greeted = await self._greet(reader, writer, address)
            if greeted is None or greeted[0].instance == self._me.instance:  # ourselves, by a service address
                return
            hello, seal = greeted
            if hello.node_rank == ANY_RANK:
                hello = replace(hello, node_rank=self._free_rank(hello))
            self._supersede(hello)
            refused = self._why_refused(hello)
            claim = self._claim_of(hello, address, refused)
            peer = _Peer(claim, hello.instance, writer, seal)
            if refused is not None:
                await self._refuse(peer, reader)
                return
            self._peers[claim.node_rank] = peer
            await self._send_frame(peer, encode("joined", {"node_rank": claim.node_rank}))
            await self._read(peer, reader)
        except ExchangeError as error:
            loss = loss_of(error)
            if peer is not None and peer.claim.refused is None and self._lose(peer, loss) and loss.is_silent:
                self._silent[peer.claim.node_rank] = peer
                self._spawn(self._hold(peer, reader))
        except OSError as error:
            if peer is not None and peer.claim.refused is None:
                self._lose(peer, Loss(reason=LossReason.BROKEN, text=str(error)))
        except asyncio.CancelledError:
            # Only `close` cancels.  The task ends well, because asyncio's own callback of it would log a traceback.
            log.debug("connection of %s ended by close", address)
        finally:
            if peer is None or self._silent.get(peer.claim.node_rank) is not peer:
                writer.close()

    async def _hold(self, peer: _Peer, reader: asyncio.StreamReader) -> None:
        """Keep a lost node's connection open until it leaves, comes back, or all is over; what it says is too late."""
        try:
            while await reader.read(_READ_BYTES):
                pass
        except OSError as error:
            log.debug("node %s, which was silent: %s", peer.claim.node_rank, error)
        finally:
            self._let_go(peer)

    def _let_go(self, peer: _Peer) -> None:
        if self._silent.get(peer.claim.node_rank) is peer:
            del self._silent[peer.claim.node_rank]
        peer.writer.close()

    def _admit(self, peer: _Peer) -> None:
        """From now on it belongs to the roll, and its loss is one."""
        claim, peer.is_member = peer.claim, True
        if claim.node_rank in self._silent:
            self._let_go(self._silent[claim.node_rank])
        self._claims = [c for c in self._claims if c.refused or c.node_rank != claim.node_rank] + [claim]
        self._lost.pop(claim.node_rank, None)
        for key in [k for k in self._callers if k[2] == claim.node_rank or k[:2] == ("half_open", claim.address)]:
            del self._callers[key]
        self.changed.set()

    def _free_rank(self, hello: NodeHello) -> int:
        """The rank of a node that leaves it to us: the one it had, else the lowest that is free.

        When all are taken the number is one too high, which is refused like any such claim.
        """
        for rank, peer in self._peers.items():
            if peer.instance == hello.instance:
                return rank
        for rank in sorted(self._lost):  # a node that was here before comes back to its place
            before = next((c for c in reversed(self._claims) if c.node_rank == rank and c.refused is None), None)
            if before is not None and before.name == hello.name[:255]:
                return rank
        taken = {self._me.node_rank, *self._peers}
        return next((r for r in range(hello.num_nodes) if r not in taken), hello.num_nodes)

    def _supersede(self, hello: NodeHello) -> None:
        """Forget an earlier connection of the same process: a try that it gave up while we were too busy to answer."""
        known = self._peers.get(hello.node_rank)
        if known is not None and known.instance == hello.instance:
            del self._peers[hello.node_rank]
            self._claims = [c for c in self._claims if c is not known.claim]
            known.writer.close()

    def _note_sign_of_lost(self, address: str) -> None:
        """A node of ours greeted us from there: one that was lost may live, and ask who is here."""
        if any(c.address == address and c.node_rank in self._lost for c in self._claims):
            self._sign_of_lost_s = self._served.now_s

    async def _greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
    ) -> tuple[NodeHello, Seal | None] | None:
        """A node's hello, and the seal of its connection if there is a shared token; None: no peer."""
        here = {"job_id": self._me.job_id, "num_nodes": self._me.num_nodes, "name": self._me.name, "pid": self._me.pid}
        if self._token is not None:
            here["nonce"] = new_nonce()
        writer.write(GREETING + encode("here", here))
        try:
            heard = await within(_GREETING_S, self._hear(reader, writer, address))
        except TimeoutError:
            words = said("sent nothing for {seconds} s", seconds=f"{_GREETING_S:.0f}")
            self._note(Caller(kind="stranger", address=address, **texts(detail=words)))
            return None
        except ExchangeError:
            return None  # a node of ours that only asked who is here (identify)
        if heard is None:
            return None
        kind, body = heard
        if kind != "hello":
            words = said("greeted, then sent {kind}", kind=repr(kind[:16]))
            self._note(Caller(kind="stranger", address=address, **texts(detail=words)))
            return None
        try:
            hello = msgspec.convert(body, NodeHello)
            check_sound(hello, may_leave_rank=self._gives_ranks)
        except (msgspec.ValidationError, ExchangeError) as error:
            self._note(Caller(kind="stranger", address=address, detail=f"not a hello of ours: {error}"[:200]))
            return None
        if self._token is None:
            if not body.get(WANTS_TOKEN):
                return hello, None
            self._note_without_token(hello, address, TokenGap.NOT_ASKED)
            return None
        seal = self._seal_of(self._token, hello, str(here["nonce"]), body)
        if seal is None:
            await self._reject(hello, address, writer, has_token="proof" in body)
            return None
        return hello, seal

    async def _hear(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
    ) -> tuple[str, Any] | None:
        """The first message after a node's greeting; None from one who does not greet like a node."""
        await writer.drain()
        greeting = b""
        while len(greeting) < len(GREETING) and GREETING.startswith(greeting):
            more = await reader.read(len(GREETING) - len(greeting))
            if not more:
                break
            greeting += more
        if greeting != GREETING:
            words = (
                said("sent {bytes}", bytes=repr(greeting[:16])) if greeting else said("closed without sending anything")
            )
            self._note(Caller(kind="stranger", address=address, **texts(detail=words)))
            return None
        self._note_sign_of_lost(address)
        return await read_frame(reader, limit_bytes=MAX_HELLO_BYTES)

    @staticmethod
    def _seal_of(token: Token, hello: NodeHello, nonce: str, body: dict[str, Any]) -> Seal | None:
        """Of a connection whose node has proven that it has the token."""
        theirs = body.get("nonce")
        if not is_nonce(theirs):
            return None
        if not token.is_proof(body.get("proof"), HELLO, nonce.encode(), str(theirs).encode(), to_json(hello)):
            return None
        return token.seal((nonce, str(theirs)), is_node_0=True)

    def _note_without_token(self, hello: NodeHello, address: str, reason: str) -> None:
        node_rank = None if hello.node_rank == ANY_RANK else hello.node_rank
        self._note(Caller(kind=reason, address=address, node_rank=node_rank, name=hello.name[:255], detail=reason))

    async def _reject(self, hello: NodeHello, address: str, writer: asyncio.StreamWriter, *, has_token: bool) -> None:
        """Tell a node without the token why it stays outside.  What it says of itself is no claim: it is not proven."""
        reason: str = TokenGap.DIFFERS if has_token else TokenGap.MISSING
        if hello.job_id == self._me.job_id:
            self._note_without_token(hello, address, reason)
        else:
            reason = "job_id_differs"
        none = RollCall(num_nodes=self._me.num_nodes, claims=(), partial=True)
        peer = _Peer(self._claim_of(hello, address, reason), hello.instance, writer)
        await self._send_refusal(peer, reason, none)

    async def _refuse(self, peer: _Peer, reader: asyncio.StreamReader) -> None:
        """Keep the claim; a node of another job gets its refusal at once, one of ours once the roll is judged."""
        if self._closed_by is not None:
            none = RollCall(num_nodes=self._me.num_nodes, claims=(), partial=True)
            await self._send_refusal(peer, "job_running", none, holder=self._closed_by)
            return
        if sum(c.refused is not None for c in self._claims) < _MAX_CLAIMS_KEPT_REFUSED:
            self._claims.append(peer.claim)
        if peer.claim.refused == "job_id_differs":
            await self._refuse_one(peer, self.roll(finished=False))
            self.changed.set()
            return
        self._refused.append(peer)
        if self.clash_since is None:
            self.clash_since = time.monotonic()
        self.changed.set()
        try:
            async with asyncio.timeout(SILENCE_S):
                while True:  # until refuse_all closes the connection, or the node leaves
                    await read_frame(reader, limit_bytes=MAX_HELLO_BYTES, seal=peer.seal)
        except (TimeoutError, ExchangeError):
            self._refused = [p for p in self._refused if p is not peer]

    async def _refuse_one(self, peer: _Peer, roll: RollCall) -> None:
        # What the refused node needs to judge by itself: node 0's words, its own, and those it clashes with.
        concerned = tuple(
            c
            for c in roll.claims
            if c.node_rank in {0, peer.claim.node_rank} or c.refused is not None or roll.num_nodes <= 64
        )[:128]
        # By another job's roll no node of the refused node's job is absent.
        partial = len(concerned) < len(roll.claims) or peer.claim.refused == "job_id_differs"
        await self._send_refusal(peer, peer.claim.refused or "", replace(roll, claims=concerned, partial=partial))

    async def _send_refusal(
        self, peer: _Peer, reason: str, roll: RollCall, *, holder: PortHolder | None = None
    ) -> None:
        await self._send_frame(peer, encode("refused", {"reason": reason, "roll": roll, "holder": holder}))
        peer.writer.close()

    async def _read(self, peer: _Peer, reader: asyncio.StreamReader) -> None:
        rank = peer.claim.node_rank
        while True:
            try:
                word = read_payload(reader, seal=peer.seal)
                payload, flags = await receive(
                    word, SILENCE_S, is_answering=lambda: writer_state(peer.writer).is_answering
                )
            except TimeoutError:
                if not peer.is_member:  # it did not give us up: it stopped, or its machine is gone
                    self._admit(peer)
                raise ConnectionLostError(loss_by_silence(writer_state(peer.writer))) from None
            if not peer.is_member:
                self._admit(peer)
            await self._inbox.room(rank)
            kind, body = decode(payload, flags)
            if kind == "clock":
                await self._send_frame(peer, encode("clock", [convert(plain(body), int), time.time()]))
            elif kind == "leaving":
                raise ConnectionLostError(Loss(reason=LossReason.LEFT, text=str(plain(body))[:200]))
            elif kind not in {"beat", LOST}:  # that the connection is lost is not for the other side to say
                self._inbox.put(rank, kind, body)

    def _lose(self, peer: _Peer, loss: Loss) -> bool:
        """Whether it was a node of the roll, which has now lost it."""
        rank = peer.claim.node_rank
        if self._peers.get(rank) is peer:
            peer.delivery.note(writer_state(peer.writer))
            pause_s = self._served.lately_paused_s(GIVEN_UP_S) if loss.reason in _GIVES_UP else None
            loss = replace(loss, num_sent=peer.delivery.num_sent, num_resent=peer.delivery.num_resent, pause_s=pause_s)
            del self._peers[rank]
            if not peer.is_member:
                self._note_given_up(peer.claim, loss)
                return False
            self._lost[rank] = loss
            self._sign_of_lost_s = self._served.now_s
            self._inbox.put(rank, LOST, loss)
            self.changed.set()
            return True
        return False

    def _note_given_up(self, claim: Claim, loss: Loss) -> None:
        words = said("its connection ended before it had node 0's answer: {loss}", loss=loss.phrase)
        self._note(
            Caller(
                kind=GAVE_UP, address=claim.address, node_rank=claim.node_rank, name=claim.name, **texts(detail=words)
            )
        )

    async def _send_frame(self, peer: _Peer, frame: bytes) -> None:
        if peer.writer.is_closing():
            return
        try:
            async with peer.lock, asyncio.timeout(_SEND_S):
                peer.writer.write(sealed(frame, peer.seal))
                await peer.writer.drain()
        except (OSError, TimeoutError) as error:
            log.debug("sending to node %s failed: %s", peer.claim.node_rank, error)
            peer.writer.close()  # its reader ends, which reports the loss

    async def _send_heartbeats(self) -> None:
        frame = encode("beat", None)
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for peer in self._peers.values():
                state = writer_state(peer.writer)
                peer.delivery.note(state)
                peer.is_answering = state.is_answering
            await asyncio.gather(*(self._send_frame(p, frame) for p in (*self._peers.values(), *self._refused)))


class LocalNode:
    """Node 0's own `NodeSide`."""

    node_rank = 0

    def __init__(self, hub_inbox: Inbox[int]) -> None:
        self._hub_inbox = hub_inbox
        self._inbox: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    def deliver(self, kind: str, body: Any) -> None:
        """Called by the hub; the body takes the same way through JSON as every other."""
        self._inbox.put_nowait((kind, _plain(body)))

    async def send(self, kind: str, body: Any) -> None:
        self._hub_inbox.put(0, kind, _plain(body))

    async def receive(self, *, timeout_s: float) -> tuple[str, Any]:
        return await take(self._inbox, timeout_s)


def loss_by_silence(state: TcpState) -> Loss:
    """Of a connection that was not closed and on which nothing came."""
    if state.is_answering:
        return Loss(reason=LossReason.AGENT_SILENT, silent_s=SILENCE_S * LATE_FACTOR)
    return Loss(reason=LossReason.SILENT, silent_s=SILENCE_S)


def _plain(body: Any) -> Any:
    return msgspec.json.decode(to_json(body))


def _have_room_for_connections(num_open: int) -> None:
    """Raise the soft limit of open files when the connections come near it: 4,096 nodes need more than the usual 1,024.

    Not before: the limit is one of the facts that are compared.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and num_open + 128 > soft and soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
