"""`examples/airflow/train_dag.py` with a real Airflow 3, if AIRFLOW_PYTHON names a Python that has it and `poolkeeper`.

Airflow is not among the packages of this project, so CI skips this module. `tests/unit/client/test_airflow_example.py` tests
the part without Airflow, and always runs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.backends import require
from tests.support.paths import ROOT
from tests.support.poolkeeperd import up

PYTHON = os.environ.get("AIRFLOW_PYTHON")
DAGS = ROOT / "examples" / "airflow"
RUN = "import train_dag; print('the run is', train_dag.training().test().state)"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(PYTHON is None, reason="AIRFLOW_PYTHON names no Python with Airflow")
def test_a_run_of_the_dag_holds_its_units_while_it_trains_and_releases_them(tmp_path: Path) -> None:
    require("embedded")
    with up(tmp_path) as service:
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("POOLKEEPER_", "AIRFLOW__"))}
        variables |= {
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "PYTHONPATH": str(DAGS),
            "POOLKEEPER_URL": f"http://127.0.0.1:{service.port}",
            "XDG_CONFIG_HOME": str(tmp_path),
        }

        def run(*words: str) -> str:
            """Return the output of a program of Airflow's Python."""
            command = [PYTHON or "", *words]
            result = subprocess.run(
                command, cwd=tmp_path, env=variables, check=True, timeout=200, stdout=subprocess.PIPE, text=True
            )
            return result.stdout

        run("-m", "airflow", "db", "migrate")
        output = run("-c", RUN)
        assert "training with 2 GPUs of gpus under fence 1" in output
        assert "the run is success" in output
        (request,) = service.ask("GET", "/requests").body["items"]
        assert (request["status"], request["outcome"], request["name"]) == ("released", "succeeded", "training/wait")
