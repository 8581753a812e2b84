"""What hosts take for packets: profiles of processors and network cards, and the scenario's key `hosts`.

A host works on packets one after the other, in front of its wire on the way out and behind it on the way in:
a link inside the host for each direction (`topologies/network.py`). A profile is one file in
`profiles/`, which importing registers.
"""

from netfold.sim.hosts.profile import NONE, HostProfile, host_profiles
from netfold.sim.hosts.section import HostsSection
from netfold.sim.hosts.work import with_work

__all__ = ["NONE", "HostProfile", "HostsSection", "host_profiles", "with_work"]
