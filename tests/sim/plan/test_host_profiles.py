"""Profiles of hosts, and what a scenario makes of them."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.kinds import register
from netfold.sim.plan.host_profiles import NONE, HostProfile, host_profiles
from tests.examples import examples
from tests.sim.run.test_networks import TWO
from tests.sim.scenes import only, refused

PROFILES = host_profiles()
TIMES = [one.name for one in fields(HostProfile) if one.name.endswith("_ps")]


@pytest.mark.parametrize("name", PROFILES)
def test_every_time_has_its_source(name: str) -> None:
    profile = PROFILES[name]
    assert profile.kind == name
    for field in TIMES:
        assert bool(getattr(profile, field)) == (field in profile.sources)
    assert all(len(text) > 20 for text in profile.sources.values())


def test_a_profile_without_sources_is_refused() -> None:
    with pytest.raises(ValueError, match="'new' has no source for cores, message_ps"):
        register(HostProfile("new", "", message_ps=5))
    with pytest.raises(ValueError, match=r"two of netfold\.host_profiles have the kind 'dpdk'"):
        register(replace(PROFILES["dpdk"], cores=5))
    assert host_profiles() == PROFILES


def test_cores_share_packets_bytes_and_messages() -> None:
    """Three of them: 100 ns are 34 ns a packet, rounded up, and a packet alone still takes 100."""
    one = HostProfile("x", "", "CPU", 100_000, 50_000, 80, 0, 10_000, 7, 9, 3)
    sending, receiving = one.works("h5")

    assert sending == ("h5 CPU, sending", 3 * 10**11, 33_334, 3_334, 7 + 66_666)
    assert receiving == ("h5 CPU, receiving", 10**15, 16_667, 0, 9 + 33_333)


def test_cores_of_a_card_share_messages_alone() -> None:
    one = HostProfile("x", "", "NIC", 5_000, 5_000, 80, 80, 100_000, 7, 9, 4, is_offloaded=True)
    sending, receiving = one.works("h0")

    assert sending == ("h0 NIC, sending", 10**11, 5_000, 25_000, 7)
    assert receiving == ("h0 NIC, receiving", 10**11, 5_000, 0, 9)


def test_what_takes_no_time_is_not_there(tmp_path: Path) -> None:
    assert not NONE.takes_time
    assert all(one.takes_time for name, one in PROFILES.items() if name != "none")
    assert only(tmp_path).network.inside is None
    assert only(tmp_path, "hosts=none").network.inside is None
    assert only(tmp_path, "hosts={cores: 3}").network.inside is None
    assert only(tmp_path, "hosts=dpdk").network.inside is not None


def test_a_scenario_changes_what_it_names(tmp_path: Path) -> None:
    variant = only(tmp_path, "hosts={kind: dpdk, cores: 2, per_byte_send: 400ps, message: 1us}")
    work = replace(PROFILES["dpdk"], cores=2, per_byte_send_ps=400, message_ps=10**6).works("h2")
    network = variant.network

    for link, one in zip((network.first_link(2), network.last_link(2)), work, strict=True):
        assert network.link_names[link] == one.name
        assert (network.rate_bps[link], network.delay_ps[link]) == (one.rate_bps, one.delay_ps)
        assert network.work_ps(link) == one.packet_ps
        assert network.work_ps(link, starts_message=True) == one.packet_ps + one.message_ps
    network = only(tmp_path, "hosts={per_packet_send: 1us}").network  # own numbers need no profile
    assert network.work_ps(network.first_link(0)) == 10**6
    assert network.work_ps(network.last_link(0)) == 0
    assert network.rate_bps[network.last_link(0)] == 10**15


def test_jobs_have_hosts_of_their_own(tmp_path: Path) -> None:
    """Those of job b take time; hosts without a worker have what the first job has, which is nothing."""
    network = only(tmp_path, "jobs.b.hosts=rdma", text=TWO).network
    inside = [network.nodes[host] for host in range(8) if network.first_link(host) != host]
    assert inside == ["h3", "h4", "h5", "h6"]

    both = only(tmp_path, "hosts=dpdk", "jobs.b.hosts=rdma", text=TWO).network
    parts = [both.link_names[both.first_link(host)].split()[1] for host in range(8)]
    assert parts == ["CPU,"] * 3 + ["NIC,"] * 4 + ["CPU,"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("hosts=fpga", "hosts: cannot use 'fpga'\n  allowed: none, dpdk, kernel_tcp, kernel_udp, rdma"),
        ("hosts={kind: dpkd}", "did you mean 'dpdk'"),
        ("hosts={core: 3}", "hosts.core: unknown key 'core'"),
        ("hosts={cores: 0}", "hosts.cores: "),
        ("hosts={per_packet_send: 5}", "hosts.per_packet_send: cannot read 5 as a time"),
        ("hosts={per_byte_send: 1000s}", "hosts: at "),
        ("faults=[{kind: loss, links: ['* CPU, sending'], rate: 1%}]", "no link matches '* CPU, sending'"),
    ],
)
def test_mistakes(tmp_path: Path, change: str, error: str) -> None:
    assert error in refused(tmp_path, "hosts=dpdk", "collective.slots=512", change)


@examples(100)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=40), st.integers(1, 8), st.integers(1, 60))
def test_shared_cores_are_close_to_cores_that_take_turns(waits: list[int], cores: int, share: int) -> None:
    """As a server of n times the speed, a host is never ahead of n cores with one queue, and at most
    1 - 1/n of a packet's time behind."""
    whole_ps = cores * share
    profile = HostProfile("x", "", per_packet_send_ps=whole_ps, cores=cores)
    sending, _ = profile.works("h0")
    free_ps, core_free_ps = 0, [0] * cores
    for came_ps in accumulate(waits):
        free_ps = max(came_ps, free_ps) + sending.packet_ps
        left_ps = free_ps + sending.delay_ps
        core = min(range(cores), key=core_free_ps.__getitem__)
        core_free_ps[core] = max(came_ps, core_free_ps[core]) + whole_ps
        assert 0 <= left_ps - core_free_ps[core] <= whole_ps - share
