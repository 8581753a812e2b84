"""Tests of what a training step is made of."""
