"""Conversion of arguments for the native module: numbers and values, those of numpy included."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from decimal import Decimal
from typing import SupportsFloat, SupportsIndex

from usher._errors import StudyError

LONG = 2048
"""Maximum bits of a whole number in a message: more than any setting takes. Python prints at most some 14,000."""

Number = SupportsIndex
"""A whole number: Python's, or another package's, such as `numpy.int64(3)`."""

Value = str | int | float | bool | SupportsIndex | SupportsFloat
"""A setting's value: a quantity as text (`"5 %"`), a number in the setting's own unit, a switch."""


def wrong(message: str) -> StudyError:
    """Returns the error for a wrong argument."""
    return StudyError([("", 0, 0, message)])


def whole(name: str, value: Number, least: int, bits: int = 64) -> int:
    """Returns a whole number of so many bits. Raises `StudyError` with the argument's name if it is none or out of bounds."""
    # A switch in a number's place is a mistake that Python would take for 0 or 1.
    if isinstance(value, bool):
        raise wrong(f"{name}={value}: give a whole number, {least} or more")
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong(f"{name}={said(value)}: give a whole number, {least} or more") from None
    if number < least:
        raise wrong(f"{name}={said(number)}: give {least} or more")
    if number >= 1 << bits:
        raise wrong(f"{name}={said(number)}: give {(1 << bits) - 1} or less")
    return number


def some(name: str, value: Number | None, least: int, bits: int = 64) -> int | None:
    """The same for an optional number."""
    return None if value is None else whole(name, value, least, bits)


def values(name: str, value: Value | Iterable[Value]) -> str:
    """Returns the value of a setting, or those of an axis, as in `name=value,value` after the sign. Raises `StudyError`."""
    if isinstance(value, (str, bytes)):
        return _value(name, value)
    try:
        each = iter(value)  # type: ignore[arg-type]
    except TypeError:
        return _value(name, value)
    return ",".join(_value(name, one) for one in each)


def _value(name: str, value: object) -> str:
    own = scalar(value)
    if isinstance(own, str):
        return own
    text = literal(own)
    if text is None:
        raise wrong(f'{name}={said(value)}: give a number, a text such as "5 %", True or False, or a list of these')
    return text


def literal(value: object) -> str | None:
    """Returns a number or switch as studies and TOML write it; `None` for anything else, and for a number that is too long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if value.bit_length() <= LONG else None
    if isinstance(value, float) or (isinstance(value, Decimal) and value.is_finite()):
        return str(value)
    return None


def said(value: object) -> str:
    """Returns a value as messages show it."""
    if isinstance(value, int) and value.bit_length() > LONG:
        return f"a number of {value.bit_length()} bits"
    try:
        return repr(value)
    # Of a whole number within it, which is too long.
    except ValueError:
        return f"a {type(value).__name__}"


def scalar(value: object) -> object:
    """Converts another package's text, number or switch to Python's own. Returns anything else unchanged."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return value
    # Those of other packages may be of Python's kinds, and be written otherwise: `np.float64(1.0)`.
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Decimal) and value.is_finite():
        # A float has fewer digits.
        return value
    # Scalars of numpy, and of what is built on it, know which of Python's they are.
    item = getattr(value, "item", None)
    try:
        if callable(item):
            return item()
        if isinstance(value, SupportsIndex):
            return operator.index(value)
        if isinstance(value, SupportsFloat):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    return value
