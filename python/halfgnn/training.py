"""Training as the program ``halfgnn`` does it: the whole step on the device, recorded once and replayed.

A :class:`Trainer` has a model of its own, with half, bfloat16 or float features and float master weights. It needs neither torch nor
PyG; :meth:`Trainer.state_dict` and :meth:`Trainer.load_state_dict` carry weights to and from their layers.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from . import _core
from ._fields import FEATURES, SPLITS, TARGETS, check_names, given, graph_of, on_host, selected
from .device import Place, host
from .graph import Graph, is_tensor
from .sampling import check_counts

Precision = Literal["half", "bfloat16", "float"]

_PRECISIONS = {"half": 0, "float16": 0, "bfloat16": 1, "bf16": 1, "float": 2, "float32": 2}
_SPLITS = ("train", "validation", "test")
_OF_VALUES = ("mse", "mae", "rmse", "r2")
_WORD = 2**32 - 1


@dataclass(frozen=True)
class Epoch:
    """One epoch: a training step, and the evaluation after it."""

    #: Which epoch, from 1.
    epoch: int
    #: The loss of the training vertices in the step, with dropout.
    loss: float
    #: The learning rate of the step.
    learning_rate: float
    #: The metric that chooses the best epoch.
    metric: str
    #: Its values on the three splits.
    train: float
    validation: float
    test: float
    #: Milliseconds of the step.
    ms: float
    #: Steps that an overflow has skipped so far.
    skipped: int

    @staticmethod
    def _of(report: dict[str, Any]) -> Epoch:
        score, optimizer = _score(report["score"]), report["optimizer"]
        return Epoch(
            report["epoch"],
            _number(report["loss"]),
            report["learning_rate"],
            score[0],
            *score[1],
            report["ms"],
            optimizer["skipped"],
        )

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch}: loss {self.loss:.4f}, {self.metric} {self.train:.4g} train, {self.validation:.4g} validation, "
            f"{self.test:.4g} test"
        )


@dataclass(frozen=True)
class Run:
    """What has come of a run so far."""

    #: ``finished``, ``stopped``, ``early stopped``, or ``diverged in epoch N``.
    status: str
    #: The first epoch with the best validation; none where no epoch has a validation score.
    best: Epoch | None
    #: The last epoch.
    last: Epoch | None
    #: Milliseconds of a training step.
    ms_per_epoch: float
    #: All epochs of :meth:`Trainer.fit`'s calls.
    history: list[Epoch] = field(default_factory=list, repr=False)

    @property
    def kept(self) -> Epoch | None:
        """The epoch whose weights are saved: the best one, or the last one where no epoch has a validation score."""
        return self.last if self.best is None else self.best

    @property
    def test(self) -> float:
        """The metric on the test vertices at the kept epoch; NaN before the first."""
        return float("nan") if self.kept is None else self.kept.test


class Trainer:
    """A model in training on a whole graph, or on batches of it.

    >>> import numpy as np, halfgnn
    >>> ids = np.arange(60)
    >>> data = {"edge_index": np.stack([ids, (ids + 2) % 60]), "x": np.eye(2)[ids % 2], "y": ids % 2}
    >>> data |= {"train_mask": ids < 20, "val_mask": (ids >= 20) & (ids < 40), "test_mask": ids >= 40}
    >>> trainer = halfgnn.Trainer(data, "gcn", hidden=8, epochs=40, device="cpu")
    >>> trainer.fit().test
    100.0

    Args:
        data: a PyG ``Data`` (``edge_index`` or ``adj_t``, ``x``, ``y``, ``train_mask``, ``val_mask``, ``test_mask``, and
            ``edge_weight`` where there is one), a DGL graph with the same in ``ndata`` (``feat``, ``label``, the masks), a mapping of
            the same names to arrays, or the path or the name of a dataset that the program ``halfgnn`` reads. A split is a mask, one
            truth or one 0 or 1 a vertex, of any type, or a list of vertices, each once; its name may be OGB's (``train``, ``valid``,
            ``test``) as well.
        model: ``gcn``, ``sage``, ``gat``, ``gin``, or another of the program's.
        precision: of features and activations: ``half``, ``bfloat16`` or ``float``. Master weights are float.
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto``: the first GPU if there is one, else the CPU.
        hidden: width of the hidden layers, or a list of a width for each.
        layers: number of layers.
        dropout: of the layers' inputs, one for all or a list.
        residual: whether a layer's input is added to its output where they are of one width.
        activation: behind hidden layers: ``relu``, ``elu``, ``leaky-relu``, ``gelu``, ``tanh`` or ``none``; by default the model's own.
        hidden_norm: behind hidden layers: ``batch``, ``layer``, ``pair`` or ``graph``, PyG's ``BatchNorm``, ``LayerNorm(mode='node')``,
            ``PairNorm`` and ``GraphNorm``.
        jumping: of all layers' outputs, ``cat``, ``max`` (PyG's ``jk``), or ``all`` with the features as well.
        epochs: training steps in all.
        lr: the learning rate.
        weight_decay: an L2 penalty; of ``adamw`` what shrinks the weights.
        optimizer: ``adam``, ``adamw`` or ``sgd``.
        momentum: of ``sgd``.
        schedule: ``constant``, ``cosine``, ``step:EVERY,FACTOR`` or ``plateau:PATIENCE,FACTOR``.
        warmup: epochs in which the learning rate grows to its full size.
        early_stopping: epochs without a better validation after which the run ends.
        metric: what chooses the best epoch, by the program's names: ``accuracy``, ``micro-f1``, ``roc-auc``, ``mae`` ….
        loss: of values ``mse`` or ``mae``; by default what the targets customarily have.
        class_weights: what vertices of each class count in the loss.
        seed: of weights and dropout.
        record: whether a step is recorded once and replayed, where the device gains by it.
        sampler: to learn in batches, how their in-neighbors are sampled: ``neighbor:15,10``, ``saint-rw:2000,4``, or another of
            :class:`halfgnn.Loader`'s. The evaluation is of the whole graph.
        batch_size: training vertices of a batch, or clusters.
        coverage: of GraphSAINT's samplers, how many times the graph's vertices are sampled first.
        **options: those of one kind of model, by the program's names with underscores: ``heads=8`` of ``gat``; and splits in the place
            of the data's: ``train_mask=…``, or OGB's ``train=…, valid=…, test=…``.

    Defaults are the program's: ``halfgnn train --help`` has them.

    Targets ``y`` that are whole numbers, of any type, are classes from 0, with -1 or NaN where there is none; a matrix of zeros and ones
    has any number of labels a vertex, of which -1 and NaN are unknown and count in no loss or metric; other numbers are values to
    regress, and so are whole floats with a loss or a metric of values. NaN is unknown.

    Raises:
        ValueError: an option that there is not, or arrays that do not fit one another.
        OSError: a file that cannot be read.
    """

    def __init__(
        self,
        data: Any,
        model: str = "gcn",
        *,
        precision: Precision = "half",
        device: Any = "auto",
        hidden: int | Sequence[int] | None = None,
        layers: int | None = None,
        dropout: float | Sequence[float] | None = None,
        residual: bool = False,
        activation: str | None = None,
        hidden_norm: str | None = None,
        jumping: str | None = None,
        epochs: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        optimizer: Literal["adam", "adamw", "sgd"] = "adam",
        momentum: float | None = None,
        schedule: str | None = None,
        warmup: int | None = None,
        early_stopping: int | None = None,
        metric: str | None = None,
        loss: Literal["mse", "mae"] | None = None,
        class_weights: Sequence[float] | None = None,
        seed: int = 0,
        record: bool = True,
        sampler: str | None = None,
        batch_size: int | None = None,
        coverage: int | None = None,
        **options: Any,
    ) -> None:
        if precision not in _PRECISIONS:
            raise ValueError(f"precision {precision!r}; take half, bfloat16 or float")
        if loss not in (None, "mse", "mae"):
            raise ValueError(f"loss {loss!r}; take mse or mae")
        limits = _core.limits()
        _check_sizes("layers", layers, limits["layers"])
        _check_sizes("hidden", hidden, limits["hidden"])
        for name, number in (("epochs", epochs), ("warmup", warmup), ("early_stopping", early_stopping)):
            _check_sizes(name, number, _WORD, least=0)
        _check_sizes("seed", seed, 2**64 - 1, least=0)
        splits = {name: options.pop(name) for names in SPLITS for name in names if name in options}
        wanted = _Options()
        wanted.model = model
        wanted.own = {
            name.replace("_", "-"): "" if value is True else str(value)
            for name, value in options.items()
            if value is not False
        }
        wanted.layers = layers
        wanted.hidden = [hidden] if isinstance(hidden, int) else None if hidden is None else list(hidden)
        wanted.dropout = (
            [float(dropout)] if isinstance(dropout, (int, float)) else None if dropout is None else list(dropout)
        )
        wanted.residual, wanted.epochs, wanted.optimizer = residual, epochs, optimizer
        wanted.activation, wanted.hidden_norm, wanted.jumping = activation, hidden_norm, jumping
        wanted.lr, wanted.weight_decay, wanted.momentum = lr, weight_decay, momentum
        wanted.schedule, wanted.warmup, wanted.early_stopping = schedule, warmup, early_stopping
        wanted.metric, wanted.loss, wanted.seed, wanted.record = metric, loss, seed, record
        wanted.keywords = [*inspect.signature(Trainer).parameters, *(name for names in SPLITS for name in names)]
        check_counts(batch_size=batch_size, coverage=coverage)
        wanted.sampler, wanted.batch_size, wanted.coverage = sampler, batch_size, coverage
        wanted.class_weights = None if class_weights is None else [float(weight) for weight in class_weights]
        are_values = loss is not None or metric in _OF_VALUES
        self._data = _dataset(data, splits, are_values=are_values)
        self._inner = _core.Trainer(_place(device), _PRECISIONS[precision], self._data, wanted)
        self._history: list[Epoch] = []
        self._stopped = False

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], data: Any, *, device: Any = "auto", epochs: int | None = None
    ) -> Trainer:
        """The run in a file of :meth:`save` or of the program's ``--save``, to go on with, with the same bits as if it had never
        stopped. ``epochs`` in all, where there are to be more.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is no checkpoint, or one of another dataset.
        """
        trainer = object.__new__(cls)
        trainer._data = _dataset(data)
        trainer._inner = _core.Trainer.load(_place(device), path, trainer._data, epochs)
        trainer._history, trainer._stopped = [], False
        return trainer

    def save(self, path: str | os.PathLike[str]) -> None:
        """Keeps the run in a safetensors file, which the program goes on with (``halfgnn train --resume``) and predicts with.

        Raises:
            OSError: it cannot be written.
        """
        self._inner.save(path)

    def step(self) -> None:
        """One training step on the whole graph, without the evaluation; on a GPU it may still be under way on return."""
        self._inner.step()

    @property
    def loss(self) -> float:
        """The loss of the last step, the mean over the training vertices."""
        return self._inner.loss()

    def epochs(self) -> Iterator[Epoch]:
        """The epochs from here on, each as it is done: a loop over them may be left at any time."""
        while (report := self._inner.next_epoch()) is not None:
            epoch = Epoch._of(json.loads(report))
            self._history.append(epoch)
            yield epoch

    def fit(
        self,
        *,
        callbacks: Sequence[Callable[[Epoch], Any]] = (),
        progress: bool = False,
        save: str | os.PathLike[str] | None = None,
    ) -> Run:
        """Trains to the end. Ctrl-C ends it after the epoch under way: what has been learnt stays, and :meth:`fit` goes on with it.

        Args:
            callbacks: called with each :class:`Epoch`; one that returns False ends the training.
            progress: whether it is shown: a bar of tqdm's where that is installed, in notebooks as well, else lines.
            save: a file in which the run is kept at each best epoch and at the end. Without a validation score the last epoch is kept.

        Warns:
            UserWarning: no epoch has a validation score.
        """
        return self._fit(callbacks, progress, save)

    def _fit(
        self,
        callbacks: Sequence[Callable[[Epoch], Any]],
        progress: bool,
        save: str | os.PathLike[str] | None,
    ) -> Run:
        """:meth:`fit`, whose warnings name the line that called the caller of this."""
        self._stopped = False
        show = _progress(progress, self)
        try:
            for epoch in self.epochs():
                show(epoch)
                if save is not None and _is(self._inner.summary()[2], epoch):
                    self.save(save)
                if any([callback(epoch) is False for callback in callbacks]):
                    self._stopped = True
                    break
        except KeyboardInterrupt:
            self._stopped = True
        finally:
            show(None)
        if save is not None:
            self.save(save)
        run = self.summary()
        if run.best is None and run.last is not None:
            warnings.warn(
                f"no epoch has a validation {run.last.metric}, so the last epoch is kept; give some vertices a val_mask",
                stacklevel=3,
            )
        return run

    def summary(self) -> Run:
        """What has come of the run so far."""
        status, ms, best, last = self._inner.summary()
        first, second = (
            None if report is None else Epoch._of(report) for report in map(json.loads, (best, last))
        )
        return Run("stopped" if self._stopped else status, first, second, ms, list(self._history))

    def evaluate(self) -> dict[str, dict[str, float]]:
        """What the metrics say of the model as it is: by name, then by split."""
        first, others = json.loads(self._inner.evaluate())
        scores = [_score(score) for score in (first, *others)]
        return {name: dict(zip(_SPLITS, values, strict=True)) for name, values in scores}

    def predict(self) -> Any:
        """What the model as it is gives of each vertex, a float array of vertices × classes, labels or values: logits."""
        import numpy as np

        rows, columns, values = self._inner.logits()
        return np.array(values, dtype=np.float32).reshape(rows, columns)

    def state_dict(self, framework: Literal["pyg", "dgl"] = "pyg") -> dict[str, Any]:
        """The parameters of the best validation epoch under the names and in the shapes of PyG's layers (``convs.0.lin.weight``) or
        DGL's: torch tensors, for ``load_state_dict``.

        Raises:
            ValueError: the framework's layers cannot do what the model does.
        """
        import torch

        tensors, notes = self._inner.state_dict(_is_dgl(framework))
        for note in notes:
            print(note, file=sys.stderr)
        return {name: torch.tensor(values).reshape(shape) for name, (shape, values) in tensors.items()}

    def load_state_dict(
        self, tensors: Mapping[str, Any], framework: Literal["pyg", "dgl"] = "pyg"
    ) -> None:
        """Takes the parameters of the same model of PyG's layers or DGL's, and goes on from them.

        Raises:
            ValueError: they are of another model.
        """
        import numpy as np

        values = {}
        for name, tensor in tensors.items():
            array = tensor.detach().cpu().float().numpy() if is_tensor(tensor) else np.asarray(tensor, dtype=np.float32)
            values[name] = (list(array.shape), array.ravel().tolist())
        self._inner.load_state_dict(_is_dgl(framework), values)

    def to_pyg(self) -> dict[str, Any]:
        """:meth:`state_dict` of PyG's names."""
        return self.state_dict("pyg")

    @property
    def device(self) -> str:
        """The device's name."""
        return self._inner.state()[0]

    @property
    def peak_bytes(self) -> int:
        """The most memory that it has held on the device."""
        return self._inner.state()[1]

    @property
    def is_recorded(self) -> bool:
        """Whether steps are replayed by now."""
        return self._inner.state()[2]

    @property
    def learning_rate(self) -> float:
        """That of the next step."""
        return self._inner.state()[3]

    def __repr__(self) -> str:
        vertices, edges, *_ = self._data.counts()
        return f"Trainer({vertices} vertices, {edges} edges, on {self.device})"


