"""Numba kernels of `obstacles`: distances of many points and segments from a convex polygon in its frame [m]."""

from __future__ import annotations

import numpy as np

from ...engines.numba.engine import kernel, lean

MARGIN = 1e-9
"""Distance [m] beyond a bound at which rounding does not matter."""


@lean
def _reach(px, py, ax, ay, bx, by):  # type: ignore[no-untyped-def]
    """Distance of a point p from a segment a, b."""
    dx, dy = bx - ax, by - ay
    share = ((px - ax) * dx + (py - ay) * dy) / max(dx * dx + dy * dy, 1e-30)
    share = min(max(share, 0.0), 1.0)
    return np.hypot(ax + share * dx - px, ay + share * dy - py)


@lean
def _signed(corners, px, py):  # type: ignore[no-untyped-def]
    """Distance of a point from the polygon's nearest edge; inside, minus that depth."""
    face, nearest = -np.inf, np.inf
    for k in range(len(corners)):
        ax, ay, bx, by = corners[k - 1, 0], corners[k - 1, 1], corners[k, 0], corners[k, 1]
        nearest = min(nearest, _reach(px, py, ax, ay, bx, by))
        face = max(face, _side(ax, ay, px, py, bx, by) / np.hypot(bx - ax, by - ay))
    return face if face <= 0.0 else nearest


@lean
def _side(px, py, qx, qy, rx, ry):  # type: ignore[no-untyped-def]
    """Twice the area of the triangle p, q, r; positive counter-clockwise."""
    return (qx - px) * (ry - py) - (qy - py) * (rx - px)


@kernel
def point_distances(corners, points, found):  # type: ignore[no-untyped-def]
    """Signed distances (n,) of points (n, 2) from the polygon with these corners (V, 2)."""
    for i in range(len(points)):
        found[i] = _signed(corners, points[i, 0], points[i, 1])


@lean
def _segment(corners, ax, ay, bx, by):  # type: ignore[no-untyped-def]
    """See `segment_distances`."""
    if len(corners) == 1:
        return _reach(corners[0, 0], corners[0, 1], ax, ay, bx, by)
    least = min(_signed(corners, ax, ay), _signed(corners, bx, by))
    for k in range(len(corners)):
        cx, cy, dx, dy = corners[k - 1, 0], corners[k - 1, 1], corners[k, 0], corners[k, 1]
        apart = _side(ax, ay, bx, by, cx, cy) * _side(ax, ay, bx, by, dx, dy) < 0.0
        if apart and _side(cx, cy, dx, dy, ax, ay) * _side(cx, cy, dx, dy, bx, by) < 0.0:
            least = min(least, 0.0)
        if least > 0.0:
            least = min(least, _reach(cx, cy, ax, ay, bx, by))
    return least


@kernel
def segment_distances(corners, a, b, found):  # type: ignore[no-untyped-def]
    """Smallest distances (n,) of segments a, b (n, 2) from the polygon with these corners (V, 2), or from a point (V = 1).

    Where they overlap it is negative: minus the depth of the deeper end, and at most 0 for a segment that crosses an edge.
    """
    for i in range(len(a)):
        ax, ay, bx, by = a[i, 0], a[i, 1], b[i, 0], b[i, 1]
        if i > 0 and ax == a[i - 1, 0] and ay == a[i - 1, 1] and bx == b[i - 1, 0] and by == b[i - 1, 1]:
            found[i] = found[i - 1]  # links beyond a tip all lie there
        else:
            found[i] = _segment(corners, ax, ay, bx, by)


@lean
def _beyond_a_side(corners, normals, least, ax, ay, bx, by):  # type: ignore[no-untyped-def]
    """Whether both ends of a segment, and so all of it, are more than `least` beyond one side of a convex polygon."""
    for k in range(len(corners)):
        cx, cy, nx, ny = corners[k, 0], corners[k, 1], normals[k, 0], normals[k, 1]
        if min(nx * (ax - cx) + ny * (ay - cy), nx * (bx - cx) + ny * (by - cy)) > least:
            return True
    return False


@kernel
def lines_apart(corners, normals, radius, reach, poses, turns, lines, least, found):  # type: ignore[no-untyped-def]
    """Whether lines (B, L, k, 2) are more than `least` away from a shape at poses (B, 3), (B,); see `segment_distances`.

    No point farther than `reach` from a pose is within `least` of the shape. `normals`: of its sides (V, 2), of a point 0;
    `turns`: cosines and sines of the poses' angles, (B, 2).
    """
    for row in range(len(lines)):
        c, s = turns[row, 0], turns[row, 1]
        found[row] = True
        for line in range(lines.shape[1]):
            bx, by = 0.0, 0.0
            for k in range(lines.shape[2]):
                ax, ay = bx, by
                dx, dy = lines[row, line, k, 0] - poses[row, 0], lines[row, line, k, 1] - poses[row, 1]
                bx, by = c * dx + s * dy, c * dy - s * dx
                far = reach + abs(bx - ax) + abs(by - ay) + MARGIN
                if k == 0 or not found[row] or ax * ax + ay * ay > far * far:
                    continue
                if _beyond_a_side(corners, normals, least + MARGIN, ax, ay, bx, by):
                    continue
                if _segment(corners, ax, ay, bx, by) - radius <= least:
                    found[row] = False
