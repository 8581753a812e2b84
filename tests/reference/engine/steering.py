"""What a policy does to packets between hosts, in plain Python: the section "Routes" of
sim/engine/README.md."""

from __future__ import annotations

from netfold.homomorphic.kernels.keyed import mix_plain, splitmix64_plain
from netfold.topologies.routing import Network, next_links

KEY_SPRAY, KEY_VALIANT = 50, 51
DATA, ACK = 2, 3  # kinds of packets, as spraying draws for them


def entropy(network: Network, seed: int, flow_key: int, kind: int, packet: int, number: int) -> int | None:
    """What a sprayed packet is told apart by; None where packets are not sprayed."""
    if not network.policy.is_sprayed:
        return None
    return mix_plain(seed, KEY_SPRAY, flow_key, kind, packet, number) >> 33


def choice(network: Network, node: int, target: int, key: int, *, is_sent_here: bool) -> int:
    """The link on which a node sends on a packet with this route or entropy.

    `is_sent_here`: the node is the ports of a server, and the packet comes from the server's host.
    """
    links = next_links(network, node, target)
    number = -1 - key if key < 0 else key if is_sent_here else splitmix64_plain(key * 2**32 + node)
    return links[number % len(links)]


def via(network: Network, source: int, target: int, route: int) -> int | None:
    """The switch through which a flow between hosts goes; None: straight on."""
    if network.detours is None:
        return None
    first_switch = int(network.is_host.sum())
    groups = {first_switch + index: group for index, group in enumerate(network.detours.group.tolist())}
    homes = [int(network.link_target[host]) for host in (source, target)]
    taken = {groups[home] for home in homes}
    others = sorted(set(groups.values()) - taken)
    if len(taken) == 1 or not others:
        return None
    draw = mix_plain(KEY_VALIANT, source, target, route)
    group = others[draw % len(others)]
    members = sorted(node for node in groups if groups[node] == group)
    hops = {node: _hops(network, homes[0], node) for node in members}
    ends = [node for node in members if hops[node] == min(hops.values())]
    return ends[(draw >> 32) % len(ends)]


def _hops(network: Network, node: int, target: int) -> int:
    """Hops of the ways from a switch to another; all have the same number."""
    count = 0
    while node != target:
        node = int(network.link_target[next_links(network, node, target)[0]])
        count += 1
    return count
