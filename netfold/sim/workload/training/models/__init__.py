"""Models to train: one file each, with all that is known of a model but its PyTorch module.

To add a model `name`:

1. `models/name.py`: a subclass of `spec.Model`. Its fields are the options that a scenario may set, as in
   `model: {kind: name, option: …}`; each has a default, which `model: name` takes. Its docstring is the
   sentence of the guide. It says its title, source, data sets (the first is the default; for each, what it
   stands in for), its metric, and its `tensors` in gradient-ready order (helpers are in `shapes.py`). If
   PyTorch gives gradients of its tables as rows, its `row_tables` says which. It imports no PyTorch.
   Language models are in `models/text`.
2. `networks/name.py`: the module, plain PyTorch, initialised from PyTorch's global generator only.
3. `Model.module` imports and builds the module. `Model.task` imports the data and returns a
   `tasks.task.Task`: one for images is in `tasks/images.py`, others are files of their own. Data sets are in
   `data/catalogue.py`, what is read from them beside it.
4. Add the class to `registry.MODELS`. The scenario format, the schema, the guide's keys and estimates of
   memory follow from it: write them with `netfold schema` and `python -m tests.test_readme`.
5. `tests/sim/workload/training/test_models.py` tests every registered model: its tensors are the
   parameters of the built module, in the order in which hooks see their gradients. Add its published number
   of parameters there, and test its forward pass against another implementation.
"""
