"""Numbers of several rows at once, for kernels of Numba: a vector has one number of each of LANES rows, as a register of AVX.

Kernels are written for one row. Where their arrays hold vectors, the same source runs LANES rows together. Each row has the
bits that it has alone: operations are the same, in the same order. A comparison of vectors gives a mask. Rules of such kernels:

- What depends on a row's numbers is chosen by `select`, not by `if`.
- Work is skipped, and loops end, when no row needs it (`some`).
- Masks are joined by `&` and `|`. Sums have a fixed order: no `fastmath`, and products are added by `fma` or rounded.
- Memory comes from `zeros`, `like` and `another`, whose argument `zero` is 0.0 for one row and `WIDE` for several.

`overload` gives functions that differ for several rows (`is_wide`).
"""

# mypy: disable-error-code="no-untyped-def, misc"
from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils, typing
from numba.core.datamodel import models
from numba.core.imputils import lower_builtin, lower_cast
from numba.core.typeconv import Conversion
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.np import arrayobj

LANES = 4
"""Rows of a vector; eight, in registers of AVX-512, gain 8 % more."""
intrinsic: Any = extending.intrinsic
overload: Any = extending.overload


# --- Types -----------------------------------------------------------------------------------------------------------


class _Lanes(types.Type):
    """Vector of what `part` is."""

    part: Any

    def unify(self, typingctx, other):
        """A variable that is a number first and then a vector is a vector."""
        return self if isinstance(other, self.part) else None

    def can_convert_from(self, typingctx, other):
        """Numbers are vectors of equal numbers."""
        return Conversion.promote if isinstance(other, self.part) else None


class _Wide(_Lanes):
    part = (types.Float, types.Integer)


class _Mask(_Lanes):
    part = (types.Boolean,)


_wide, _mask = _Wide(f"wide{LANES}"), _Mask(f"mask{LANES}")
_WIDE, _MASK = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.IntType(1), LANES)


def is_wide(kind) -> bool:
    """Whether a type of Numba is of several rows."""
    return isinstance(kind, _Lanes)


@extending.register_model(_Wide)
class _WideModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _WIDE)


@extending.register_model(_Mask)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _MASK)


class _Zero:
    """Zeros of several rows, from Python."""


WIDE = _Zero()
"""Argument of a kernel that is 0.0 for one row."""


@extending.typeof_impl.register(_Zero)
def _typeof_zero(value, context):
    return _wide


@extending.unbox(_Wide)
def _unbox_zero(typ, obj, c):
    return extending.NativeValue(ir.Constant(_WIDE, [0.0] * LANES))


