"""A sum of readable terms."""

from __future__ import annotations

import numpy as np
import pytest

from dlsched.policies.learning.additive import AdditiveModel, Boosting

MANY = Boosting(rounds=200, pairs=1, cap=1.0)


def rows() -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(7)
    a, b = rng.integers(0, 4, 4000).astype(float), rng.uniform(0, 10, 4000)
    kind = rng.integers(0, 5, 4000).astype(float)
    target = 100 * a + 30 * (b > 5) + np.array([0, 50, 0, 200, 0])[kind.astype(int)]
    return {"a": a, "b": b, "kind": kind}, target


def test_a_sum_of_functions_is_found_again() -> None:
    features, target = rows()
    model = AdditiveModel.fit(features, target, kinds=("kind",), boosting=MANY)
    assert np.abs(model.predict(features) - target).mean() < 5
    shape = model.terms({"a": np.array([0.0, 3.0]), "b": np.ones(2), "kind": np.zeros(2)})["a"]
    assert shape[1] - shape[0] == pytest.approx(300, abs=5)
    moves = {name: np.abs(term).mean() for name, term in model.terms(features).items()}
    assert max(moves, key=moves.__getitem__) == "a"


def test_base_and_terms_add_up_to_the_prediction() -> None:
    features, target = rows()
    model = AdditiveModel.fit(features, target, boosting=MANY)
    total = model.base + np.sum(list(model.terms(features).values()), axis=0)
    assert np.allclose(total, model.predict(features))
    for values in model.terms(features).values():
        assert abs(values.mean()) < 1e-6 * target.max() + 1


def test_a_product_of_two_features_becomes_a_pair() -> None:
    rng = np.random.default_rng(3)
    a, b, c = rng.integers(0, 2, (3, 4000)).astype(float)
    features = {"a": a, "b": b, "c": c}
    model = AdditiveModel.fit(features, 100 * (a == b), boosting=MANY)
    assert [(model.names[i], model.names[j]) for i, j, _ in model.pairs] == [("a", "b")]
    assert np.abs(model.predict(features) - 100 * (a == b)).max() < 5


def test_the_unknown_and_the_new_have_a_term_of_their_own() -> None:
    features, target = rows()
    features["a"][:500] = np.nan
    model = AdditiveModel.fit(features, target, kinds=("kind",), boosting=MANY)
    one = {"a": np.array([np.nan]), "b": np.array([99.0]), "kind": np.array([77.0])}
    assert np.isfinite(model.predict(one)).all()


def test_a_model_goes_on_from_its_state() -> None:
    features, target = rows()
    model = AdditiveModel.fit(features, target, kinds=("kind",))
    again = AdditiveModel.of_state(model.state_dict())
    assert again.predict(features).tolist() == model.predict(features).tolist()


def test_a_few_huge_values_do_not_decide_everything() -> None:
    target = np.full(1000, 10.0)
    target[:20] = 1e6
    model = AdditiveModel.fit({"x": np.arange(1000.0)}, target)
    assert model.base == 10.0
