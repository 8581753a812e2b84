"""A run's report: the table in the terminal, the figures, the HTML page.

Everything here is computed from a run's folder, so it can be built again at any time (`netfold report RUN`).
"""
