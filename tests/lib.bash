# lib.bash -- what the bats files share:  load lib
#
# Puts the built programs on PATH and offers a few checks that say what they
# expected.  Under tests/check the build is the one being tested; by hand it
# is the default one.  Refuses to build anything.
# shellcheck shell=bash

bats_require_minimum_version 1.5.0

ROOT=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)
if [ -z "${MOE_BIN-}" ]; then
	eval "$(make -s --no-print-directory -C "$ROOT" where)"
	export MOE_BIN MOE_BUILD MOE_SAN
fi
PATH=$MOE_BIN:$PATH
unset MAKEFLAGS MFLAGS

# fails WITH STATUS: the command says one line on stderr, nothing on stdout,
# and ends with the status.  The line is left in $stderr.
fails_with() {
	local want=$1
	shift
	run --separate-stderr "$@"
	if [ "$status" -ne "$want" ] || [ -n "$output" ] || [ "${#stderr_lines[@]}" -ne 1 ]; then
		echo "command: $*"
		echo "expected status $want, no output and one line of error; status $status"
		echo "stdout: $output"
		echo "stderr: $stderr"
		return 1
	fi
}

# passes COMMAND...: status 0; the output is left in $output and $stderr.
passes() {
	run --separate-stderr "$@"
	if [ "$status" -ne 0 ]; then
		echo "command: $*"
		echo "expected status 0; status $status"
		echo "stdout: $output"
		echo "stderr: $stderr"
		return 1
	fi
}

# says TEXT: $output or $stderr holds the text.
says() {
	case $output$stderr in
	*"$1"*) ;;
	*)
		echo "expected to read: $1"
		echo "stdout: $output"
		echo "stderr: ${stderr-}"
		return 1
		;;
	esac
}

# same FILE FILE: equal bytes.
same() { cmp "$1" "$2"; }

# need TOOL: skip, with the reason, when the tool is not there.
need() { command -v "$1" > /dev/null 2>&1 || skip "$1 is not installed"; }

# no_ranks: why several ranks cannot be tested here; nothing when they can.
no_ranks() {
	if ! command -v mpirun > /dev/null 2>&1; then
		echo "mpirun is not installed (mpi)"
	elif ! moe-train --version | grep -q 'mpi='; then
		echo "built without MPI (mpi)"
	elif [ -n "${MOE_SAN-}" ]; then
		echo "MPI under a sanitizer reports its own leaks (mpi)"
	fi
}

# need_ranks: skip, with the reason, where they cannot.
need_ranks() {
	local why
	why=$(no_ranks)
	[ -z "$why" ] || skip "$why"
}

# need_preload NAME: path of the fault library in $FAULT.  A sanitizer must be
# loaded first and refuses company.
need_preload() {
	[ -z "${MOE_SAN-}" ] || skip "a sanitizer build takes no preload library"
	FAULT=$MOE_BUILD/fault/$1.so
	[ -f "$FAULT" ] || {
		echo "no $FAULT: run make unit-build"
		return 1
	}
}
