"""Calls back once a module has been imported, by any code."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


class _Loader(importlib.abc.Loader):
    """The module's own loader, and a call after it."""

    def __init__(self, own: importlib.abc.Loader, after: Callable[[], None]) -> None:
        self._own, self._after = own, after

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._own  # code that asks the module for its loader gets the real one
        module.__loader__ = self._own
        self._own.exec_module(module)
        self._after()

    def __getattr__(self, name: str) -> object:
        return getattr(self._own, name)


class AfterImport(importlib.abc.MetaPathFinder):
    """First in `sys.meta_path`; finds nothing itself."""

    def __init__(self, calls: dict[str, Callable[[], None]]) -> None:
        self._calls = dict(calls)

    def install(self) -> None:
        """From now on; modules that are there already are called back at once."""
        for name in [name for name in self._calls if name in sys.modules]:
            self._calls.pop(name)()
        if self._calls:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._calls:
            return None
        for finder in [f for f in sys.meta_path if f is not self]:
            find = getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                break
        else:
            return None
        after = self._calls.pop(fullname)
        if not self._calls:
            sys.meta_path.remove(self)
        if spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, after)
        return spec
