"""Routing: the graph as arrays, with compact tables of next hops, and the policies that choose among them.

`compile_network` makes a `Network`; `path` and `shares` say which links a flow or its packets take;
`next_links` lists the choices at one node. `policies.py` names the policies. How tables are laid out is in
`tables.py`; only the packet engine reads them.
"""

from netfold.topologies.routing.flows import SWITCHES, flow_key_plain, planned_key
from netfold.topologies.routing.host_links import Work, with_host_links
from netfold.topologies.routing.network import Network, compile_network
from netfold.topologies.routing.paths import detour_of, equal_shares, next_links, nodes_of, path, shares
from netfold.topologies.routing.policies import POLICIES, Policy
from netfold.topologies.routing.tables import PolicyError

__all__ = [
    "POLICIES",
    "SWITCHES",
    "Network",
    "Policy",
    "PolicyError",
    "Work",
    "compile_network",
    "detour_of",
    "equal_shares",
    "flow_key_plain",
    "next_links",
    "nodes_of",
    "path",
    "planned_key",
    "shares",
    "with_host_links",
]
