"""The beacon's threads in a rank: one sends heartbeats, one fetches what takes longer.

Both are plain threads without the `threading` module: nothing that the script counts, traces or joins.  A fork takes
place while neither is there.  Whatever fails in them is caught, reported in the cell, and never reaches the script.
"""

import _signal  # type: ignore[import-not-found]  # `signal` builds enumerations for 4 ms
import _thread
import atexit
import os
import sys
import time

from allready.live.beacon import names
from allready.live.beacon.calls import BlockingCalls
from allready.live.beacon.cell import PAYLOAD_BYTES, BeaconCell
from allready.live.beacon.faults import FaultFiles, append, dump
from allready.live.beacon.group import GroupCounters
from allready.live.beacon.handlers import handled, raised_by
from allready.live.beacon.joining import joins_as, joins_at
from allready.live.beacon.payload import encode
from allready.live.beacon.phase import Frames, Sight
from allready.live.beacon.recorder import FlightRecorders
from allready.live.beacon.stacks import all_stacks, can_read_stacks
from allready.live.beacon.unsearched import Unsearched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

HEARTBEAT_S = 0.2
SAMPLE_SHARE = 0.001
"""Of the time, for sampling frames and the recorder's status; heartbeats go on."""
IDLE_SHARE = 0.2
"""Of one CPU, below which a thread counts as waiting."""
_MAX_SAMPLE_GAP_S = 2.0
KEY_S = 2.0
"""A call of the script's that has lasted for so long may wait for a key of a store, which is worth a look."""
_HURRY = 4.0
"""Times the share where an operation was pending at the last sample: whether it still is should be known soon."""
_FORK_WAIT_S = 0.05
_END_WAIT_S = 0.3
_LEAVE_S = 5.0
"""So long at most `os._exit`, with which scripts leave what hangs, is held up by the last report."""
_TASK_S = 0.0001


def start(rank_dir: str) -> "Beacon":
    """Come up in this process, before the script; called by the main thread."""
    beacon = Beacon(rank_dir, FaultFiles(rank_dir))
    beacon.begin()
    names.RANK_FOLDER[:] = [rank_dir]
    os.register_at_fork(before=beacon.halt, after_in_parent=beacon.resume, after_in_child=beacon.forget)
    atexit.register(beacon.end)  # the first one registered is the last one called
    os._exit = _reporting(os._exit, beacon)  # type: ignore[assignment]  # it calls nothing that is registered
    return beacon


def _reporting(leave: "Callable[[int], NoReturn]", beacon: "Beacon") -> "Callable[[int], NoReturn]":
    """`os._exit` that reports before it leaves with 0; with an error, and in forked children, it leaves at once."""

    def _exit(status: int) -> "NoReturn":
        try:
            if status == 0 and beacon.speaks:
                _try(beacon.leave, _LEAVE_S)
        finally:
            leave(status)  # a handler of signals may raise meanwhile

    _exit.__doc__, _exit.__module__, _exit.__qualname__ = leave.__doc__, "os", "_exit"  # pickled by name, as before
    return _exit


def _try(work: "Callable[[], None]", limit_s: float) -> None:
    """Do it in a thread, and wait for that so long at most: a call into a library may never come back."""
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            work()
        finally:
            done.release()

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # there is no room for one, or the interpreter ends
        work()
    else:
        done.acquire(timeout=limit_s)


def _until_next(every_s: float) -> float:
    """Seconds to the next multiple of the wall clock: what all ranks do in the same moments costs a job that waits for
    the slowest of them once, and not once per rank.  Below 0: for ever."""
    if every_s <= 0:
        return -1
    left_s = every_s - time.time() % every_s
    return left_s if left_s > every_s / 4 else left_s + every_s


