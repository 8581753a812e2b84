"""All-reduce in switches: keys, the plan of a job, its trees and what they take of switches, and its run."""
