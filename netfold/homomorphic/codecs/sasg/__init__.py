"""SASG: sparse uploads, made only when a worker's gradient has changed enough.

After Deng, Li, Sun and Lu, IEEE Transactions on Big Data, 2024, arXiv 2112.04088, as in the notebooks of the
authors' repository xiaogdeng/SASG. `rule.py` decides who uploads, `uploads.py` makes an upload, `server.py`
adds them up, `lists.py` is the published codec, and `summed.py` is ours, whose uploads are summed on the way.
"""
