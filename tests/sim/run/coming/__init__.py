"""Tests of jobs that come and go."""
