"""Points in a triangulation are found where scipy finds them, on faces beside flat ones too."""

from __future__ import annotations

import numpy as np
import pytest

from simulate.goodput.tetrahedra import Tetrahedra

spatial = pytest.importorskip("scipy.spatial")


@pytest.mark.parametrize("seed", range(4))
def test_points_are_found_where_scipy_finds_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lattice = [
        (nodes, replicas, local)
        for nodes in (1, 2, 4, 6, 8)
        for replicas in range(nodes, 4 * nodes + 1, max(nodes // 2, 1))
        for local in sorted(rng.choice(np.arange(20, 90), 5, replace=False).tolist())
    ]
    points = np.array(lattice, np.float64)
    mesh, ours = spatial.Delaunay(points), Tetrahedra(points)
    assert np.isnan(mesh.transform).any(), "there are flat ones"
    values = rng.random(len(points))
    where = np.stack([rng.integers(1, 9, 300), rng.integers(1, 33, 300), rng.integers(20, 90, 300)])
    inside = 0
    for point in where.T.astype(np.float64):
        cell, found = int(mesh.find_simplex(point[None])[0]), ours.find(point)
        assert (cell < 0) == (found is None)
        if found is None:
            continue
        inside += 1
        to_weights = mesh.transform[cell]
        three = to_weights[:3] @ (point - to_weights[3])
        expected = np.append(three, 1 - three.sum()) @ values[mesh.simplices[cell]]
        corners, weights = found
        assert weights @ values[corners] == pytest.approx(expected, rel=1e-12)
    assert inside > 30
