#!/usr/bin/env bats
# runner.bats -- tests/check counts what test files say, and calls nothing green that is not.

load lib

# judge STATUS LINE...: what the runner makes of one file's output.
judge() {
	local status=$1
	shift
	: > "$BATS_TEST_TMPDIR/err"
	run awk -v name=f -v status="$status" -v need="${NEED-}" -v took=1 -v limit=9 -v sum="$BATS_TEST_TMPDIR/sum" \
		-v err="$BATS_TEST_TMPDIR/err" -f "$ROOT/tests/tap.awk" < <(printf '%s\n' "$@")
	echo "$output"
	sum=$(cat "$BATS_TEST_TMPDIR/sum")
}

@test "passes, failures and skips are counted, a plan may stand last, groups add up" {
	judge 1 'ok 1 - a' 'not ok 2 - b' '# why' 'ok 3 # skip no such card' '1..3'
	[ "$sum" = '1 1 1' ]
	says 'why'
	says 'no such card'
	judge 0 1..1 'ok 1 - a' 1..2 'ok 1 - b' 'ok 2 - c'
	[ "$sum" = '3 0 0' ]
}

@test "a verdict behind text without a newline is still seen" {
	judge 1 1..2 'chatterok 1 - a' 'morenot ok 2 - b'
	[ "$sum" = '1 1 0' ]
}

@test "a file that dies after its first test counts as failed, even with status 0" {
	judge 139 1..4 'ok 1 - a'
	[ "$sum" = '1 1 0' ]
	says 'stopped after 1 of 4'
	judge 0 1..4 'ok 1 - a'
	[ "$sum" = '1 1 0' ]
}

@test "a bad status after good tests, silence with a bad status, and an overrun are failures" {
	judge 3 1..1 'ok 1 - a'
	[ "$sum" = '1 1 0' ]
	judge 134
	[ "$sum" = '0 1 0' ]
	judge 124 1..1 'ok 1 - a'
	[ "$sum" = '1 1 0' ]
	says 'ran past'
}

@test "a skip needs a reason; cmocka gives it on the line before" {
	judge 0 1..1 'skip: needs two cards' 'not ok 1 # SKIP on_two_cards'
	[ "$sum" = '0 0 1' ]
	says 'on_two_cards: needs two cards'
	judge 0 1..1 'not ok 1 # SKIP on_two_cards'
	[ "$sum" = '0 1 0' ]
	judge 0 1..1 'ok 1 bare # skip'
	[ "$sum" = '0 1 0' ]
}

@test "NEED turns a skip for that reason into a failure, and leaves others alone" {
	NEED=cuda,mpi judge 0 1..2 'ok 1 a # skip MPI is not here' 'ok 2 b # skip no gnuplot'
	[ "$sum" = '0 1 1' ]
}

@test "a list of many cases is taken at its own count, with its failures and the reasons of its skips" {
	judge 1 'FAIL cpu: gemm 3x5: bits differ' 'SKIP cpu: 200 cases: takes no BF16' '710 passed, 1 failed, 200 skipped'
	[ "$sum" = '710 1 200' ]
	says 'bits differ'
	says 'takes no BF16'
	judge 0 '7 passed, 0 failed, 2 skipped'
	[ "$sum" = '7 1 2' ]
	judge 139 '7 passed, 0 failed, 0 skipped'
	[ "$sum" = '7 1 0' ]
	NEED=bf16 judge 0 'SKIP cpu: 2 cases: takes no BF16' '7 passed, 0 failed, 2 skipped'
	[ "$sum" = '7 1 2' ]
}

# A tree of its own with one test program; check runs there from start to end.
small_tree() {
	T=$BATS_TEST_TMPDIR/tree
	mkdir -p "$T/tests/unit" "$T/common/base"
	cp -r "$ROOT/Makefile" "$ROOT/VERSION" "$ROOT/etc" "$T"
	cp "$ROOT/tests/check" "$ROOT/tests/tap.awk" "$T/tests"
	cp "$ROOT"/common/base/version.? "$T/common/base"
	cat > "$T/tests/unit/test_x.c"
}

@test "check ends with the sum and status 0 when all is well, and 1 when a program aborts" {
	small_tree <<< 'int main(void) { return 0; }'
	run sh "$T/tests/check" --no-setup unit
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${lines[-1]}" = '1 passed, 0 failed, 0 skipped' ]
	small_tree <<< 'int main(void) { __builtin_trap(); }'
	run sh "$T/tests/check" --no-setup unit
	echo "$output"
	[ "$status" -eq 1 ]
	[ "${lines[-1]}" = '0 passed, 1 failed, 0 skipped' ]
}

