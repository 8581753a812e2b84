"""How busy links were, and where they are in each variant's topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx
import polars as pl

from netfold.sim.report import words
from netfold.sim.results.folder import Run
from netfold.topologies.graph import SWITCH


def busy_links(run: Run) -> pl.DataFrame:
    """The table of links with `busy`, the share of the simulated time that each was busy; the busiest first.

    The share is null for a variant that did not finish: its links kept sending after its last step.
    """
    network = pl.col("variant").str.split("/").list.first()  # that the jobs of a variant share
    unfinished = {
        entry["name"].partition("/")[0] for entry in run.summary["variants"] if not words.has_finished(entry)
    }
    steps = run.steps.filter(~network.is_in(sorted(unfinished)))
    duration = steps.group_by(network, maintain_order=True).agg(
        (pl.col("end_ps").max() - pl.col("start_ps").min()).alias("duration_ps")
    )
    return (
        run.links.join(duration, on="variant", how="left", maintain_order="left")
        .with_columns((pl.col("busy_ps") / pl.col("duration_ps")).alias("busy"))
        .sort("busy_ps", descending=True, maintain_order=True)
    )


def graphs(run: Run) -> dict[str, nx.Graph]:
    """The topology of each variant, from the run's tables; none of runs that did not record their nodes.

    Nodes have the attributes that a drawing needs; edges have `rate_bps`, and a `delay_ps` of 0.
    """
    return {
        str(name): _graph(nodes, run.links.filter(pl.col("variant") == name))
        for (name,), nodes in run.nodes.group_by("variant", maintain_order=True)
    }


def _graph(nodes: pl.DataFrame, links: pl.DataFrame) -> nx.Graph:
    graph = nx.Graph()
    for row in nodes.iter_rows(named=True):
        graph.add_node(row["node"], **_attributes(row))
    for source, target, rate_bps in links.select("source", "target", "rate_bps").iter_rows():
        if source != target and source in graph and target in graph:  # not the loopback of a switch
            graph.add_edge(source, target, rate_bps=rate_bps, delay_ps=0)
    return graph


def _attributes(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {"kind": row["kind"], "tier": row["tier"], "profile": row["profile"]}
    if row["coordinates"] is not None:
        found["coordinates"] = tuple(map(int, row["coordinates"].split(",")))
    return found | {key: row[key] for key in ("group", "rail", "island") if row[key] is not None}


def can_aggregate(nodes: pl.DataFrame) -> set[str]:
    """Profiles of the switches that can aggregate."""
    able = nodes.filter((pl.col("kind") == SWITCH) & pl.col("can_aggregate"))
    return set(able["profile"])
