"""`frozen`: a frozen dataclass that is made in less than half of the time.

`dataclass(frozen=True)` writes and compiles six functions for each class.  For the 250 classes of one `analyze` that
was a quarter of its start.  Here `dataclass` makes `__init__` alone, and all classes share the other five.
"""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...


@overload
def frozen(*, kw_only: bool = False, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Any = None, /, *, kw_only: bool = False, eq: bool = True) -> Any:
    """A dataclass none of whose fields can be set again, compared and hashed by its fields unless `eq` is False.

    `fields`, `replace`, `asdict` and `is_dataclass` work as on any dataclass.
    """
    return _made(cls, kw_only, eq) if cls is not None else lambda cls: _made(cls, kw_only, eq)


def _made(cls: type[Any], kw_only: bool, eq: bool) -> type[Any]:
    made: Any = dataclass(cls, eq=False, repr=False, kw_only=kw_only)
    own = vars(cls)
    made.__setattr__, made.__delattr__ = _set_once, _keep
    if "__repr__" not in own:
        made.__repr__ = _repr
    if eq and "__eq__" not in own:
        names = [each.name for each in fields(made) if each.compare]
        values = attrgetter(*names) if names else _no_values

        def equal(self: Any, other: Any) -> bool:
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        made.__eq__, made.__hash__ = equal, lambda self: hash(values(self))
    return made


def _set_once(self: Any, name: str, value: Any) -> None:
    if name in self.__dict__ or name not in self.__dataclass_fields__:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = value


def _keep(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _no_values(self: Any) -> tuple[()]:
    return ()
