"""The compiled packet engine; README.md holds its rules."""
