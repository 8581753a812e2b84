"""The emulated switch: its hardware (profiles), its programs, and whether they fit."""
