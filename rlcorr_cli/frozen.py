"""`frozen`: a frozen dataclass whose class is made in a fifth of the time.

`dataclass(frozen=True)` writes and compiles six functions for each class.  For the 200 classes of one `analyze` that
was a quarter of its start.  Here `dataclass` finds the fields alone, and nothing is compiled.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from inspect import Parameter, Signature
from operator import attrgetter
from typing import Any, dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Any = None, /, *, kw_only: bool = False, eq: bool = True) -> Any:
    """A dataclass of which no attribute can be set or deleted.  It is compared and hashed by its fields, unless `eq` is
    False or the class has an `__eq__` of its own.

    `fields`, `replace`, `asdict` and `is_dataclass` work as on any dataclass.
    """
    return _made(cls, kw_only, eq) if cls is not None else lambda cls: _made(cls, kw_only, eq)


def _made(cls: type[Any], kw_only: bool, eq: bool) -> type[Any]:
    made: Any = dataclass(cls, init=False, eq=False, repr=False, kw_only=kw_only)
    own, every = vars(cls), fields(made)
    made.__init__, made.__signature__ = _init_of(made, every), _FieldsSignature()
    made.__setattr__, made.__delattr__ = _refuse, _refuse
    if "__repr__" not in own:
        made.__repr__ = _repr
    if eq and "__eq__" not in own:
        names = [each.name for each in every if each.compare]
        values = attrgetter(*names) if names else _no_values

        def equal(self: Any, other: Any) -> bool:
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        made.__eq__, made.__hash__ = equal, lambda self: hash(values(self))
    return made


def _init_of(cls: Any, every: Iterable[Any]) -> Callable[..., None]:
    """The `__init__` that takes fields by position or by name, and else their defaults."""
    by_place, names = cls.__match_args__, {each.name: None for each in every}.keys()
    defaults = {each.name: each.default for each in every if each.default is not MISSING}
    factories = {each.name: each.default_factory for each in every if each.default_factory is not MISSING}
    is_followed = hasattr(cls, "__post_init__")

    def __init__(self: Any, *args: Any, **values: Any) -> None:
        n_given = len(args) + len(values)
        values.update(zip(by_place, args, strict=False))
        is_each_once = len(values) == n_given
        if n_given < len(names):
            values = defaults | values
            for name in factories.keys() - values.keys():
                values[name] = factories[name]()
        if values.keys() != names or not is_each_once:
            raise TypeError(f"{cls.__qualname__} takes each of these once: {', '.join(names)}")
        self.__dict__.update(values)
        if is_followed:
            self.__post_init__()

    return __init__


class _FieldsSignature:
    """What `inspect.signature` says of a class: made when it is asked, for few ask."""

    def __get__(self, _: object, cls: Any) -> Signature:
        return Signature([_parameter(each) for each in sorted(fields(cls), key=attrgetter("kw_only"))])


def _parameter(each: Any) -> Parameter:
    default = Parameter.empty if each.default_factory is MISSING else each.default_factory()
    return Parameter(
        each.name,
        Parameter.KEYWORD_ONLY if each.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
        default=default if each.default is MISSING else each.default,
        annotation=each.type,
    )


def _refuse(self: Any, name: str, *_: Any) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r}")


def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _no_values(self: Any) -> tuple[()]:
    return ()