def train(data: Any, model: str = "gcn", *, progress: bool = False, **options: Any) -> Run:
    """Trains a model to the end: :class:`Trainer` and :meth:`Trainer.fit`.

    Args:
        data, model, options: as of :class:`Trainer`.
        progress: as of :meth:`Trainer.fit`.

    >>> import numpy as np, halfgnn
    >>> ids = np.arange(60)
    >>> data = {"edge_index": np.stack([ids, (ids + 2) % 60]), "x": np.eye(2)[ids % 2], "y": ids % 2}
    >>> data |= {"train_mask": ids < 20, "val_mask": (ids >= 20) & (ids < 40), "test_mask": ids >= 40}
    >>> halfgnn.train(data, "gin", hidden=8, epochs=40, device="cpu").status
    'finished'
    """
    return Trainer(data, model, **options)._fit((), progress, None)


class _Options:
    """What the extension module reads."""

    model: str
    own: dict[str, str]
    layers: int | None
    hidden: list[int] | None
    dropout: list[float] | None
    residual: bool
    activation: str | None
    hidden_norm: str | None
    jumping: str | None
    epochs: int | None
    optimizer: str
    lr: float | None
    weight_decay: float | None
    momentum: float | None
    schedule: str | None
    warmup: int | None
    early_stopping: int | None
    metric: str | None
    loss: str | None
    keywords: list[str]
    class_weights: list[float] | None
    seed: int
    record: bool
    sampler: str | None
    batch_size: int | None
    coverage: int | None