def _splat(builder, value, kind):
    """A vector of equal values."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


@lower_cast(types.Float, _Wide)
@lower_cast(types.Integer, _Wide)
def _widen(context, builder, fromty, toty, value):
    return _splat(builder, context.cast(builder, value, fromty, types.float64), _WIDE)


@lower_cast(types.Boolean, _Mask)
def _widen_bool(context, builder, fromty, toty, value):
    return _splat(builder, value, _MASK)


# --- Operators --------------------------------------------------------------------------------------------------------


def _operator(function, count, emit, result=_wide, kind=_wide):
    """Teach Numba an operator of `count` vectors, of which some may be numbers."""

    class Template(AbstractTemplate):
        def generic(self, args, kws):
            given = len(args) == count and any(arg == kind for arg in args)
            if given and all(arg == kind or isinstance(arg, kind.part) for arg in args):
                return typing.signature(result, *[kind] * count)
            return None

    infer_global(function)(Template)
    lower_builtin(function, *[type(kind)] * count)(lambda context, builder, sig, args: emit(builder, *args))


for _names, _emit in (
    (("add", "iadd"), ir.IRBuilder.fadd),
    (("sub", "isub"), ir.IRBuilder.fsub),
    (("mul", "imul"), ir.IRBuilder.fmul),
    (("truediv", "itruediv"), ir.IRBuilder.fdiv),
):
    for _name in _names:
        _operator(getattr(operator, _name), 2, _emit)
for _name, _sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "==")):
    _operator(getattr(operator, _name), 2, lambda builder, a, b, sign=_sign: builder.fcmp_ordered(sign, a, b), _mask)
_operator(operator.ne, 2, lambda builder, a, b: builder.fcmp_unordered("!=", a, b), _mask)
_operator(operator.neg, 1, ir.IRBuilder.fneg)
_operator(operator.and_, 2, ir.IRBuilder.and_, _mask, _mask)
_operator(operator.or_, 2, ir.IRBuilder.or_, _mask, _mask)


# --- Functions --------------------------------------------------------------------------------------------------------


def _call(name, *kinds):
    """Signature and code of an LLVM function of numbers or vectors."""
    kind = _wide if _wide in kinds else types.float64

    def codegen(context, builder, sig, args):
        values = [context.cast(builder, *pair, kind) for pair in zip(args, kinds, strict=True)]
        full = f"llvm.{name}." + ("f64" if kind is types.float64 else f"v{LANES}f64")
        called = ir.FunctionType(values[0].type, [value.type for value in values])
        return builder.call(cgutils.get_or_insert_function(builder.module, called, full), values)

    return typing.signature(kind, *kinds), codegen


@intrinsic
def rint(typingctx, x):
    """The nearest whole number."""
    return _call("rint", x)


@intrinsic
def floor(typingctx, x):
    """The largest whole number that is not larger."""
    return _call("floor", x)


@intrinsic
def root(typingctx, x):
    """Square root."""
    return _call("sqrt", x)


@intrinsic
def size(typingctx, x):
    """Absolute value."""
    return _call("fabs", x)


@intrinsic
def fma(typingctx, a, b, c):
    """a b + c, rounded once."""
    return _call("fma", a, b, c)


@intrinsic
def select(typingctx, chosen, a, b):
    """Numbers a of rows that are chosen, else b."""
    kind = _wide if any(map(is_wide, (chosen, a, b))) else types.float64

    def codegen(context, builder, sig, args):
        return builder.select(args[0], context.cast(builder, args[1], a, kind), context.cast(builder, args[2], b, kind))

    return typing.signature(kind, chosen, a, b), codegen


@intrinsic
def without(typingctx, a, b):
    """Rows of mask a that are not in b."""
    kind = _mask if _mask in (a, b) else types.boolean

    def codegen(context, builder, sig, args):
        return builder.and_(context.cast(builder, args[0], a, kind), builder.not_(context.cast(builder, args[1], b, kind)))

    return typing.signature(kind, a, b), codegen


@intrinsic
def some(typingctx, chosen):
    """Whether any row is chosen."""

    def codegen(context, builder, sig, args):
        bits = builder.bitcast(args[0], ir.IntType(LANES if is_wide(chosen) else 1))
        return builder.icmp_unsigned("!=", bits, bits.type(0))

    return typing.signature(types.boolean, chosen), codegen


@intrinsic
def _get(typingctx, x, k):
    """Number k of a vector."""
    return typing.signature(types.float64, x, k), lambda context, builder, sig, args: builder.extract_element(*args)


@intrinsic
def _put(typingctx, x, number, k):
    """The vector x with another number k."""
    return typing.signature(x, x, number, k), lambda context, builder, sig, args: builder.insert_element(*args)


def tanh(x):
    """Hyperbolic tangent."""
    raise NotImplementedError


@overload(tanh)
def _tanh(x):
    if not is_wide(x):
        return lambda x: np.tanh(x)

    def several(x):
        for k in range(LANES):
            x = _put(x, np.tanh(_get(x, k)), k)
        return x

    return several


# --- Memory -----------------------------------------------------------------------------------------------------------


@intrinsic
def _packed(typingctx, array):
    """Numbers (..., LANES) as vectors (...), in the same memory."""
    made = types.Array(_wide, array.ndim - 1, "C", aligned=False)

    def codegen(context, builder, sig, args):
        old, new = arrayobj.make_array(array)(context, builder, args[0]), arrayobj.make_array(made)(context, builder)
        arrayobj.populate_array(
            new,
            data=builder.bitcast(old.data, context.get_data_type(_wide).as_pointer()),
            shape=cgutils.unpack_tuple(builder, old.shape, array.ndim)[:-1],
            strides=cgutils.unpack_tuple(builder, old.strides, array.ndim)[:-1],
            itemsize=context.get_constant(types.intp, 8 * LANES),
            meminfo=old.meminfo,
            parent=old.parent,
        )
        return arrayobj.impl_ret_borrowed(context, builder, made, new._getvalue())

    return typing.signature(made, array), codegen


def rows_of(zero):
    """How many rows a number or vector has."""
    raise NotImplementedError


@overload(rows_of)
def _rows_of(zero):
    rows = LANES if is_wide(zero) else 1
    return lambda zero: rows


def like(numbers, zero):
    """Numbers (N, rows) as an array (N,) of what `zero` is, in the same memory."""
    raise NotImplementedError


@overload(like)
def _like(numbers, zero):
    return (lambda numbers, zero: _packed(numbers)) if is_wide(zero) else (lambda numbers, zero: numbers.reshape(-1))


def zeros(shape, zero):
    """Array of zeros, which are what `zero` is."""
    raise NotImplementedError


@overload(zeros)
def _zeros(shape, zero):
    if not is_wide(zero):
        return lambda shape, zero: np.zeros(shape)
    if isinstance(shape, types.Integer):
        return lambda shape, zero: _packed(np.zeros((shape, LANES)))
    return lambda shape, zero: _packed(np.zeros((*shape, LANES)))


def another(matrix, zero):
    """Zeros of the shape of `matrix`; for one row, `matrix` itself: see `blend`."""
    raise NotImplementedError


@overload(another)
def _another(matrix, zero):
    return (lambda matrix, zero: zeros(matrix.shape, zero)) if is_wide(zero) else (lambda matrix, zero: matrix)


def blend(chosen, new, old, left):
    """Rows that are chosen take the matrix `new` for `old` (N, N + 1 or more), from columns `left` (N,) to N."""
    raise NotImplementedError


@overload(blend)
def _blend(chosen, new, old, left):
    if not is_wide(chosen):
        return lambda chosen, new, old, left: None

    def several(chosen, new, old, left):
        for i in range(len(left)):
            for j in range(left[i], np.uint64(len(left) + 1)):
                old[i, j] = select(chosen, new[i, j], old[i, j])

    return several


def spread(rows, lanes):
    """Write rows (B, N) to lanes (N, B or more); places without a row repeat the last one."""
    raise NotImplementedError


@overload(spread)
def _spread(rows, lanes):
    def write(rows, lanes):
        for i in range(lanes.shape[0]):
            for k in range(lanes.shape[1]):
                lanes[i, k] = rows[min(k, len(rows) - 1), i]

    return write
