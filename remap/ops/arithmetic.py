"""Whole-number expressions: text -> tree -> value, and back from the value to the index.

Templates count with them (``{i+2}``, ``{i//2}``), rules state how often they fire (``expect:
7*layers``) and ops state sizes (``heads*head_dim``). They are parsed here, never evaluated as Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from remap.errors import PackError

LONGEST = 200
"""Characters an expression may have: more is a mistake or an attack."""

_TOKEN = re.compile(r"\s*(?:([0-9]{1,18})|([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)|(//|[-+*%()]))")


@dataclass(frozen=True, slots=True)
class Num:
    """A number."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Name:
    """A capture or a parameter."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Operation:
    """``left`` and ``right`` joined by one of ``+ - * // %``."""

    sign: str
    left: Arithmetic
    right: Arithmetic

    def __str__(self) -> str:
        return f"({self.left}{self.sign}{self.right})"


Arithmetic = Union[Num, Name, Operation]


def parse(text: str) -> Arithmetic:
    """Read an expression. Raises PackError, saying what it stumbled over."""
    if len(text) > LONGEST:
        raise PackError(f"an expression of {len(text)} characters; {LONGEST} are allowed")
    tokens = _tokens(text)
    tree, rest = _sum(tokens, 0, text)
    if rest != len(tokens):
        raise PackError(f"{text!r}: {tokens[rest]!r} is one too many")
    return tree


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    stripped = text.rstrip()
    while at < len(stripped):
        m = _TOKEN.match(stripped, at)
        if m is None:
            raise PackError(
                f"{text!r} is no expression: {stripped[at:].strip()[0]!r} is not understood",
                remedy="use names, whole numbers, + - * // % and parentheses",
            )
        found.append(m[m.lastindex or 0])
        at = m.end()
    return found


def _sum(tokens: list[str], at: int, text: str) -> tuple[Arithmetic, int]:
    tree, at = _product(tokens, at, text)
    while at < len(tokens) and tokens[at] in "+-":
        right, after = _product(tokens, at + 1, text)
        tree, at = Operation(tokens[at], tree, right), after
    return tree, at


def _product(tokens: list[str], at: int, text: str) -> tuple[Arithmetic, int]:
    tree, at = _factor(tokens, at, text)
    while at < len(tokens) and tokens[at] in ("*", "//", "%"):
        right, after = _factor(tokens, at + 1, text)
        tree, at = _divided(Operation(tokens[at], tree, right)), after
    return tree, at


def _divided(tree: Operation) -> Operation:
    """The operation, if it does not divide by nothing. Raises PackError."""
    if tree.sign in ("//", "%") and isinstance(tree.right, Num) and tree.right.value <= 0:
        raise PackError(f"{tree}: division by {tree.right.value}")
    return tree


def _factor(tokens: list[str], at: int, text: str) -> tuple[Arithmetic, int]:
    if at >= len(tokens):
        raise PackError(f"{text!r} ends too early")
    token = tokens[at]
    if token == "(":
        tree, at = _sum(tokens, at + 1, text)
        if at >= len(tokens) or tokens[at] != ")":
            raise PackError(f"{text!r}: a parenthesis is not closed")
        return tree, at + 1
    if token.isdigit():
        return Num(int(token)), at + 1
    if token[0].isalpha() or token[0] == "_":
        return Name(token), at + 1
    raise PackError(f"{text!r}: expected a name or a number, found {token!r}")


def names(tree: Arithmetic) -> frozenset[str]:
    """Every name that ``tree`` needs."""
    if isinstance(tree, Name):
        return frozenset((tree.name,))
    if isinstance(tree, Operation):
        return names(tree.left) | names(tree.right)
    return frozenset()


