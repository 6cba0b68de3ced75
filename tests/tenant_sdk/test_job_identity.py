"""The id that joins the runs of one job on several nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pharoah._settings import Settings
from pharoah.sidecar.job_identity import JOB_ID_BYTES, JobIdentity, job_identity

TORCHRUN = {"GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
SLURM = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize("environ", [TORCHRUN, SLURM], ids=["torchrun", "slurm"])
def test_all_nodes_of_a_job_compute_one_id_and_no_other_job_does(environ: dict[str, str]) -> None:
    nodes = [{**environ, "GROUP_RANK": node, "SLURM_NODEID": node, "RANK": node} for node in "01"]
    first, second = (job_identity(node, Settings()) for node in nodes)
    assert first.job_id == second.job_id and len(first.job_id) == JOB_ID_BYTES
    assert (first.node, second.node, first.nodes, second.nodes) == (0, 1, 2, 2)
    for name in environ.keys() - {"GROUP_WORLD_SIZE", "SLURM_NNODES"}:
        assert job_identity({**environ, name: "8"}, Settings()).job_id != first.job_id, name


def test_a_secret_makes_another_id(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of this job")
    settings = Settings(job_secret_file=str(secret))
    jobs = [job_identity(TORCHRUN, Settings()), job_identity(TORCHRUN, settings), job_identity(SLURM, settings)]
    assert len({job.job_id for job in jobs}) == 3


def test_without_its_secret_a_node_has_no_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert job_identity(TORCHRUN, Settings(job_secret_file=str(tmp_path / "absent"))) == JobIdentity()
    assert "PHAROAH_JOB_SECRET_FILE" in caplog.text


@pytest.mark.parametrize(
    "environ",
    [{}, {**TORCHRUN, "GROUP_WORLD_SIZE": "1"}, {**SLURM, "SLURM_NNODES": "1"}, {"GROUP_WORLD_SIZE": "2"}],
    ids=["no launcher", "torchrun on one node", "slurm on one node", "no rendezvous"],
)
def test_a_job_on_one_node_has_no_id(environ: dict[str, str]) -> None:
    assert job_identity(environ, Settings()) == JobIdentity()
