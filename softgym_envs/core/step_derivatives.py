r"""Derivatives of a transcribed motion, assembled from those of one step: quick to build, and as fast as all steps written out.

Every row of the program belongs to one step, whose unknowns are v = (x, u, y, z). The Jacobian is the steps' Jacobians side by
side, the Hessian of the Lagrangian a sum of their :math:`\partial^2 (\lambda_k^T G_k) / \partial v_k^2` and of the objective's.
Legend: K steps, nx state, nu control, nz pairs, N unknowns, M rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HeldSteps:
    """One arc of K steps whose unknowns are x_0 ... x_K, controls, then pairs; rows are scaled g, then f, then z f - tau."""

    step: Any
    """casadi.Function (x, u, p, y, z) -> g, f."""
    parameter_values: Any
    """casadi.DM (P,)."""
    scale: NDArray[np.float64]
    """(nx,) scale of g."""
    count: int
    """Number of steps K."""
    hold: int
    """Steps for which a control is held."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """nx, nu, nz."""
        nx, nu, nz = (int(self.step.size1_in(i)) for i in (0, 1, 4))
        return nx, nu, nz

    def unknowns(self) -> Index:
        """Indices of the v of every step among all unknowns, (K, 2 nx + nu + nz)."""
        (nx, nu, nz), k = self.sizes, np.arange(self.count)[:, None]
        u = nx * (self.count + 1)
        z = u + nu * (self.count // self.hold)
        parts = [nx * k + np.arange(nx), u + nu * (k // self.hold) + np.arange(nu), nx * (k + 1) + np.arange(nx)]
        return np.hstack([*parts, z + nz * k + np.arange(nz)])

    def rows(self) -> Index:
        """Indices of the rows of every step among all rows, (K, nx + 2 nz)."""
        (nx, _, nz), k = self.sizes, np.arange(self.count)[:, None]
        f = nx * self.count
        return np.hstack([nx * k + np.arange(nx), f + nz * k + np.arange(nz), f + nz * (self.count + k) + np.arange(nz)])


class Parts(NamedTuple):
    """Derivatives of one step."""

    jacobian: Any
    """casadi.Function (v, tau) -> nonzero entries of the Jacobian."""
    hessian: Any
    """casadi.Function (v, tau, multipliers) -> nonzero entries of the Hessian."""
    places: tuple[tuple[Index, Index], tuple[Index, Index]]
    """Rows and columns of both."""


def derivatives(ca: Any, steps: HeldSteps, program: dict[str, Any]) -> dict[str, Any]:
    """Options of `casadi.nlpsol`: jac_g and hess_lag of a program with the entries "x", "p" (tau), "f" and "g"."""
    x, tau, parts = program["x"], program["p"], _parts(ca, steps)
    own, lines = steps.unknowns(), steps.rows()
    v = ca.reshape(x[own.ravel().tolist()], own.shape[1], steps.count)
    lam_f, lam_g = ca.MX.sym("lam_f"), ca.MX.sym("lam_g", program["g"].numel())
    lam = ca.reshape(lam_g[lines.ravel().tolist()], lines.shape[1], steps.count)
    (r, c), (i, j) = parts.places
    size = x.numel()
    jacobian = _spread(
        ca, parts.jacobian.map(steps.count)(v, ca.repmat(tau, 1, steps.count)), lines[:, r], own[:, c], (lam_g.numel(), size)
    )
    entries = parts.hessian.map(steps.count)(v, ca.repmat(tau, 1, steps.count), lam)
    above = own[:, i] <= own[:, j]
    hessian = lam_f * ca.triu(ca.hessian(program["f"], x)[0])
    hessian += _spread(ca, entries, own[:, i], own[:, j], (size, size), above)
    return {
        "jac_g": ca.Function("nlp_jac_g", [x, tau], [program["g"], jacobian], ["x", "p"], ["g", "jac_g_x"]),
        "hess_lag": ca.Function(
            "nlp_hess_l", [x, tau, lam_f, lam_g], [hessian], ["x", "p", "lam_f", "lam_g"], ["triu_hess_gamma_x_x"]
        ),
    }


def _parts(ca: Any, steps: HeldSteps) -> Parts:
    nx, nu, nz = steps.sizes
    x, u, y, z = (ca.SX.sym(name, size) for name, size in (("x", nx), ("u", nu), ("y", nx), ("z", nz)))
    v, tau, lam = ca.vertcat(x, u, y, z), ca.SX.sym("tau"), ca.SX.sym("lam", nx + 2 * nz)
    g, f = steps.step(x, u, steps.parameter_values, y, z)
    value = ca.vertcat(ca.DM(steps.scale) * g, f, z * f - tau)
    jacobian, hessian = ca.jacobian(value, v), ca.hessian(ca.dot(lam, value), v)[0]
    places = _places(jacobian), _places(hessian)
    functions = (
        ca.Function("jacobian", [v, tau], [jacobian.nz[:]]), ca.Function("hessian", [v, tau, lam], [hessian.nz[:]]),
    )  # fmt: skip
    return Parts(*functions, places)


def _places(matrix: Any) -> tuple[Index, Index]:
    """Rows and columns of the nonzero entries."""
    rows, columns = matrix.sparsity().get_triplet()
    return np.array(rows, dtype=np.int64), np.array(columns, dtype=np.int64)


def _spread(ca: Any, entries: Any, rows: Index, columns: Index, shape: tuple[int, int], kept: Any = True) -> Any:
    """A sparse matrix of that shape from entries (k, K) at rows and columns (K, k); those at one place are added up."""
    kept = np.flatnonzero(np.broadcast_to(kept, rows.shape).ravel())
    keys, where = np.unique(columns.ravel()[kept] * shape[0] + rows.ravel()[kept], return_inverse=True)
    ends = np.searchsorted(keys // shape[0], np.arange(shape[1] + 1))
    pattern = ca.Sparsity(*shape, ends.tolist(), (keys % shape[0]).tolist())
    adding = ca.Sparsity.triplet(len(keys), rows.size, where.ravel().tolist(), kept.tolist())
    return ca.MX(pattern, ca.mtimes(ca.DM(adding, np.ones(len(kept))), ca.vec(entries)))
