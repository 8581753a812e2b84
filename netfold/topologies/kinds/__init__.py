"""The kinds of topologies that a scenario can name: one file each, with its closed forms."""
