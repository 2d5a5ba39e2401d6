#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A training job on two nodes with four ranks each: sbatch slurm.sh
#SBATCH --job-name=hvd
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --time=01:00:00
#SBATCH --signal=TERM@60
set -euo pipefail

# horovodrun takes the hosts from Slurm and says so. It reaches the other nodes by ssh.
# Without ssh between nodes: srun --mpi=pmix python train.py
horovodrun -np "$SLURM_NTASKS" --output-filename "logs-$SLURM_JOB_ID" python train.py
