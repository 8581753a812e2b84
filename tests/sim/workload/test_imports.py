"""What the command line may import without waiting."""

import subprocess
import sys

import pytest

CODE = """
import sys
from netfold.sim.workload.devices.kinds import registry
from netfold.sim.workload.training import data
from netfold.sim.workload.training.models.registry import MODELS
assert all(model().elements > 0 for model in MODELS)
print('netfold.sim.workload' in sys.modules, 'torch' in sys.modules)
from netfold.sim.workload import TrainingSpec, training_workload
training_workload(TrainingSpec('ncf'), 2, 1).gradients(0)
print('torch' in sys.modules, 'torch._dynamo' in sys.modules)
"""


@pytest.mark.slow  # a new interpreter imports PyTorch
@pytest.mark.processes
def test_torch_is_imported_only_to_train_and_without_its_compiler() -> None:
    """Models are described, and their weights counted, without it."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)

    assert done.stdout == "True False\nTrue False\n"
