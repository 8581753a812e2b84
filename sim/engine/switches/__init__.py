"""What switches do with packets: aggregation, egress, slot timers, ATP."""
