"""Models to train: one file each, with all that is known of a model but its PyTorch module.

To add a model `name`:

1. `models/name.py`: a subclass of `Model` (`workload/model.py`). Its fields are the options that a scenario
   may set, as in `model: {kind: name, option: …}`; each has a default, which `model: name` takes. Its
   docstring is the sentence of the guide. It says its title, source, data sets (the first is the default; for
   each, what it stands in for), its metric, and its `tensors` in gradient-ready order (helpers stand beside
   `Model`). If PyTorch gives gradients of its tables as rows, its `row_tables` says which. It imports no
   PyTorch.
2. `workload/networks.py`: the module, plain PyTorch, initialised from PyTorch's global generator only.
3. `Model.module` imports and builds the module. `Model.task` imports the data and returns a `Task`:
   those of `workload/tasks.py`. Data sets are in `workload/data_sets.py`, readers in `data_readers.py`.
4. Add the class to `registry.MODELS`. The scenario format, the schema, the guide's keys and estimates of
   memory follow from it: write them with `netfold schema` and `python -m tests.test_readme`.
5. `tests/sim/workload/test_models.py` tests every registered model: its tensors are the
   parameters of the built module, in the order in which hooks see their gradients. Add its published number
   of parameters there, and test its forward pass against another implementation.
"""
