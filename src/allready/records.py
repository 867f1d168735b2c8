"""`dataclass` as the standard library has it, with little work when a module is loaded.

`dataclasses` compiles up to six methods for each class at once, and `allready diagnose` loads two hundred classes, most
of which it never makes an instance of.  Here the fields are the library's; what compares, prints, hashes and freezes is
shared by all classes, and `__init__` is compiled for the first instance.  A class with a base or with `__post_init__`
is left to the library.
"""

import dataclasses
import functools
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True):
        """See `dataclasses.dataclass`."""

        def wrap(cls):
            if cls.__bases__ != (object,) or "__post_init__" in vars(cls):
                return dataclasses.dataclass(cls, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq)
            own = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}
            cls.__doc__ = cls.__doc__ or cls.__name__  # else the library prints the signature there
            made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
            made.__dataclass_params__.frozen = frozen  # for classes that derive from it
            methods = {"__init__": _init_of(made, frozen), "__repr__": _repr}
            if eq:
                methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
            if frozen:
                methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
            if frozen and slots:
                methods |= {"__getstate__": _state, "__setstate__": _set_state}
            for name, method in methods.items():
                if name not in own:
                    setattr(made, name, method)
            return made

        return wrap if cls is None else wrap(cls)


class _Factory:
    """Stands for a default that is made for each instance."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _init_of(cls: type, frozen: bool) -> Callable[..., None]:
    """An `__init__` that gives way to the compiled one when it is called."""

    def __init__(self: object, *args: object, **named: object) -> None:  # noqa: N807 - it is one
        init = _compiled(cls, frozen)
        cls.__init__ = init  # type: ignore[misc]
        init(self, *args, **named)

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


def _compiled(cls: type, frozen: bool) -> Callable[..., None]:
    known: dict[str, Any] = {"_factory": _FACTORY, "_set": object.__setattr__}
    by_place: list[str] = []
    by_name: list[str] = []
    body = []
    for number, field in enumerate(dataclasses.fields(cls)):
        parameter = value = field.name
        default, is_made = field.default, field.default_factory is not dataclasses.MISSING
        if is_made:
            known[f"_d{number}"] = field.default_factory
            parameter += "=_factory"
            value = f"_d{number}() if {field.name} is _factory else {field.name}" if field.init else f"_d{number}()"
        elif default is not dataclasses.MISSING:
            known[f"_d{number}"] = default
            parameter += f"=_d{number}"
        if field.init:
            (by_name if field.kw_only else by_place).append(parameter)
        elif not is_made:
            continue
        body.append(f"_set(self, {field.name!r}, {value})" if frozen else f"self.{field.name} = {value}")
    parameters = ", ".join(["self", *by_place, *(["*"] if by_name else []), *by_name])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), known)  # noqa: S102 - names of fields only
    init: Callable[..., None] = known["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


@functools.cache
def _values(cls: type) -> Callable[[Any], tuple[object, ...]]:
    """Gives an instance's values that are compared, in the order of its fields."""
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda item: tuple([getattr(item, name) for name in names])


def _values_of(item: Any) -> tuple[object, ...]:
    cls: type = type(item)
    return _values(cls)(item)


def _eq(self: object, other: object) -> bool:
    return _values_of(self) == _values_of(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: object) -> int:
    return hash(_values_of(self))


def _repr(self: Any) -> str:
    values = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
    return f"{self.__class__.__qualname__}({', '.join(values)})"


def _refuse_to_set(self: object, name: str, value: object) -> None:
    del self, value
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    del self
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    """What pickle keeps of a frozen instance with slots, as in the library."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
