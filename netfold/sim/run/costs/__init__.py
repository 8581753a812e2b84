"""Measures what a job's buckets cost, by a warm-up, for rules of fusion and for predictions."""
