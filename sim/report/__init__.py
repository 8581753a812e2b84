"""What a person sees of a run: the table in the terminal, the figures, the HTML page.

Everything here is computed from a run's folder, so it can be made again at any time (`netfold report RUN`).
"""