def evaluate(tree: Arithmetic, values: Mapping[str, int]) -> int:
    """The number. Raises PackError for an unknown name and for a division by nothing."""
    if isinstance(tree, Num):
        return tree.value
    if isinstance(tree, Name):
        if tree.name not in values:
            raise PackError(f"{tree.name!r} has no value")
        return values[tree.name]
    left, right = evaluate(tree.left, values), evaluate(tree.right, values)
    if tree.sign == "+":
        return left + right
    if tree.sign == "-":
        return left - right
    if tree.sign == "*":
        return left * right
    if right <= 0:
        raise PackError(f"{tree}: division by {right}")
    return left // right if tree.sign == "//" else left % right


def substitute(tree: Arithmetic, values: Mapping[str, int]) -> Arithmetic:
    """``tree`` with the names in ``values`` put in, and what then is a number worked out. Raises PackError
    for a division by nothing."""
    if isinstance(tree, Name):
        return Num(values[tree.name]) if tree.name in values else tree
    if isinstance(tree, Operation):
        done = Operation(tree.sign, substitute(tree.left, values), substitute(tree.right, values))
        return _divided(done) if names(done) else Num(evaluate(done, {}))
    return tree


def linear(tree: Arithmetic, name: str) -> tuple[int, int] | None:
    """(a, b) where ``tree`` is ``a*name + b``, else None."""
    if isinstance(tree, Num):
        return (0, tree.value)
    if isinstance(tree, Name):
        return (1, 0) if tree.name == name else None
    left, right = linear(tree.left, name), linear(tree.right, name)
    if left is None or right is None:
        return None
    if tree.sign == "+":
        return (left[0] + right[0], left[1] + right[1])
    if tree.sign == "-":
        return (left[0] - right[0], left[1] - right[1])
    if tree.sign == "*" and left[0] == 0:
        return (left[1] * right[0], left[1] * right[1])
    if tree.sign == "*" and right[0] == 0:
        return (right[1] * left[0], right[1] * left[1])
    return None


def solver(trees: Sequence[Arithmetic], name: str) -> Callable[[Sequence[int]], int | None] | None:
    """How to get ``name`` back from the values of ``trees``; None where that can't be done.

    One linear tree is enough; else a pair ``x//k`` and ``x%k``. The solution is put in again, so
    that a value that the trees can't have gives None.
    """
    propose = _propose(trees, name)
    if propose is None:
        return None

    def solve(values: Sequence[int]) -> int | None:
        found = propose(values)
        if found is None or found < 0:
            return None
        put_in = {name: found}
        return found if all(evaluate(t, put_in) == v for t, v in zip(trees, values, strict=True)) else None

    return solve


def _propose(trees: Sequence[Arithmetic], name: str) -> Callable[[Sequence[int]], int | None] | None:
    for at, tree in enumerate(trees):
        form = linear(tree, name)
        if form is not None and form[0] != 0:
            return _from_linear(at, *form)
    for at, tree in enumerate(trees):
        for other, rest in enumerate(trees):
            pair = _pair(tree, rest, name)
            if pair is not None:
                return _from_pair(at, other, *pair)
    return None


def _pair(quotient: Arithmetic, rest: Arithmetic, name: str) -> tuple[int, int, int] | None:
    """(k, a, b) where the two are ``(a*name + b)//k`` and ``(a*name + b)%k``."""
    if not (isinstance(quotient, Operation) and isinstance(rest, Operation)):
        return None
    if (quotient.sign, rest.sign) != ("//", "%") or (quotient.left, quotient.right) != (
        rest.left,
        rest.right,
    ):
        return None
    form = linear(quotient.left, name)
    if form is None or form[0] == 0 or not isinstance(quotient.right, Num):
        return None
    return (quotient.right.value, *form)


def _exact(value: int, a: int) -> int | None:
    return value // a if value % a == 0 else None


def _from_linear(at: int, a: int, b: int) -> Callable[[Sequence[int]], int | None]:
    return lambda values: _exact(values[at] - b, a)


def _from_pair(quotient: int, rest: int, k: int, a: int, b: int) -> Callable[[Sequence[int]], int | None]:
    return lambda values: _exact(values[quotient] * k + values[rest] - b, a)
