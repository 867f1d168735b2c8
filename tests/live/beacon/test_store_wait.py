"""What a call waits for by its source and its variables: which key of a store, or a handle of torch's."""

import linecache
import sys
import weakref
from typing import Any

from allready.live.beacon.store_wait import awaited_key, waits_on_work
from tests.cases import cases

Store = type("Store", (), {"__module__": "torch._C._distributed_c10d"})


class TCPStore(Store):  # type: ignore[misc,valid-type]
    """As torch's, it answers nothing: the call is where the key is read."""

    found: Any = None

    def get(self, *keys: object, **named: object) -> None:
        """A call into C in torch: the caller's frame is the innermost one."""
        TCPStore.found = awaited_key(sys._getframe(1))

    wait = get


def key_of(call: str, **names: Any) -> tuple[str, str] | None:
    text = f"store.set('ready', b'1')\n{call}\n"
    file = f"/home/u/train{abs(hash(call))}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    TCPStore.found = "not called"
    space: dict[str, Any] = {"store": Quiet(), "np": Other(), **names}
    exec(compile(text, file, "exec"), space)
    found: tuple[str, str] | None = TCPStore.found
    return found


class Quiet(TCPStore):
    """Whose keys may be set."""

    def set(self, *_: object) -> None:
        """Nothing."""


class Other:
    """No store of torch's."""

    def get(self, *_: object) -> None:
        """The same of another object."""
        TCPStore.found = awaited_key(sys._getframe(1))


class Trainer:
    """An object that has a store."""

    def __init__(self) -> None:
        self.store = Quiet()


@cases(
    ("call", "key"),
    [
        ("store.get('best')", "best"),
        ("x = store.wait(['a', 'b'])", "a, b"),
        ("if True:\n    y = [1, store.get(key=name)]", "epoch_3"),
        ("store.get(f'{name}/{number}')", "epoch_3/7"),
        ("trainer.store.get('best')", "best"),
        ("store.get(\n    'best',\n)", "best"),
    ],
)
def test_the_key_is_read_from_constants_and_variables(call: str, key: str) -> None:
    assert key_of(call, name="epoch_3", number=7, trainer=Trainer()) == (key, "")


def test_the_line_that_sets_it_is_found() -> None:
    found = key_of("store.get('ready')")
    assert found is not None
    assert found[1].endswith(".py:1")


@cases("call", ["np.get('best')", "store.get(name + 'x')", "store.get(make())", "store.get(number)"])
def test_no_store_and_no_text_is_no_key(call: str) -> None:
    assert key_of(call, name="a", number=7, make=lambda: "called") is None


def test_no_frame_and_no_source_is_no_key() -> None:
    assert awaited_key(None) is None
    space: dict[str, Any] = {"store": Quiet()}
    exec(compile("store.get('best')", "<no source>", "exec"), space)
    assert TCPStore.found is None


class Work:
    """A handle as torch's; its wait is where it is looked at."""

    found: Any = None
    __module__ = "torch.distributed.distributed_c10d"

    def wait(self) -> None:
        """A call into C in torch."""
        Work.found = waits_on_work(sys._getframe(1))


class Future:
    """No handle of an operation."""

    wait = Work.wait


@cases(
    ("call", "is_handle"),
    [
        ("work.wait()", True),
        ("[w.wait() for w in works]", True),
        ("works[-1].wait()", True),
        ("trainer.work.wait()", True),
        ("dist.irecv(8, src=1).wait()", True),
        ("future.wait()", False),
        ("make().wait()", False),
        ("works[number].wait()", False),
    ],
)
def test_a_handle_is_known_by_its_class_or_by_the_call_that_gave_it(call: str, is_handle: bool) -> None:
    file = f"/home/u/handles{abs(hash(call))}.py"
    linecache.cache[file] = (len(call), None, [call + "\n"], file)
    trainer = Trainer()
    trainer.work = Work()  # type: ignore[attr-defined]
    dist = type("Module", (), {"irecv": staticmethod(lambda *_, **__: Work())})
    space: dict[str, Any] = {"works": [Work(), Work()], "make": Work, "number": 0, "dist": dist, "trainer": trainer}
    exec(compile(call, file, "exec"), {"work": Work(), "future": Future(), **space})
    assert Work.found is is_handle


class Batch:
    """What is large."""


def waits_in_a_function(work: Work, *, keeps: bool) -> tuple[object, object]:
    """Whether a variable's value lives on that was deleted after the wait, and what `locals()` gave before."""
    large = Batch()
    seen = weakref.ref(large)
    before = {k: v for k, v in locals().items() if k == "keeps"} if not keeps else locals()
    work.wait()
    del large
    if keeps:
        before.pop("large", None)
    return seen() is not None, before


def test_looking_keeps_nothing_alive_and_leaves_what_the_program_asked_for() -> None:
    Work.found = None
    assert waits_in_a_function(Work(), keeps=False) == (False, {"keeps": False})
    assert Work.found is True
    lives, before = waits_in_a_function(Work(), keeps=True)
    assert not lives
    assert isinstance(before, dict)
    assert before["keeps"] is True


class Proxy:
    """As werkzeug's: its dictionary is that of something else."""

    work = Work()

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        """Code of the job's."""
        raise RuntimeError("outside of a request")


class Attributes(dict[str, Any]):
    """Its items are its attributes."""

    def __init__(self, **given: Any) -> None:
        super().__init__(given)
        self.__dict__ = self

    def get(self, *_: object) -> Any:
        """Code of the job's."""
        raise RuntimeError("asked")


@cases(
    ("call", "is_handle"),
    [("proxy.work.wait()", False), ("attributes.work.wait()", True), ("Holder.work.wait()", True)],
)
def test_no_code_of_the_job_is_run(call: str, is_handle: bool) -> None:
    file = f"/home/u/jobs{abs(hash(call))}.py"
    linecache.cache[file] = (len(call), None, [call + "\n"], file)
    Work.found = None
    holder = type("Holder", (), {"work": Work()})
    exec(compile(call, file, "exec"), {"attributes": Attributes(work=Work()), "Holder": holder, "proxy": Proxy()})
    assert Work.found is is_handle
