#!/usr/bin/env bats
# slurm.bats -- the job script of etc/slurm, with stand-ins for srun and squeue.
#
# What a real Slurm does with it (signals, chains, requeueing) is not shown here.

load lib

setup() {
	cd "$BATS_TEST_TMPDIR"
	mkdir bin
	printf '#!/bin/sh\nenv > env\nprintf "%%s\\n" "$$" "$@" > srun.args\nexit 75\n' > bin/srun
	printf '#!/bin/sh\necho "$@" >> squeue.args\necho 2026-12-01T10:00:00\n' > bin/squeue
	chmod +x bin/*
	PATH=$PWD/bin:$PATH
	unset "${!SLURM_@}" "${!SRUN_@}"
	export SLURM_JOB_ID=17 SLURM_CPUS_PER_TASK=8 TZ=UTC
	JOB=$ROOT/etc/slurm/moe-train.sbatch
}

@test "the job becomes srun, hands on every operand as it is, and its status" {
	sh "$JOB" -c 'my file.yaml' -o run data/train & pid=$!
	status=0
	wait $pid || status=$?
	[ "$status" -eq 75 ]
	# The same process: signals of Slurm reach srun.
	printf '%s\n' $pid --input=none moe-train run --stop-before 5m -c 'my file.yaml' -o run data/train | diff - srun.args
	grep -qx SRUN_CPUS_PER_TASK=8 env
	grep -qx SLURM_MPI_TYPE=pmix env
}

@test "the end of the job comes from Slurm, or is asked for once" {
	SLURM_JOB_END_TIME=1796119200 run sh "$JOB" -c a
	[ "$status" -eq 75 ]
	grep -qx SLURM_JOB_END_TIME=1796119200 env
	[ ! -e squeue.args ]
	run sh "$JOB" -c a
	grep -qx SLURM_JOB_END_TIME=1796119200 env
	[ "$(cat squeue.args)" = '-h -j 17 -o %e' ]
}

@test "the kind of MPI may be set outside, and a job without operands is refused" {
	SLURM_MPI_TYPE=pmi2 run sh "$JOB" -c a
	grep -qx SLURM_MPI_TYPE=pmi2 env
	rm srun.args
	fails_with 2 sh "$JOB"
	says usage
	[ ! -e srun.args ]
}

@test "what the job passes to moe-train is understood" {
	for o in $(grep -o 'moe-train run --[a-z-]*' "$JOB" | sed 's/.* //'); do
		moe-train run --help | grep -qe "$o "
	done
	# Options for sbatch stand before the first command, and are spelled in full.
	awk '/^#SBATCH/ { if (seen) exit 1; n++ } /^[^#]/ { seen = 1 } END { exit n < 5 }' "$JOB"
}
