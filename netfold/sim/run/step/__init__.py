"""A step of a job, part by part: what each worker computes, and how its buckets take turns."""
