"""DGL's layers over halfgnn's operators: the same signatures and ``state_dict`` keys, without DGL.

``graph`` is a :class:`halfgnn.Graph`, or a DGL graph or block of one type of edges, of which one is made at its first use and kept while
it lives. What DGL's layers can do and halfgnn's cannot is refused in one line that says what to do instead.
"""

from __future__ import annotations

from ._convolutions import GATConv, GINConv, GraphConv, SAGEConv

__all__ = ["GATConv", "GINConv", "GraphConv", "SAGEConv"]
