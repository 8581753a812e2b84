"""Plans of collectives between hosts: servers' hosts, chunks, and which collective carries a codec."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.homomorphic import codec as registry
from netfold.sim.collectives.between_hosts import ChunkedPlan
from netfold.sim.collectives.parameter_server.plan import ServerPlan
from tests.sim.host_codecs import HostCodec
from tests.sim.scenes import TINY, job_plan, only, refused

TEXT = TINY.replace("hosts: 4", "hosts: 6").replace(
    "  kind: in_network\n  frame: udp-256\n", "  kind: ring\n"
)
JOBS = TEXT + "jobs: [{name: a}, {name: b, workers: 2}]\n"


def servers(folder: Path, keys: str) -> tuple[list[str], tuple[int, ...]]:
    """The hosts of servers, and the workers that they run beside."""
    variant = only(folder, f"collective={{kind: parameter_server{keys}}}", text=TEXT)
    plan = job_plan(variant).collective
    assert isinstance(plan, ServerPlan)
    return [variant.network.nodes[node] for node in plan.servers], plan.owners


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ("", (["h3"], ())),
        (", servers: 2, placement: spread", (["h3", "h4"], ())),
        (", servers: 2, placement: [h5, h3]", (["h5", "h3"], ())),
        (", placement: beside_workers", (["h0"], (0,))),
        (", servers: 2, placement: beside_workers", (["h0", "h1"], (0, 1))),
    ],
)
def test_servers_run_where_the_scenario_says(
    tmp_path: Path, keys: str, found: tuple[list[str], tuple[int, ...]]
) -> None:
    assert found == servers(tmp_path, keys)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            "servers: 4",
            "collective.servers: cannot place 4 servers on the 3 hosts that workers and other servers leave "
            "free\n  use at most 3 servers or a larger topology or collective.placement: beside_workers",
        ),
        (
            "servers: 4, placement: beside_workers",
            "collective.servers: cannot place 4 servers beside 3 workers, one a host\n"
            "  use at most 3 servers, or collective.placement: pack",
        ),
        (
            "servers: 2, placement: [h4]",
            "collective.placement: 2 servers need as many host names, found 1\n  name exactly one a server",
        ),
        (
            "placement: [h2]",
            "collective.placement: host 'h2' runs a worker\n  use another host; free: h3, h4, h5",
        ),
        ("chunk: 3B", "collective.chunk: must be at least 4B, found '3B'\n"),
    ],
)
def test_what_cannot_be_served_says_why(tmp_path: Path, keys: str, told: str) -> None:
    found = refused(tmp_path, f"collective={{kind: parameter_server, {keys}}}", text=TEXT)
    assert found.startswith(f"--set: {told}")


def test_servers_of_several_jobs_share_no_host(tmp_path: Path) -> None:
    served = "collective={kind: parameter_server}"
    variant = only(tmp_path, served, text=JOBS.replace("hosts: 6", "hosts: 7"))
    nodes = [job.collective.servers for job in variant.jobs]  # type: ignore[attr-defined]
    assert [[variant.network.nodes[node] for (node,) in [one]] for one in nodes] == [["h5"], ["h6"]]

    told = refused(tmp_path, served, text=JOBS)
    assert "cannot place 1 servers on the 0 hosts that workers and other servers leave free" in told
    placed = "collective={kind: parameter_server, placement: [h5]}"
    told = refused(tmp_path, placed, text=JOBS)
    assert "host 'h5' runs a server of job 'a'\n  use another host; free: none" in told


@pytest.mark.parametrize("kind", ["all_gather", "parameter_server"])
def test_chunks_are_words_and_a_note_says_if_they_fill_the_window(tmp_path: Path, kind: str) -> None:
    plain = job_plan(only(tmp_path, f"collective={{kind: {kind}}}", text=TEXT))
    assert isinstance(plain.collective, ChunkedPlan)
    assert plain.collective.chunk_words == 16384
    assert not any("chunk" in warning for warning in plain.warnings)

    # 64 packets of 256 words: half of a window of 128.
    half, more = (
        job_plan(only(tmp_path, f"collective={{kind: {kind}, window: {window}}}", text=TEXT))
        for window in (128, 127)
    )
    assert not any("chunk" in warning for warning in half.warnings)
    assert more.warnings == (
        "a chunk of 64KiB is 64 packets, more than half of a window of 127: a connection waits for the "
        "delivery of every chunk; use a smaller collective.chunk, or a larger collective.window",
    )


def test_the_timeout_covers_the_waiting_at_a_server(tmp_path: Path) -> None:
    """Windows of all workers meet on its link: 3 · 512 packets of up to 1126 B, and the way."""
    told = refused(tmp_path, "collective={kind: parameter_server, timeout: 138us}", text=TEXT)
    assert "138us is too short: a full window's round trip takes" in told
    only(tmp_path, "collective={kind: parameter_server, timeout: 150us}", text=TEXT)


@pytest.mark.parametrize(
    ("how", "collective", "told"),
    [
        ("gather", "ring", "needs gather, which collective ring cannot carry"),
        ("gather", "in_network", "needs gather, which collective in_network cannot carry"),
        ("union", "in_network", "needs host, which collective in_network cannot carry"),
    ],
)
def test_refusals_name_a_collective_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, collective: str, told: str
) -> None:
    monkeypatch.setitem(registry._registry, HostCodec.kind, HostCodec)
    codec = f"codec={{kind: host_codec, how: {how}}}"
    found = refused(tmp_path, codec, f"collective={{kind: {collective}}}", text=TEXT)

    message, hint = found.split("\n")
    assert message == f"--set: codec: codec 'host_codec' {told}"
    able = hint.removeprefix("  use collective.kind: ").replace(" or ", ", ").split(", ")
    gathering = ["all_gather", "parameter_server"]
    assert able == (
        ["ring", "halving_doubling", "tree", "torus_2d", *gathering, "hierarchical"]
        if how == "union"
        else gathering
    )
    for one in able:
        within = ", group_size: 2, inner: {kind: ring}, outer: {kind: ring}" if one == "hierarchical" else ""
        only(tmp_path, codec, f"collective={{kind: {one}{within}}}", text=TEXT)