def _is_dgl(framework: str) -> bool:
    if framework not in ("pyg", "dgl"):
        raise ValueError(f"framework {framework!r}; take pyg or dgl")
    return framework == "dgl"


def _score(score: dict[str, Any]) -> tuple[str, tuple[float, float, float]]:
    train, validation, test = (_number(value) for value in score["values"])
    return score["metric"], (train, validation, test)


def _number(value: float | str | None) -> float:
    """JSON has no NaN."""
    return float("nan") if value is None else float(value)


def _is(best: str, epoch: Epoch) -> bool:
    report = json.loads(best)
    return report is not None and report["epoch"] == epoch.epoch


def _place(device: Any) -> Place:
    name = str(device)
    if name == "auto":
        try:
            return (1, 0, 0) if _core.survey() else host()
        except RuntimeError:
            return host()
    if name == "cpu":
        return host()
    kind, _, ordinal = name.partition(":")
    if kind == "cuda" and (ordinal.isdigit() or not ordinal):
        return (1, int(ordinal or 0), 0)
    raise ValueError(f"device {name!r}; take auto, cpu, cuda or cuda:N")


def _check_sizes(name: str, sizes: Any, most: int, least: int = 1) -> None:
    """That numbers are some that the program takes."""
    if hasattr(sizes, "tolist"):
        sizes = sizes.tolist()
    for size in sizes if isinstance(sizes, Sequence) and not isinstance(sizes, str) else [sizes]:
        if size is None:
            continue
        if not hasattr(size, "__index__") or not least <= size <= most:
            raise ValueError(f"{name} {size!r}; take a whole number from {least} to {most}")


