"""Metrics of link prediction by the rules of the Open Graph Benchmark, with given negatives: the program's ``mrr`` and ``hits@K``.

Scores are NumPy arrays or torch tensors, on any device. A score of NaN, or no positive, gives NaN.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .graph import is_tensor

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    Scores = npt.NDArray[Any] | torch.Tensor

__all__ = ["hits_at", "mean_reciprocal_rank"]


def mean_reciprocal_rank(positives: Scores, negatives: Scores) -> float:
    """The mean over positive links of one over their rank among their negatives. Ties count half, as in OGB.

    Args:
        positives: scores of P links.
        negatives: scores of each link's own negatives, P × N, or of N negatives that all links share.

    Raises:
        ValueError: shapes do not agree.

    >>> import numpy
    >>> mean_reciprocal_rank(numpy.array([3.0, 1.0]), numpy.array([[2.0, 1.0], [2.0, 0.0]]))
    0.75
    """
    above, ties = _counts(positives, negatives)
    return float((1 / (1 + above + 0.5 * ties)).mean())


def hits_at(k: int, positives: Scores, negatives: Scores) -> float:
    """The share of the positive links that are among the first ``k``.

    Of N negatives that all links share a hit scores above the ``k``-th of them, and all are hits where there are fewer: OGB's Hits@K of
    ogbl-collab, ogbl-ppa and ogbl-ddi. Of negatives for each link a hit has a rank of at most ``k``, where ties count half: the ``hits@k``
    of OGB's MRR.

    Args:
        k: from 1 on.
        positives: scores of P links.
        negatives: as of :func:`mean_reciprocal_rank`.

    Raises:
        ValueError: shapes do not agree, or ``k`` is less than 1.

    >>> import numpy
    >>> hits_at(2, numpy.array([3.0, 1.0, 0.5]), numpy.array([2.0, 0.5, 0.0]))
    0.6666666666666666
    """
    if k < 1:
        raise ValueError(f"k: should be an integer from 1 on, is {k}")
    above, ties = _counts(positives, negatives)
    rank = 1 + above + (ties if negatives.ndim == 1 else 0.5 * ties)
    # A comparison with NaN is no hit; the metric is NaN as the ranks are.
    return float(((rank <= k) + 0 * rank).mean())


def _counts(positives: Any, negatives: Any) -> tuple[Any, Any]:
    """Of each positive the number of its negatives that score higher, and as high: floats, NaN where a score is one."""
    if positives.ndim != 1 or negatives.ndim not in (1, 2) or (negatives.ndim == 2 and len(negatives) != len(positives)):
        shapes = tuple(positives.shape), tuple(negatives.shape)
        raise ValueError(f"scores should be P, and P x N or N, are {shapes[0]} and {shapes[1]}")
    if is_tensor(positives) != is_tensor(negatives):
        raise ValueError("scores are NumPy arrays and torch tensors; give one kind")
    library: Any = importlib.import_module("torch" if is_tensor(positives) else "numpy")
    if is_tensor(positives):
        positives, negatives = (scores.detach().to(positives.device, library.float64) for scores in (positives, negatives))
    else:
        positives, negatives = (scores.astype(library.float64) for scores in (positives, negatives))
    if not len(positives):
        return library.full((1,), library.nan), library.zeros(1)
    # NaN where a score is, and 0 elsewhere.
    wrong = library.zeros_like(positives)
    wrong[library.isnan(positives) | bool(library.isnan(negatives).any())] = library.nan
    if negatives.ndim == 2:
        above, ties = (negatives > positives[:, None]).sum(1), (negatives == positives[:, None]).sum(1)
    else:
        negatives = negatives.sort().values if is_tensor(negatives) else library.sort(negatives)
        not_above = library.searchsorted(negatives, positives, side="right")
        above, ties = len(negatives) - not_above, not_above - library.searchsorted(negatives, positives, side="left")
    return above + wrong, ties + wrong
