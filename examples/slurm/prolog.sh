#!/bin/bash
# slurm.conf:  Prolog=/etc/slurm/prolog.d/allready.sh   PrologFlags=Alloc   (all nodes of a job at once, as root)
# A roll call of the job's nodes before it starts: who is here, which names and interfaces, are the environments alike.
# The port follows from the job's number, so that jobs do not meet each other.
[ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ] || exit 0
out=$(timeout 40 /opt/allready/bin/allready check --stages roll,facts --wait 20 --nproc-per-node 1 -q --lang en 2>&1)
code=$?
# A prolog that fails drains its node and requeues the job. Only a proven fault (1) may do that: a node that is late (3)
# must not drain the others, and a usage error (2) is this script's own.
echo "allready: exit code $code: $(printf '%s\n' "$out" | head -n 1)" | logger -t slurm-prolog
[ "$code" -ne 1 ] || { echo "print allready: $(printf '%s\n' "$out" | head -n 1)"; exit 1; }
exit 0
