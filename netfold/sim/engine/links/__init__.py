"""Links: queues, transmitters, packets in flight, and the faults that strike them."""
