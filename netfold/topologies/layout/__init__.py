"""Where to draw the nodes of a topology: places follow from attributes, for every kind of graph alike."""

from netfold.topologies.layout.layout import Layout, layout
from netfold.topologies.layout.tiers import NODES_DRAWN_MAX, Bundle, Class, Tiers, tiers_of

__all__ = ["NODES_DRAWN_MAX", "Bundle", "Class", "Layout", "Tiers", "layout", "tiers_of"]
