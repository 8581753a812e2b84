"""What the command line may import without waiting."""

import subprocess
import sys


def printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_torch_is_imported_only_to_train() -> None:
    code = (
        "import sys; from netfold.sim.workload.devices.kinds import registry; "
        "from netfold.sim.workload.training import data; "
        "print('torch' in sys.modules, 'netfold.sim.workload' in sys.modules)"
    )

    assert printed(code) == "False True\n"


def test_training_imports_torch_without_its_compiler() -> None:
    code = (
        "import sys; from netfold.sim.workload import TrainingSpec, training_workload; "
        "training_workload(TrainingSpec('ncf'), 2, 1).gradients(0); "
        "print('torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    )

    assert printed(code) == "True False\n"
