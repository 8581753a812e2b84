"""Profiles of hosts, one file each; importing a file registers its profile."""

from netfold.sim.hosts.profiles import dpdk, kernel_tcp, kernel_udp, rdma

__all__ = ["dpdk", "kernel_tcp", "kernel_udp", "rdma"]
