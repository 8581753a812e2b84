"""What ranks first, and why: what bounds each variant, in words and as a figure; order by a metric."""
