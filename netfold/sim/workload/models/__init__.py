"""Models to train: one file each, with all that is known of a model. `gpt.py` is a good example to copy.

A model of netfold's own is what a user's is, with options: `make` returns a module, data, a loss, and a score
if a part of the data is held out. To add a model `name`:

1. `models/name.py`: a subclass of `BuiltIn` (`built_in.py`). Its fields are the options that a scenario
   may set, as in `model: {kind: name, option: …}`; each has a default, which `model: name` takes. Its
   docstring is the sentence of the reference, and says how many parameters it has in its paper: a test holds
   the module to it. It says its title, source, metric and data sets (the first is
   the default; for each, what it stands in for). `module` is plain PyTorch, initialised from PyTorch's
   global generator only. `make` reads the data (`workload/data_readers.py`) and returns the `Parts`;
   classifiers of images have it from `images.py`, text is in `text.py`. Data are items (input, target)
   by number, or `Batches`. `inputs` are what a pass on PyTorch's meta device needs. If PyTorch gives
   gradients of its tables as rows, `rows` says how many.
2. `make generated` writes `table.json`: what scenarios, estimates and lists need to know without PyTorch,
   tensors in gradient-ready order among it. It is found from the class; a test holds the two equal. Options
   that are not in the table cost the import of PyTorch when a scenario is checked.
3. `tests/sim/workload/test_models.py` tests every model. Where a forward pass is more than layers of PyTorch
   in a row, add a test of it against another implementation.
"""