def _dataset(data: Any, splits: Mapping[str, Any] | None = None, *, are_values: bool = False) -> _core.Data:
    splits = splits or {}
    if isinstance(data, (str, os.PathLike, _core.Data)):
        if splits:
            raise ValueError(f"{next(iter(splits))}: a dataset of a file has its splits in the file; leave it out")
        return data if isinstance(data, _core.Data) else _core.Data.open(data)
    import numpy as np

    from . import _numpy

    check_names(data)
    features, targets = given(data, *FEATURES), given(data, *TARGETS)
    if features is None or targets is None:
        raise ValueError(f"{type(data).__name__}: it has no x or no y, which are features and targets of the vertices")
    features, targets = on_host(features), on_host(targets)
    if features.ndim != 2:
        raise ValueError(f"x: should be vertices x features, is {features.shape}")
    if given(data, "edge_attr") is not None:
        warnings.warn("edge_attr: Trainer has no use for features of edges, and leaves them out", stacklevel=3)
    vertices = len(features)
    graph = graph_of(data, vertices)
    weight: Any = graph._without_ones().weight
    graph = graph.numpy()
    if (graph.num_src, graph.num_dst) != (vertices, vertices):
        raise ValueError(f"x: has {vertices} rows, and the graph goes from {graph.num_src} to {graph.num_dst} vertices")
    if weight is not None:
        weight = np.ascontiguousarray(on_host(weight), dtype=np.float32)
        if weight.shape != (graph.num_edges,):
            raise ValueError(f"edge_weight: should be {graph.num_edges}, is {weight.shape}")
        weight = weight if graph._order is None else weight[graph._order]
    kind, columns, targets = _targets(targets, vertices, are_values)
    lists = []
    for names in SPLITS:
        of = splits if any(name in splits for name in names) else data
        chosen = given(of, *names)
        found = next((name for name in names if _has(of, name)), names[0])
        lists.append(np.zeros(0, dtype=np.uint32) if chosen is None else selected(found, chosen, vertices))
    # Kept by name until the arrays are copied.
    offsets, ids = np.ascontiguousarray(graph._offsets), np.ascontiguousarray(graph._columns)
    features = np.ascontiguousarray(features, dtype=np.float32)

    def raw(array: Any) -> tuple[int, int]:
        return _numpy.address(array), array.size

    name = given(data, "name")
    return _core.Data(
        name if isinstance(name, str) else "dataset",
        raw(offsets),
        raw(ids),
        None if weight is None else raw(weight),
        raw(features),
        (kind, columns, raw(targets)),
        *map(raw, lists),
    )


