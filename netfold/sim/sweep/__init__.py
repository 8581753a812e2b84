"""Sweeps: every point of a scenario's grid, run in parallel and kept, with one table and figures of all.

`points.py` makes the points of a scenario, `task.py` is what a worker gets and does, `dispatch.py` runs tasks
on an executor: `pool.py` here, `cluster.py` on a Dask cluster. `store.py` keeps finished points, `table.py`,
`figures.py` and `page.py` show them, and `make.py` is a sweep from beginning to end.
"""
