"""Node 0's port: opening it, and who holds it when that fails."""

import asyncio
import errno
import os
from collections.abc import Callable

from msgspec.structs import replace

from allready.errors import FactUnavailable
from allready.facts.ports import port_holder
from allready.messaging.contact import Contact
from allready.messaging.hub import Hub
from allready.messaging.identify import Service, identify
from allready.model import MasterPortFacts, RollCall
from allready.preflight.check.context import CheckContext
from allready.preflight.check.waits import in_daemon_thread

GIVE_UP_PORT_S = 5.0
RETRY_S = 0.5
_CLASHES = frozenset({"duplicate_rank", "num_nodes_differs"})


class MasterPort:
    """`facts`: what is known of the port.  `rival`: the roll of another node 0 of this job that holds it."""

    def __init__(self, context: CheckContext, hub: Hub) -> None:
        self._context = context
        self._hub = hub
        self._port = context.launch.master_port
        self.facts = MasterPortFacts(port=self._port, opened=True)
        self.rival: RollCall | None = None
        self._is_running = False  # the job of the allready that holds the port has begun

    async def open(self, *, on_taken: Callable[[float], None]) -> bool:
        """Open it, also when its holder ends within a few seconds; False when it stays taken.

        `on_taken`: called after every try that failed, with the seconds since the first.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            try:
                await self._hub.open(self._port, loopback_only=self._context.launch.num_nodes == 1)
            except OSError as error:
                is_in_use = error.errno == errno.EADDRINUSE  # anything else, like a missing permission, will not pass
                self.facts = await self._facts_of(error)
            else:
                self.facts = MasterPortFacts(port=self._port, opened=True)
                return True
            if self.facts.service == "allready":
                self.rival = await self._ask_holder()
            waited_s = loop.time() - began
            patience_s = min(GIVE_UP_PORT_S, self._context.request.wait_s)
            if self.rival is not None or self._is_running or not is_in_use or waited_s > patience_s:
                return False
            holder = self.facts.holder.pid if self.facts.holder else "?"
            self._context.narrator.say("check.port_taken", port=self._port, pid=holder)
            on_taken(waited_s)
            await asyncio.sleep(RETRY_S)

    async def _ask_holder(self) -> RollCall | None:
        """The roll of the allready that holds our port, if it is this job: then one node 0 is too many."""

        async def here(_name: str) -> tuple[str, ...]:
            return ("127.0.0.1",)

        contact = Contact(self._context.hello, self._port, here, token=self._context.token)
        try:
            link = await contact.attempt()
            if link is not None:
                await link.close("node 0 does not join node 0")
        finally:
            contact.close()
        refusal = contact.refusal
        self._is_running = refusal is not None and refusal.holder is not None
        known = self.facts.holder
        if refusal is not None and (known is None or known.pid is None):  # its process may not be seen from here
            self.facts = replace(self.facts, holder=refusal.holder)
        return refusal.roll if refusal is not None and refusal.reason in _CLASHES else None

    async def _facts_of(self, error: OSError) -> MasterPortFacts:
        holder = await in_daemon_thread(
            lambda: port_holder(self._context.host, self._port), timeout_s=5.0, what="port holder"
        )
        known = self.facts
        if known.service and holder is not None and holder == known.holder:
            service = Service(kind=known.service, banner=known.banner or "")  # asked already
        elif error.errno == errno.EADDRINUSE:
            service = await self._identify()
        else:
            service = Service(kind="unknown")
        return MasterPortFacts(
            port=self._port,
            opened=False,
            error=f"{os.strerror(error.errno or 0)} ({errno.errorcode.get(error.errno or 0, '?')})",
            service=service.kind,
            banner=service.banner or None,
            holder=holder,
        )

    async def _identify(self) -> Service:
        try:
            candidates = ("127.0.0.1", *await self._context.resolve(self._context.launch.master_addr))
        except FactUnavailable:  # the rules about names report it
            candidates = ("127.0.0.1",)
        for address in candidates:
            try:
                return await identify(address, self._port, timeout_s=0.7)
            except (OSError, TimeoutError):
                continue
        return Service(kind="unknown")
