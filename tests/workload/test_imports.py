"""What the command line may import without waiting."""

import subprocess
import sys


def test_torch_is_imported_only_to_train() -> None:
    code = "import sys, sim.workload, sim.workload.data, sim.workload.device; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout == "False\n"