@test "a run in which everything was skipped fails" {
	small_tree << 'C'
#include <stdio.h>
int main(void) { puts("1..1\nok 1 - a # SKIP no reason to run"); return 0; }
C
	run sh "$T/tests/check" --no-setup unit
	echo "$output"
	[ "$status" -eq 1 ]
	[ "${lines[-1]}" = '0 passed, 0 failed, 1 skipped' ]
}

@test "a build that fails is one failure and a last line" {
	small_tree <<< 'int main(void) { return nothing; }'
	run sh "$T/tests/check" --no-setup unit
	[ "$status" -eq 1 ]
	[ "${lines[-1]}" = '0 passed, 1 failed, 0 skipped' ]
}

@test "set-up names the one line to run, and ends with 69, when it may not install" {
	mkdir "$BATS_TEST_TMPDIR/bin"
	# Every tool but bats, for a user who is not root and has no sudo.
	for t in sh id cc gcc as ld make pkg-config mktemp rm mkdir cat sed grep head tail tr sort dirname shellcheck mandoc clang apt-get env; do
		p=$(command -v "$t") && ln -s "$p" "$BATS_TEST_TMPDIR/bin/$t"
	done
	chmod 755 "$BATS_TEST_TMPDIR" "$BATS_TEST_TMPDIR/bin"
	printf '#!/bin/sh\necho 1000\n' > "$BATS_TEST_TMPDIR/bin/id2"
	rm "$BATS_TEST_TMPDIR/bin/id"
	mv "$BATS_TEST_TMPDIR/bin/id2" "$BATS_TEST_TMPDIR/bin/id"
	chmod 755 "$BATS_TEST_TMPDIR/bin/id"
	PATH=$BATS_TEST_TMPDIR/bin fails_with 69 "$BATS_TEST_TMPDIR/bin/sh" "$ROOT/etc/setup" check
	[[ $stderr == *'apt-get install --no-install-recommends bats'* ]]
}

# A fuzz target made of the body of fuzz_one().
fuzz_target() {
	cat > "$BATS_TEST_TMPDIR/t.c" <<- C
		#include <string.h>
		#include <stdlib.h>
		#include "base/err.h"
		#include "fuzz/fuzz.h"
		int fs_remove_tree(const char *path);           /* of the kit; nothing here has a folder */
		int fs_remove_tree(const char *path) { (void)path; return 0; }
		const char fuzz_what[] = "a list";
		int fuzz_seeds(void) { fuzz_add_text("[1,2,3]"); return 0; }
		int fuzz_one(const uint8_t *data, size_t n) { (void)data; (void)n; $1 }
	C
	cc -D_GNU_SOURCE -fopenmp -I"$ROOT/common" -I"$ROOT/tests" -o "$BATS_TEST_TMPDIR/fuzz_list" "$BATS_TEST_TMPDIR/t.c" \
		"$ROOT/tests/fuzz/fuzz.c" "$ROOT/tests/fuzz/kit.c" "$ROOT/common/base/err.c"
	CHECK_LOGS=$BATS_TEST_TMPDIR MOE_SAN='' run "$BATS_TEST_TMPDIR/fuzz_list"
	echo "$output"
}

@test "fuzzing finds a planted crash and keeps the input" {
	fuzz_target 'if (memmem(data, n, "null", 4)) abort(); return 0;'
	[ "$status" -ne 0 ]
	says 'not ok 3 - crashed'
	grep -q null "$BATS_TEST_TMPDIR"/fuzz-*.input
}

@test "fuzzing finds a failure without a sentence, a wrong code and a control character in a message" {
	fuzz_target 'return n > 8 ? ERR_DATA : 0;'
	says 'not ok 3 - a failure without its sentence'
	fuzz_target 'return n > 8 ? err_set(ERR_BUG, "ours") : 0;'
	says 'not ok 3 - a code that bad input must not have'
	fuzz_target 'static struct err_state e = { ERR_DATA, "bad \033[31m" }; return n > 8 ? err_put(&e) : 0;'
	says 'not ok 3 - a control character'
	[ "$status" -eq 1 ]
}

@test "fuzzing is content with a parser that answers cleanly" {
	fuzz_target 'return n > 8 ? err_set(ERR_DATA, "too long") : 0;'
	[ "$status" -eq 0 ]
	says 'ok 3 - 20000 broken copies of a list'
}
