"""Real processes: the hook of DDP and the reduce-scatter of FSDP2, over gloo on this machine."""
