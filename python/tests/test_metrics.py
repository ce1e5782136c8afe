"""Metrics of links equal plain counting, by OGB's rules."""

from __future__ import annotations

import math

import numpy as np
import pytest

from halfgnn import metrics


def ranks(positives, negatives):
    """Optimistic and pessimistic ranks, one comparison after the other."""
    found = []
    for at, score in enumerate(positives):
        own = negatives if negatives.ndim == 1 else negatives[at]
        found.append((1 + sum(other > score for other in own), 1 + sum(other >= score for other in own)))
    return found


def expected(metric, positives, negatives):
    both = ranks(positives, negatives)
    if metric == "mrr":
        return sum(2 / (one + other) for one, other in both) / len(both)
    if negatives.ndim == 2:
        return sum((one + other) / 2 <= metric for one, other in both) / len(both)
    if len(negatives) < metric:
        return 1.0
    bar = sorted(negatives)[-metric]
    return sum(score > bar for score in positives) / len(positives)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("shape", [(30,), (17, 30), (17, 1), (1,)])
def test_metrics_are_what_they_are_by_definition(library, levels, shape, rng):
    for _ in range(5):
        positives, negatives = (rng.integers(-levels, levels, size).astype(np.float32) for size in (17, shape))
        made = np.asarray if library == "numpy" else pytest.importorskip("torch").from_numpy
        given = made(positives), made(negatives)
        assert metrics.mean_reciprocal_rank(*given) == pytest.approx(expected("mrr", positives, negatives), abs=1e-12)
        for k in (1, 3, 20, 50):
            assert metrics.hits_at(k, *given) == pytest.approx(expected(k, positives, negatives), abs=1e-12)


def test_half_scores_and_scores_that_are_no_numbers():
    torch = pytest.importorskip("torch")
    positives, negatives = torch.tensor([1.0, 0.5]).half(), torch.tensor([0.75, 1.0])
    assert metrics.mean_reciprocal_rank(positives, negatives) == (2 / 3 + 1 / 3) / 2
    assert metrics.hits_at(1, positives, negatives) == 0 and metrics.hits_at(2, positives, negatives) == 0.5
    wrong = torch.tensor([math.nan, 1.0])
    none = np.zeros(0)
    for metric in (metrics.mean_reciprocal_rank, lambda *scores: metrics.hits_at(1, *scores)):
        for scores in ((wrong, negatives), (positives, wrong), (positives, wrong.view(2, 1)), (none, np.ones(3)), (none, np.ones((0, 3)))):
            assert math.isnan(metric(*scores))
        assert metric(np.array([math.inf]), np.array([1.0])) == 1 and metric(np.array([-1.0]), none) == 1


@pytest.mark.parametrize(
    ("positives", "negatives", "words"),
    [
        (np.zeros((2, 1)), np.zeros(2), "should be P, and P x N or N"),
        (np.zeros(2), np.zeros((3, 4)), r"are \(2,\) and \(3, 4\)"),
        (np.zeros(2), 0, "one kind"),
    ],
)
def test_shapes_that_do_not_agree_are_refused(positives, negatives, words):
    negatives = pytest.importorskip("torch").zeros(2) if isinstance(negatives, int) else negatives
    with pytest.raises(ValueError, match=words):
        metrics.mean_reciprocal_rank(positives, negatives)
    with pytest.raises(ValueError, match="k: should be an integer from 1 on, is 0"):
        metrics.hits_at(0, np.zeros(2), np.zeros(2))
