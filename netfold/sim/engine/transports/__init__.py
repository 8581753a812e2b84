"""Hosts' transports: aggregation streams, reliable flows, ATP workers."""
