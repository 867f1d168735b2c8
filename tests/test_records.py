"""Our `dataclass` makes what the standard library's makes."""

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
import pytest

from allready import records

PARTS = ("model", "evidence", "rules", "report", "signatures", "cli")


def all_records() -> Iterator[type]:
    """Every class of the package that was made by our decorator."""
    for part in PARTS:
        package = importlib.import_module(f"allready.{part}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(found.name)
            for cls in vars(module).values():
                if inspect.isclass(cls) and cls.__module__ == module.__name__ and "__dataclass_fields__" in vars(cls):
                    yield cls


RECORDS = list(all_records())


def as_the_library_makes_it(cls: type) -> type:
    """The same fields and options again, by `dataclasses.dataclass`."""
    names = {field.name: (field.type, field) for field in dataclasses.fields(cls)}
    body: dict[str, Any] = {"__annotations__": {name: kind for name, (kind, _) in names.items()}}
    for name, (_, field) in names.items():
        options: dict[str, Any] = {"init": field.init, "repr": field.repr, "kw_only": field.kw_only}
        if field.default is not dataclasses.MISSING:
            options["default"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            options["default_factory"] = field.default_factory
        body[name] = dataclasses.field(**options)
    plain = type(cls.__name__, (object,), body)
    plain.__qualname__ = cls.__qualname__
    has_slots = "__slots__" in vars(cls)
    return dataclasses.dataclass(plain, frozen=cls.__dataclass_params__.frozen, slots=has_slots)  # type: ignore[attr-defined]


def values(cls: type, offset: int = 0) -> dict[str, object]:
    return {field.name: number + offset for number, field in enumerate(dataclasses.fields(cls)) if field.init}


def test_there_are_many() -> None:
    assert len(RECORDS) > 180
    ours = [cls for cls in RECORDS if vars(cls).get("__repr__") is records._repr]
    assert len(ours) > 0.9 * len(RECORDS)


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: f"{cls.__module__}.{cls.__qualname__}")
def test_a_record_is_as_the_library_makes_it(cls: Any) -> None:
    if "__post_init__" in vars(cls):
        return
    plain: Any = as_the_library_makes_it(cls)
    one, same, other = cls(**values(cls)), cls(**values(cls)), cls(**values(cls, 1000))
    assert inspect.signature(cls).replace(return_annotation=None).parameters.keys() == (
        inspect.signature(plain).parameters.keys()
    )
    if "__repr__" not in vars(cls) or cls.__repr__ is records._repr:
        assert repr(one) == repr(plain(**values(cls)))
    has_eq = cls.__eq__ is not object.__eq__
    assert (one == same) is has_eq
    assert one != other or not dataclasses.fields(cls)
    assert one != plain(**values(cls))
    if not has_eq:
        assert len({one, same}) == 2
    elif cls.__dataclass_params__.frozen:
        assert hash(one) == hash(same) == hash(plain(**values(cls)))
    else:
        assert cls.__hash__ is None
    assert not dataclasses.fields(cls) or dataclasses.replace(one, **values(cls, 1000)) == other or not has_eq
    names = [field.name for field in dataclasses.fields(cls)]
    for again in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
        assert [getattr(again, name) for name in names] == [getattr(one, name) for name in names]
    for name in names[:1]:
        if cls.__dataclass_params__.frozen:
            with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
                setattr(one, name, 1)
            with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
                delattr(one, name)
        else:
            setattr(one, name, -1)
            assert getattr(one, name) == -1


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: f"{cls.__module__}.{cls.__qualname__}")
def test_defaults_are_the_fields(cls: Any) -> None:
    if "__post_init__" in vars(cls):
        return
    needed = {
        field.name: 0
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING and field.init
    }
    one, two = cls(**needed), cls(**needed)
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            assert getattr(one, field.name) is field.default
        elif field.default_factory is not dataclasses.MISSING:
            made = getattr(one, field.name), getattr(two, field.name)
            assert type(made[0]) is type(made[1]) is type(field.default_factory())
            if isinstance(made[0], list | dict | set):
                assert made[0] is not made[1]
    if needed:
        with pytest.raises(TypeError, match=rf"{cls.__qualname__}\.__init__\(\) missing"):
            cls()
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such_field'"):
        cls(**needed, no_such_field=1)


@records.dataclass(frozen=True)
class Base:
    """Has no slots."""

    one: int
    two: str = "two"
    kind: ClassVar[str] = "base"


@dataclasses.dataclass(frozen=True)
class Derived(Base):
    """Made by the library from one of ours."""

    three: float = 3.0


class Plain(Base):
    """Not decorated."""


@records.dataclass(slots=True)
class Own:
    """Has methods of its own, which stay."""

    one: int
    made: list[int] = dataclasses.field(default_factory=list, init=False)

    def __repr__(self) -> str:
        return "own"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)


@records.dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Says itself what is equal; Python takes its hash away, a dataclass gives it one."""

    one: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)


def test_classes_may_derive_from_a_record() -> None:
    assert Derived(1).three == 3.0
    assert repr(Derived(1)).endswith("Derived(one=1, two='two', three=3.0)")
    assert Plain(1, "b") == Plain(1, "b") != Base(1, "b")
    assert Base(1) == Base(1, "two")
    assert Plain.__init__ is Base.__init__
    match Base(5, "x"):
        case Base(number, text):
            assert (number, text) == (5, "x")


def test_methods_of_a_class_stay() -> None:
    assert repr(Own(1)) == "own"
    assert Own(1) == Own(2)
    assert getattr(Own, "__hash__", 0) is None
    assert Alike(one=1) == Alike(one=2)
    assert hash(Alike(one=1)) == hash((1,))
    assert Own(1).made == []
    with pytest.raises(TypeError):
        Own(1, [2])  # type: ignore[call-arg]


def test_msgspec_reads_and_writes_them() -> None:
    assert msgspec.json.decode(msgspec.json.encode(Base(1)), type=Base) == Base(1)
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        msgspec.json.decode(b'{"one": "1"}', type=Base)
