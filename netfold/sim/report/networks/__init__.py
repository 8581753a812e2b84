"""Drawings of topologies, alone or with the utilisation of their links."""

from netfold.sim.report.networks.draw import Look, draw_svg

__all__ = ["Look", "draw_svg"]
