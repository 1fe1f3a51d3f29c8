r"""Uncertainty of a fit: Fisher information, confidence intervals, and parameters that cannot be told apart.

With weighted residuals r (unit variance) and their Jacobian J in fit coordinates, the Fisher information is J'J and

.. math:: \operatorname{cov}(\hat\theta) = s^2 (J^T J)^{-1}, \qquad s^2 = \|r\|^2 / \nu

(s = 1 where the noise is known; nu degrees of freedom, Student's t where it is estimated). Directions of theta that J does not
see (singular value zero to rounding, or a standard deviation beyond the allowed range) are *null directions*. Parameters that
take part in one get a diagnostic instead of a number, and the combinations that are seen are reported.
Legend: N residuals, p parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from softgym_envs.core.parameters import ParameterSpec
from softgym_envs.core.simulator import Array

from ..least_squares.levenberg import triangle

RANK_TOLERANCE = 1e-9  # Singular values below this times the largest, of columns of unit length, are zero to rounding.
TAKES_PART = 1e-2  # Share of a null direction's unit vector above which a parameter takes part in it.
ALONE = 1e-9  # Share of a direction's information outside of one cluster, below which that cluster's residuals show no error.
NORMAL = 1.959963984540054  # Standard deviations of a 95 % interval.


@dataclass(frozen=True, eq=False)
class Identifiability:
    """Singular value decomposition of J (N, p) = U diag(s) V', split into what is seen and what is not."""

    singular_values: Array  # (p,) descending.
    seen: Array  # (p, r) directions of theta that change the prediction.
    null: Array  # (p, p - r) directions that do not.
    structural: tuple[bool, ...]  # Per null direction, whether no amount of such data would help; else noise hides it.
    covariance: Array  # (p, p) covariance in fit coordinates, zero along null directions.

    @property
    def hidden(self) -> NDArray[np.bool_]:
        """(p,) mask of parameters that take part in a null direction."""
        return np.asarray((np.abs(self.null) > TAKES_PART).any(axis=1), dtype=np.bool_)

    @property
    def std(self) -> Array:
        """(p,) standard deviations in fit coordinates, zero along null directions."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


@dataclass(frozen=True)
class Combination:
    """A function of parameters that the data see, although they do not see its parameters one by one."""

    formula: str  # Formula, as "cable_stiffness / rod_mass".
    unit: str
    value: float
    interval: tuple[float, float]  # 95 % confidence.
    relative_std: float
    """Standard deviation of its logarithm; for sums (linear scales) its standard deviation in fit coordinates."""


def analyse(jacobian: Array, variance: float, specs: tuple[ParameterSpec, ...]) -> Identifiability:
    """Singular value analysis of a weighted Jacobian (N, p), priors included, with residual variance s^2.

    Columns are scaled to unit length before the test for zeros: a parameter whose channel is predicted exactly, with
    weights of 1e12, must not hide others. A direction is null, too, if its 95 % interval is wider than the allowed range.
    """
    p = jacobian.shape[1]
    root = triangle(np.vstack([jacobian, np.zeros((p, p))]))
    null = _dead(root)
    structural = null.shape[1]
    width = np.array([float(spec.encode(spec.bounds[1]) - spec.encode(spec.bounds[0])) for spec in specs])
    while null.shape[1] < p:
        seen = _complement_basis(null)
        covariance = variance * _covariance(root, seen)
        values, vectors = np.linalg.eigh(covariance)
        reach = np.abs(vectors[:, -1]) @ width  # how far the allowed range extends along the direction that is known least
        if 2.0 * np.sqrt(values[-1]) <= reach:
            break
        null = np.linalg.qr(np.column_stack([null, vectors[:, -1]]))[0]
    else:
        seen, covariance = np.zeros((p, 0)), np.zeros((p, p))
    kinds = tuple(place < structural for place in range(null.shape[1]))
    singular = np.asarray(np.linalg.svd(root, compute_uv=False), dtype=np.float64)
    return Identifiability(singular, seen, null, kinds, covariance)


def column_lengths(jacobian: Array) -> Array:
    """Lengths of the columns (N, p) -> (p,); 1 where a column is zero."""
    lengths = np.asarray(np.linalg.norm(jacobian, axis=0))
    return np.where(lengths > 0, lengths, 1.0)


def _dead(root: Array) -> Array:
    """Orthonormal basis (p, k) of the directions without effect, to rounding."""
    lengths = column_lengths(root)
    _, s, vt = np.linalg.svd(root / lengths)
    dead = vt[s <= RANK_TOLERANCE * max(float(s[0]), 1e-300)].T / lengths[:, None]
    return np.linalg.qr(dead / column_lengths(dead))[0] if dead.shape[1] else dead


def _complement_basis(null: Array) -> Array:
    """Orthonormal basis (p, p - k) of the complement of (p, k)."""
    return np.linalg.qr(np.column_stack([null, np.eye(len(null))]))[0][:, null.shape[1] :]


def _covariance(root: Array, seen: Array) -> Array:
    """(J'J)^{-1} within the seen directions, (p, p), without squaring the condition of J."""
    reduced = root @ seen
    lengths = column_lengths(reduced)
    inverse = np.linalg.inv(triangle(reduced / lengths))
    spread = (seen / lengths) @ inverse
    return np.asarray(spread @ spread.T)


def combinations(
    identifiability: Identifiability, theta: Array, quantile: float, specs: tuple[ParameterSpec, ...]
) -> tuple[Combination, ...]:
    """Seen combinations of the parameters in null directions: a basis of simple products of powers (log scales) or sums."""
    found = []
    for weights in _complement(identifiability.null, identifiability.hidden):
        value, std = float(weights @ theta), float(np.sqrt(weights @ identifiability.covariance @ weights))
        involved = [(spec, w) for spec, w in zip(specs, weights, strict=True) if w != 0]
        low, high = value - quantile * std, value + quantile * std
        if all(spec.scale == "log" for spec, _ in involved):
            found.append(
                Combination(
                    _product([(s.name, w) for s, w in involved]),
                    _product([(_bracket(s.unit), w) for s, w in involved if s.unit != "-"]),
                    float(np.exp(value)),
                    (float(np.exp(low)), float(np.exp(high))),
                    std,
                )
            )
        else:
            found.append(Combination(_sum(involved), "-", value, (low, high), std))
    return tuple(found)


def without_effect(found: Identifiability, specs: tuple[ParameterSpec, ...]) -> tuple[str, ...]:
    """Hidden parameters that take part in no seen direction."""
    named = zip(specs, found.hidden, found.seen, strict=True)
    return tuple(spec.name for spec, hidden, row in named if hidden and np.abs(row).max(initial=0.0) <= TAKES_PART)


def seen_combinations(found: Identifiability, specs: tuple[ParameterSpec, ...]) -> tuple[str, ...]:
    """Formulas of the seen combinations of hidden parameters."""
    return tuple(_formula(w, specs) for w in _complement(found.null, found.hidden) if np.any(w != 0))


def quantile_95(known_noise: bool, dof: int) -> float:
    """Half width of a 95 % interval in standard deviations: normal if the noise is known, else Student's t."""
    return float(NORMAL if known_noise else stdtrit(max(dof, 1), 0.975))


def clustered_covariance(
    jacobian: Array,
    residual: Array,
    clusters: NDArray[np.intp],
    seen: Array,
    quantile: float = NORMAL,
    prior: Array | None = None,
    variance: float = 1.0,
) -> Array:
    r"""Covariance that survives model error: B (\sum_g s_g s_g' + v P) B, s_g = J_g' (I - H_g)^{-1/2} r_g, B = (J'J + P)^{-1}.

    Residuals of a structurally wrong model are correlated in time; clusters (segments or recordings) are taken as the
    independent units instead of single numbers (Liang and Zeger 1986). A fit follows the most informative clusters, which
    leaves them less than their error: H_g = J_g B J_g' corrects that, so that the covariance is unbiased where errors are
    white. The number of clusters that inform a parameter (few, if its knowledge comes from few) sets its quantile of Student's
    t, with Satterthwaite's degrees of freedom; both after Bell and McCaffrey, Survey Methodology 28 (2002) 169. A prior is one
    more unit, whose spread is known.

    Args:
        jacobian: (N, p) weighted.
        residual: (N,) weighted.
        clusters: (N,) unit that each residual belongs to.
        seen: (p, r) directions.
        quantile: Quantile of a 95 % interval by which standard deviations are later multiplied; they grow by t over it.
        prior: (k, p) rows of the prior with P = prior' prior, None without one: weighted as the residuals are, so that where
            these have variance v the prior's rows are sqrt(v) times the inverse standard deviations.
        variance: v
    """
    reduced = jacobian @ seen
    labels, place = np.unique(clusters, return_inverse=True)
    known = np.zeros((0, len(seen))) if prior is None else prior
    white = np.linalg.inv(triangle(np.vstack([reduced, known @ seen])))  # (r, r), B = white white'
    rows, count, r = reduced @ white, len(labels), seen.shape[1]
    scores, grams, leaned = np.zeros((count, r)), np.zeros((count, r, r)), np.zeros((count, r, r))
    for g in range(count):
        own = place == g
        gram = rows[own].T @ rows[own]
        share, along = np.linalg.eigh(gram)
        free = np.maximum(1.0 - share, 0.0)
        less = (along * np.where(free > ALONE, 1.0 / np.sqrt(np.maximum(free, ALONE)), 0.0)) @ along.T
        scores[g] = less @ rows[own].T @ residual[own]
        grams[g], leaned[g] = less @ gram @ less, gram @ less
    spread = seen @ white
    within = np.einsum("pi,gij,pj->pg", spread, grams, spread)
    across = np.einsum("gij,pj->pgi", leaned, spread)
    weight = within[:, :, None] * np.eye(count) - across @ np.swapaxes(across, 1, 2)
    squares = np.sum(weight**2, axis=(1, 2))
    freedom = np.trace(weight, axis1=1, axis2=2) ** 2 / np.where(squares > 0, squares, np.inf)
    wider = stdtrit(np.maximum(freedom, 1.0), 0.975) / quantile
    told = known @ seen @ white @ spread.T
    spread = spread * wider[:, None]
    return np.asarray(spread @ scores.T @ scores @ spread.T + variance * told.T @ told)


def correlation_in_time(residual: Array) -> float:
    """Correlation of consecutive residuals, (S, L, m) -> [-1, 1]: near 0 for white noise.

    Segments of one step follow each other in time; there noise on the states, r_k = e_{k+1} - A e_k, shows as about -0.5.
    """
    if residual.shape[1] == 1:
        residual = np.swapaxes(residual, 0, 1)
    a, b = residual[:, :-1].ravel(), residual[:, 1:].ravel()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else 0.0


# --- words ----------------------------------------------------------------------------------------------------------


def _complement(null: Array, hidden: NDArray[np.bool_]) -> list[Array]:
    """Weights w with w' null = 0 over the hidden parameters, in reduced echelon form with simple numbers, each (p,).

    Gauss-Jordan on null' leaves [I F] (pivots P, others Q); then w = e_q - sum_P F[P, q] e_P for every q.
    """
    places = np.flatnonzero(hidden)
    rows = null[places].T.copy()
    pivots: list[int] = []
    for row in range(len(rows)):
        rest = np.abs(rows[row:])
        order = [c for c in range(len(places)) if c not in pivots and rest[:, c].max() > 0.3 * rest.max()]
        if not order or rest.max() < TAKES_PART:
            break
        column = order[0]  # the first strong one: gives k / m rather than m / k
        best = row + int(np.argmax(rest[:, column]))
        rows[[row, best]] = rows[[best, row]]
        rows[row] /= rows[row, column]
        others = np.arange(len(rows)) != row
        rows[others] -= np.outer(rows[others, column], rows[row])
        pivots.append(column)
    found = []
    for q in range(len(places)):
        if q not in pivots:
            weights = np.zeros(len(null))
            weights[places[q]] = 1.0
            weights[places[pivots]] = [-_simple(float(rows[i, q])) for i in range(len(pivots))]
            found.append(weights)
    return found


def _simple(value: float) -> float:
    """The nearest fraction with a denominator up to 4, if it is nearer than 0.02."""
    near = float(Fraction(value).limit_denominator(4))
    return near if abs(near - value) < 0.02 else value


def _formula(weights: Array, specs: tuple[ParameterSpec, ...]) -> str:
    involved = [(spec, float(w)) for spec, w in zip(specs, weights, strict=True) if w != 0]
    if all(spec.scale == "log" for spec, _ in involved):
        return _product([(spec.name, w) for spec, w in involved])
    return _sum(involved)


def _product(factors: list[tuple[str, float]]) -> str:
    """Product of powers, e.g. "a b^2 / (c d)"."""

    def join(some: list[tuple[str, float]]) -> str:
        return " ".join(
            name if abs(power) == 1 else f"{name}^{Fraction(abs(power)).limit_denominator(100)}" for name, power in some
        )

    above, below = [f for f in factors if f[1] > 0], [f for f in factors if f[1] < 0]
    if not below:
        return join(above) or "-"
    denominator = join(below) if len(below) == 1 else f"({join(below)})"
    return f"{join(above) or '1'} / {denominator}"


def _sum(involved: list[tuple[ParameterSpec, float]]) -> str:
    terms = []
    for spec, weight in involved:
        if spec.scale == "log":
            terms.append(f"{weight:+.3g} ln({spec.name})")
        else:
            terms.append(f"{weight / float(spec.slope(0.0)):+.3g} {spec.name}")
    return " ".join(terms).removeprefix("+") + " (near this fit)"


def _bracket(unit: str) -> str:
    return f"({unit})" if any(c in unit for c in " /") else unit
