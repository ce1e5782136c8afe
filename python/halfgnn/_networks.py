"""Networks that begin with a product: it may be done before rows are summed up, where it makes them narrower."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules import module as _modules

#: Classes that are a product and a bias.
LINEARS: tuple[type, ...] = (torch.nn.Linear,)


def isomorphism(
    network: Any,
    sums: Callable[[Tensor, Tensor | None, Tensor | None], Tensor],
    source: Tensor,
    own: Tensor | None,
    eps: Tensor,
    *,
    linear: bool,
    linears: tuple[type, ...] = LINEARS,
    mlp: type | None = None,
) -> Any:
    """``network(sums(source, None, None) + (1 + eps)·own)``: what a GIN's layer computes.

    Where ``sums`` is ``linear``, the product that the network begins with goes first if it makes rows narrower.

    Args:
        network: what is applied to each row; ``None`` for nothing.
        sums: rows over neighbours; a bias added to each of what comes out; and, of linear maps, ``1 +`` a number times the rows themselves.
        source: rows that are summed up.
        own: rows of the destinations; ``None`` where nothing of them is added.
        eps: one number.
        linear: whether ``sums`` is a linear map, as a sum or a mean is.
        linears: classes that are a product and a bias.
        mlp: PyG's ``MLP``.
    """
    begun = first_product(network, linears, mlp) if linear and source.ndim == 2 else None
    if begun is None or begun[0].weight.shape[0] >= source.shape[1]:
        out = _with_own(sums, source, None, own, eps, linear)
        return out if network is None else network(out)
    product, rest = begun
    narrow = F.linear(source, product.weight)
    if own is not None:
        own = narrow if own is source else F.linear(own, product.weight)
    return rest(_with_own(sums, narrow, product.bias, own, eps, linear))


def _with_own(sums: Any, source: Tensor, bias: Tensor | None, own: Tensor | None, eps: Tensor, linear: bool) -> Tensor:
    if own is source and linear:
        return sums(source, bias, eps)  # type: ignore[no-any-return]
    aggregated: Tensor = sums(source, bias, None)
    return aggregated if own is None else (aggregated + (1 + eps.float()) * own).to(aggregated.dtype)


def first_product(network: Any, linears: tuple[type, ...], mlp: type | None) -> tuple[Any, Callable[[Tensor], Any]] | None:
    """The product that a network begins with, of itself, a ``Sequential`` or PyG's ``MLP``, and what is done with what that and its bias give.

    ``None`` of other networks, and where hooks would miss a call of the network or of the product.
    """
    kind = type(network)
    if kind in linears:
        product, rest = network, _nothing
    elif kind is torch.nn.Sequential and len(network) > 0:
        product, rest = network[0], partial(_rest_of_sequential, network)
    elif mlp is not None and kind is mlp:
        product, rest = network.lins[0], partial(_rest_of_mlp, network)
    else:
        return None
    if not plain_linear(product, linears) or is_observed(network):
        return None
    return product, rest


def plain_linear(module: Any, linears: tuple[type, ...] = LINEARS) -> bool:
    """Whether reading a module's weight and bias gives what a call of it gives: not where hooks or parametrizations take part, or the
    weight is not made yet."""
    return type(module) in linears and not is_observed(module)


def is_observed(module: torch.nn.Module) -> bool:
    """Whether something besides its class decides what a call of a module does: hooks, or a forward pass of its own."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
        or _modules._global_forward_hooks
        or _modules._global_forward_pre_hooks
        or _modules._global_backward_hooks
        or _modules._global_backward_pre_hooks
    )


def _nothing(x: Tensor) -> Tensor:
    return x


def _rest_of_sequential(network: Any, x: Tensor) -> Any:
    for module in list(network)[1:]:
        x = module(x)
    return x


def _rest_of_mlp(mlp: Any, x: Tensor) -> Tensor:
    """The forward pass of PyG's ``MLP`` behind its first product, of rows of one graph."""
    for layer, norm in enumerate(mlp.norms):
        if layer > 0:
            x = mlp.lins[layer](x)
        if mlp.act is not None and mlp.act_first:
            x = mlp.act(x)
        x = norm(x)
        if mlp.act is not None and not mlp.act_first:
            x = mlp.act(x)
        x = F.dropout(x, p=mlp.dropout[layer], training=mlp.training)
    if mlp.plain_last:
        if len(mlp.norms) > 0:
            x = mlp.lins[-1](x)
        x = F.dropout(x, p=mlp.dropout[-1], training=mlp.training)
    return x