def _has(data: Any, name: str) -> bool:
    return given(data, name) is not None


def _targets(targets: Any, vertices: int, are_values: bool) -> tuple[str, int, Any]:
    """The numbers as the extension module takes them, which has the rules: integers, other numbers, or values whatever they look like."""
    import numpy as np

    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim not in (1, 2) or len(targets) != vertices:
        raise ValueError(f"y: should be {vertices} rows, is {targets.shape}")
    if not any(np.issubdtype(targets.dtype, kind) for kind in (np.bool_, np.integer, np.floating)):
        raise ValueError(f"y: should be numbers, is {targets.dtype}")
    columns = 1 if targets.ndim == 1 else targets.shape[1]
    if columns == 1 and not np.issubdtype(targets.dtype, np.floating):
        if targets.dtype == np.uint64 and targets.size and targets.max() > _WORD:
            raise ValueError(f"y: {targets.max()} is no class; they are numbered from 0")
        return "integers", 1, np.ascontiguousarray(targets, dtype=np.int64)
    floats = np.ascontiguousarray(targets, dtype=np.float32)
    # A fraction of a double may be lost in a float.
    has_fractions = columns == 1 and bool((np.modf(targets)[0] != 0)[np.isfinite(targets)].any())
    return "values" if are_values or has_fractions else "numbers", columns, floats


def _progress(wanted: bool, trainer: Trainer) -> Callable[[Epoch | None], None]:
    if not wanted:
        return lambda epoch: None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Lines().show
    bar = tqdm(unit="epoch")

    def show(epoch: Epoch | None) -> None:
        if epoch is None:
            bar.close()
            return
        bar.set_postfix(loss=f"{epoch.loss:.4f}", validation=f"{epoch.validation:.4g}", refresh=False)
        bar.update()

    return show


class _Lines:
    """A line now and then."""

    def __init__(self) -> None:
        self.told = 0.0
        self.last: Epoch | None = None

    def show(self, epoch: Epoch | None) -> None:
        now = time.monotonic()
        if epoch is None:
            if self.last is not None:
                print(self.last, file=sys.stderr)
        elif now - self.told > 2.0:
            print(epoch, file=sys.stderr)
            self.told, self.last = now, None
        else:
            self.last = epoch