class _Worker:
    """A thread that waits to be woken, for at most `every_s`; `halt` ends it."""

    def __init__(self) -> None:
        self._wake = _thread.allocate_lock()
        self._done = _thread.allocate_lock()
        self._is_halted = True
        self.task = ""

    def begin(self, work: "Callable[[], None]", every_s: float) -> None:
        """Start the thread, with the script's signals blocked: one that the script holds back waits for its threads.

        Raises:
            RuntimeError: there is no room for a thread.
        """
        wake, done = _thread.allocate_lock(), _thread.allocate_lock()
        wake.acquire()
        done.acquire()
        self._wake, self._done, self._is_halted = wake, done, False
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, names.NOT_OURS)
        try:
            _thread.start_new_thread(self._run, (work, every_s, wake, done))
        except RuntimeError:
            self._is_halted = True
            raise
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, before)

    @property
    def is_there(self) -> bool:
        return not self._is_halted

    def wake(self) -> None:
        """Work now."""
        try:
            self._wake.release()
        except RuntimeError:  # it has been reported already
            return

    def halt(self, wait_s: float) -> None:
        """End; waits at most `wait_s` for what is under way."""
        if self._is_halted:
            return
        self._is_halted = True
        self.wake()
        until = time.monotonic() + wait_s
        if self._done.acquire(timeout=wait_s):
            self._done.release()
        while os.path.exists(self.task) and time.monotonic() < until:  # noqa: PTH110
            time.sleep(_TASK_S)  # it has no work left, but the kernel, which is asked at a fork, still counts it

    def _run(
        self, work: "Callable[[], None]", every_s: float, wake: "_thread.LockType", done: "_thread.LockType"
    ) -> None:
        self.task = f"/proc/self/task/{_thread.get_native_id()}"
        try:
            while True:
                wake.acquire(timeout=_until_next(every_s))
                if self._is_halted or wake is not self._wake:
                    return
                work()
        finally:
            done.release()


class Beacon:
    """All of it.  `begin`, `halt`: the threads come and go, as often as the script forks."""

    def __init__(self, rank_dir: str, files: FaultFiles) -> None:
        """Make the cell and write its first payload; called by the main thread."""
        self._files = files
        self._stacks = f"{rank_dir}/{names.STACKS}"
        self._cell = BeaconCell(f"{rank_dir}/{names.CELL}")
        self._cell.set_place(*_place())
        self._cell.set_stacks_fd(files.stacks.fd)
        self._recorder = FlightRecorders(rank_dir)
        own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))  # noqa: PTH120
        self._own_folder = own + "/"
        self._frames = Frames(self._own_folder)
        self._heartbeats, self._fetches = _Worker(), _Worker()
        self._calls = BlockingCalls()
        self._forks = _thread.RLock()
        self._num_forking = 0
        self._pid = os.getpid()
        self._can_read_stacks = can_read_stacks()
        self._main = _thread.get_ident()
        self._main_clock = _clock_of(self._main)
        self._main_cpu_s = self._all_cpu_s = 0.0
        self._sampled_at = time.monotonic()
        self._sample_cost_s = 0.0
        self._next_sample = 0.0
        self._is_pending = False
        self._formed: tuple[int, tuple[int, ...]] = (0, ())
        self._is_ending = self._is_fetching = self._is_over = False
        self._wanted_ring = self._wanted_dump = 0
        self._made: Sequence[GroupCounters] = ()
        self._sight: Sight | None = None
        self._handling = ""
        self._raised: tuple[str, float] | None = None
        self._joins_as: tuple[int, int] | None = None
        self._joins_at: tuple[str, int, bool] | None = None
        self._awaits: tuple[str, str] | None = None
        self._waits_on_work = False
        self._awaits_id = 0  # of the stack that was searched for both
        self._given = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        self._waits_otherwise = False
        self._since_s = self._visit_since_s = time.time()
        self._knows_user = False
        self._problems: list[str] = []
        self._call_soon: Callable[[], bool] | None = None
        self._write("starting", "", [])

    def begin(self) -> None:
        """Start the threads; where there is no room for one, the cell reports it and the script goes on."""
        if not self.speaks:
            return
        with self._forks:
            if self._num_forking or self._heartbeats.is_there:
                return
            try:
                self._fetches.begin(self._fetch, -1)
                self._heartbeats.begin(self._heartbeat, HEARTBEAT_S)
            except RuntimeError as error:
                self._fetches.halt(_FORK_WAIT_S)
                self._note(f"no thread for the beacon: {error}")
                self._write("unknown", "", [])

    def halt(self) -> None:
        """Before a fork: nothing of ours may be in the middle of anything.  Several threads may fork at once."""
        if os.getpid() == self._pid:
            with self._forks:
                self._num_forking += 1
                self._heartbeats.halt(_FORK_WAIT_S)
                self._fetches.halt(_FORK_WAIT_S)
                self._cell.set_thread(0)

    def resume(self) -> None:
        """After a fork, in the parent.  Newer Python checks for other threads only after this has been called."""
        if os.getpid() != self._pid:
            return
        with self._forks:
            self._num_forking -= 1
        is_main = _thread.get_ident() == self._main
        if sys.version_info < (3, 13) or not is_main or not self._begin_soon():
            self.begin()

    def _begin_soon(self) -> bool:
        """Have the main thread, which has just forked, call `begin` once it is back in the script; False if not."""
        try:
            import ctypes

            if self._call_soon is None:
                callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._called_back)
                self._call_soon = lambda: ctypes.pythonapi.Py_AddPendingCall(callback, None) == 0
            return self._call_soon()
        except Exception as error:  # noqa: BLE001 - an interpreter without it: at once, then
            self._note(f"no pending call: {error}")
            return False

    def _called_back(self, _: object) -> int:
        is_in_the_hook = sys._getframe(1).f_code.co_filename == __file__  # noqa: SLF001
        if not (is_in_the_hook and self._call_soon is not None and self._call_soon()):
            self.begin()
        return 0

    def tasks(self) -> tuple[str, str]:
        """The threads' folders in /proc, for who wants to know what they cost."""
        return self._heartbeats.task, self._fetches.task

    def forget(self) -> None:
        """In a forked child: it is no rank, and its beacon never speaks."""
        self._is_over = True
        try:
            self._files.forget()
        except (OSError, RuntimeError) as error:  # then it writes what it writes
            self._note(f"stacks of a child: {error}")

    @property
    def speaks(self) -> bool:
        """Whether this is the rank itself, and its last report is not made."""
        return not self._is_over and os.getpid() == self._pid

    def leave(self) -> None:
        """Report for the last time, of a script that calls nothing that is registered."""
        self.script_is_through()
        self.end()

    def signal_of(self, error: BaseException) -> str:
        """The signal because of which an exception leaves the script, "" for none."""
        try:
            return raised_by(error)
        except Exception as failed:  # noqa: BLE001 - the exception's own words count more
            self._note(f"{type(failed).__name__}: {failed}")
            return ""

    def script_is_through(self, signal: str = "", raised: str = "") -> None:
        """The script's last line has been run, or it was left by an exception, because of `signal` if there is one, or
        by `os._exit`.

        Args:
            raised: the exception's type; "" for SystemExit, and where a signal is why.
        """
        if not self.speaks:
            return
        self._raised = (raised, time.time()) if raised else None
        self._is_ending = True
        self._handling = signal or self._handling
        self._next_sample = 0.0  # what follows may wait for other ranks: how the script was left is to be known by then
        self._heartbeats.wake()
        if not self._recorder.find_sources():
            return
        # What it did last explains why it left, and the ring on disk is seconds old.  Only a dump has program lines.
        with self._forks:
            self._fetches.halt(_END_WAIT_S)
            try:
                self._recorder.write_ring()
                self._recorder.write_dump()
                if self._heartbeats.is_there:
                    self._fetches.begin(self._fetch, -1)
            except Exception as error:  # noqa: BLE001 - torch may be half gone by now; the script's end counts
                self._note(f"the last records: {error}")

    def end(self) -> None:
        """At exit, after everything that the script registered, or by `os._exit`: report it for the last time."""
        if not self.speaks:
            return
        self._is_over = self._is_ending = True
        self._heartbeats.halt(_END_WAIT_S)
        self._fetches.halt(_END_WAIT_S)
        self._cell.set_thread(0)
        self._since_s = self._visit_since_s = time.time()  # it no longer stands where it was seen last
        try:
            # Only now: its threads and what it registered may have made collectives after its last line.
            if not names.NEWEST_EPOCH[0]:  # else the numbers began anew at different calls
                self._made = self._recorder.made()
        except Exception as error:  # noqa: BLE001 - torch is half gone; then nothing is compared
            self._note(f"the collectives at the end: {error}")
        try:
            self._write("ending", self._sight.site if self._sight is not None else "", [])
        except Exception as error:  # noqa: BLE001 - the last report; nothing reads the cell of a process that has ended
            self._note(str(error))

    # -- every 0.2 s

    def _heartbeat(self) -> None:
        self._cell.heartbeat()
        try:
            now = time.monotonic()
            self._cell.set_thread(_thread.get_native_id())
            ring, dump, stacks = self._cell.wanted()
            if stacks:
                self._write_stacks(stacks)
            if now >= self._next_sample or ring or dump or self._formed != names.FORMED[0]:
                began = time.thread_time()
                self._sample(now)
                cost = time.thread_time() - began
                self._sample_cost_s += (cost - self._sample_cost_s) / 4
                wait_s = min(self._sample_cost_s / SAMPLE_SHARE, _MAX_SAMPLE_GAP_S)
                self._next_sample = now + (wait_s / _HURRY if self._is_pending else wait_s) - HEARTBEAT_S / 2
            self._ask(ring, dump)
        except Exception as error:  # noqa: BLE001 - reported in the cell; heartbeats go on
            self._note(f"{type(error).__name__}: {error}")

    def _write_stacks(self, number: int) -> None:
        """Before anything else that was asked for: the dump's imports would be in them."""
        try:
            if self._can_read_stacks:
                with Unsearched():
                    found = all_stacks(self._main, self._own_folder)
                append(self._stacks, found)
            else:
                dump(self._stacks)
        finally:
            self._cell.answer("stacks", number)

    def _sample(self, now: float) -> None:
        now_s = time.time()
        groups = self._recorder.sample(now_s)
        self._is_pending = any(group.pending_s is not None for group in groups)
        interval_s = max(now - self._sampled_at, 1e-3)
        main_s, all_s = _cpu_s(self._main_clock), time.process_time()
        main_share = 1.0 if main_s is None else (main_s - self._main_cpu_s) / interval_s
        all_share = (all_s - self._all_cpu_s) / interval_s
        self._sampled_at, self._main_cpu_s, self._all_cpu_s = now, main_s or 0.0, all_s
        self._cell.set_stacks_fd(self._files.check())
        if not self._knows_user:
            self._find_user()
        with Unsearched():
            sight = self._see()
        if sight is None:
            self._write("ending" if self._is_ending else "unknown", "", groups)
            return
        is_still = self._sight is not None and sight.stack_id == self._sight.stack_id
        if not is_still:
            self._since_s = now_s
            if self._sight is None or sight.visit_id != self._sight.visit_id or sight.phase != self._sight.phase:
                self._visit_since_s = now_s
        self._look_for_key(sight, now_s)
        self._sight = sight
        phase = sight.phase
        if self._is_ending:
            phase = "ending"
        elif phase == "backend":
            phase = "joining" if _is_jax_job() else "compiling"
        self._waits_otherwise = False
        if phase == "computing":
            is_pending = self._is_pending
            is_jax_job = not groups and _is_jax_job()
            blocking = sight.blocking
            if not blocking and is_still and (is_pending or (is_jax_job and all_share < IDLE_SHARE)):
                blocking = self._calls.blocking(sight.call, is_jax_job=is_jax_job)
                self._waits_otherwise = blocking == "other"
            if blocking == "jax":
                is_waiting = is_jax_job and all_share < IDLE_SHARE
            else:
                # The CPU spins while it waits for a GPU.
                is_waiting = is_pending and (blocking == "gpu" or (blocking == "torch" and main_share < IDLE_SHARE))
                # Sends and receives are in no record of Gloo.
                is_waiting = is_waiting or (self._waits_on_work and main_share < IDLE_SHARE)
            phase = "communicating" if is_waiting else phase
        self._write(phase, sight.site, groups)

    def _see(self) -> Sight | None:
        if not self._can_read_stacks:
            return None
        stack = sys._current_frames().get(self._main)  # noqa: SLF001 - the documented way
        handling = handled(stack)
        if not self._is_ending:  # who leaves the script out of a handler leaves because of that signal
            self._handling = handling
        sight = self._frames.classify(stack, has_groups=self._recorder.has_groups)
        is_joining = sight.phase == "joining"
        self._joins_as = joins_as(stack) if is_joining else None
        at = joins_at(stack) if is_joining else None
        self._joins_at = None if at is None else (*at, (at[0], str(at[1])) == self._given)
        return sight

    def _look_for_key(self, sight: Sight, now_s: float) -> None:
        """Once for each place at which the script stands: what it waits for, if it waits in a store or for a handle."""
        if self._awaits_id != sight.stack_id:
            self._awaits, self._waits_on_work, self._awaits_id = None, False, 0
        if sight.call is None or self._awaits_id or now_s - self._since_s < KEY_S:
            return
        self._awaits_id = sight.stack_id
        from allready.live.beacon.store_wait import awaited_key, waits_on_work  # no start needs it

        with Unsearched():
            frame = sys._current_frames().get(self._main)  # noqa: SLF001 - as above
            self._awaits, self._waits_on_work = awaited_key(frame), waits_on_work(frame)

    def _ask(self, ring: int, dump: int) -> None:
        """Have the other thread fetch what is wanted, or what is due by itself."""
        if self._is_fetching:
            return
        if not self._recorder.has_sources():
            if ring:
                self._cell.answer("ring", ring)  # nothing to be had
            if dump:
                self._cell.answer("dump", dump)
            return
        if ring or dump or self._recorder.is_ring_due():
            self._wanted_ring, self._wanted_dump, self._is_fetching = ring, dump, True
            self._fetches.wake()

    def _fetch(self) -> None:
        ring, dump = self._wanted_ring, self._wanted_dump
        try:
            self._recorder.write_ring()
            if ring:
                self._cell.answer("ring", ring)
            if dump:
                self._cell.set_dumping(True)
                self._recorder.write_dump()
        except Exception as error:  # noqa: BLE001 - reported in the cell, and tried again later
            self._recorder.failed(error)
        finally:
            self._cell.set_dumping(False)
            if ring:
                self._cell.answer("ring", ring)
            if dump:
                self._cell.answer("dump", dump)
            self._is_fetching = False

    def _find_user(self) -> None:
        """A job that is an installed package is the user's code all the same."""
        main = sys.modules.get("__main__")
        file = getattr(main, "__file__", None)
        if not isinstance(file, str) or file.endswith("/live/beacon/main.py"):
            return
        self._knows_user = True
        for folder in ("site-packages/", "dist-packages/"):
            above, found, below = file.rpartition(folder)
            if found:
                self._frames.user_root = above + folder + below.partition("/")[0]

    def _write(self, phase: str, site: str, groups: "Sequence[GroupCounters]") -> None:
        recorder = self._recorder
        now_s = time.time()
        self._formed = names.FORMED[0]
        self._cell.write(
            encode(
                at_s=now_s,
                phase=phase,
                site=site,
                site_since_s=self._since_s,
                visit_since_s=self._visit_since_s,
                stack_id=self._sight.stack_id if self._sight is not None else 0,
                framework=_framework(has_groups=recorder.has_groups),
                ring_s=recorder.ring_s,
                problems=(*self._problems, *recorder.problems),
                groups=groups,
                formed=self._formed,
                handling=self._handling,
                raised=self._raised,
                joins_as=self._joins_as,
                joins_at=self._joins_at,
                awaits=self._awaits,
                waits_otherwise=self._waits_otherwise,
                made=self._made,
                most_bytes=PAYLOAD_BYTES,
            )
        )

    def _note(self, problem: str) -> None:
        if problem not in self._problems and len(self._problems) < 2:
            self._problems.append(problem[:300])


def _place() -> tuple[int, int, int]:
    """Where the agent finds this thread's frames in memory: the address of its state and of `type`, and the version;
    zeros where that cannot be known."""
    try:
        import ctypes

        state = ctypes.PyDLL(None).PyThreadState_Get
        state.restype, state.argtypes = ctypes.c_void_p, ()
        return int(state()), id(type), sys.hexversion
    except Exception:  # noqa: BLE001 - an interpreter without ctypes: then they are not read
        return 0, 0, 0


def _clock_of(thread: int) -> int | None:
    try:
        return time.pthread_getcpuclockid(thread)
    except (AttributeError, OSError):
        return None


def _cpu_s(clock: int | None) -> float | None:
    try:
        return None if clock is None else time.clock_gettime(clock)
    except OSError:
        return None


def _framework(*, has_groups: bool) -> str:
    modules = sys.modules
    if has_groups or ("torch" in modules and "jax" not in modules):
        return "torch"
    if "jax" in modules:
        return "jax" if _is_jax_job() or "torch" not in modules else "torch"
    return ""


def _is_jax_job() -> bool:
    """Whether jax.distributed has joined more than one process."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    number = getattr(state, "num_processes", None)
    return isinstance(number, int) and number > 1
