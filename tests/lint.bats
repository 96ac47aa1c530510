#!/usr/bin/env bats
# lint.bats -- each rule of tests/lint is silent on a clean tree and catches a planted violation.

load lib

setup() {
	T=$BATS_TEST_TMPDIR/tree
	mkdir -p "$T"/{common/{base,dev/cpu,comm,model,tok,train,optim,ckpt},src/moe-x,tests/unit,man}
	put common/base/err.h '/* err.h -- errors. */' '#ifndef BASE_ERR_H' '#define BASE_ERR_H' 'int err_set(int code);' '#endif'
	put common/base/err.c '/* err.c -- see err.h. */' '#include "base/err.h"' '' 'int err_set(int code) { return code; }'
	put common/tok/bpe.c '/* bpe.c -- see err.h. */' '#include "base/err.h"'
	put common/dev/cpu/cpu_mm.h '/* cpu_mm.h -- of one device. */'
	put src/moe-x/x_run.c '/* x_run.c -- a program. */' '#include "base/err.h"' 'int main(void) { return err_set(0); }'
}

put() {
	local f=$T/$1
	shift
	printf '%s\n' "$@" > "$f"
}

objects() {
	export MOE_BUILD=$BATS_TEST_TMPDIR/build
	local f
	for f in $(cd "$T" && find src common -name '*.c'); do
		mkdir -p "$MOE_BUILD/obj/${f%/*}"
		cc -I"$T/common" -c -o "$MOE_BUILD/obj/${f%.c}.o" "$T/$f"
	done
}

# caught RULE PLACE TEXT: the rule fails, and one line starts with PLACE and
# holds TEXT.
caught() {
	run env LINT_ROOT="$T" sh "$ROOT/tests/lint/run" "$1.sh"
	echo "$output"
	[ "$status" -eq 1 ]
	printf '%s\n' "${lines[@]}" | grep -F "$2" | grep -qF "$3"
}

quiet() {
	run env LINT_ROOT="$T" sh "$ROOT/tests/lint/run" "$@"
	echo "$output"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

@test "a clean tree passes every rule in silence" {
	objects
	quiet
}

@test "an include that points up is caught" {
	put common/base/up.c '/* up.c -- wrong. */' '#include "tok/bpe.h"'
	put common/tok/bpe.h '/* bpe.h -- merges. */'
	caught arrows common/base/up.c:2: 'base must not include tok/bpe.h: the arrow points up'
}

@test "an include of a sibling folder is caught" {
	put common/model/attn.h '/* attn.h -- attention. */'
	put common/tok/side.c '/* side.c -- wrong. */' '' '#include "model/attn.h"'
	caught arrows common/tok/side.c:3: siblings
	put common/optim/clip.h '/* clip.h -- norm. */'
	put common/ckpt/save.c '/* save.c -- wrong. */' '#  include "optim/clip.h"'
	caught arrows common/ckpt/save.c:2: siblings
}

@test "an include of a back-end folder from outside is caught, also from src and dev" {
	put src/moe-x/peek.c '/* peek.c -- wrong. */' '#include "dev/cpu/cpu_mm.h"'
	caught arrows src/moe-x/peek.c:2: 'back end'
	rm "$T/src/moe-x/peek.c"
	put common/dev/open.c '/* open.c -- wrong. */' '#include "dev/cpu/cpu_mm.h"'
	caught arrows common/dev/open.c:2: 'back end'
	rm "$T/common/dev/open.c"
	put common/dev/cpu/gemm.c '/* gemm.c -- right. */' '#include "dev/cpu/cpu_mm.h"'
	quiet arrows.sh
}

@test "a folder without a layer, a path without its folder and a missing header are caught" {
	mkdir "$T/common/extra"
	put common/extra/e.c '/* e.c -- wrong. */' '#include "base/err.h"'
	caught arrows common/extra/e.c:2: 'no place'
	put common/base/bare.c '/* bare.c -- wrong. */' '#include "err.h"' '#include "base/none.h"'
	caught arrows common/base/bare.c:2: 'does not carry its folder'
	caught arrows common/base/bare.c:3: 'not in common/'
}

@test "a cycle of three modules is caught and each of its lines named" {
	put common/base/a.h '/* a.h -- a. */' '#include "base/b.h"'
	put common/base/b.h '/* b.h -- b. */' '#include "base/c.h"'
	put common/base/c.c '/* c.c -- c. */' '#include "base/a.h"'
	put common/base/c.h '/* c.h -- c. */'
	caught cycles common/base/a.h:2: 'base/a -> base/b'
	caught cycles common/base/b.h:2: 'base/b -> base/c'
	caught cycles common/base/c.c:2: 'base/c -> base/a'
}

@test "a module may have a second source and a header of its own for it" {
	put common/tok/vocab.h '/* vocab.h -- public. */'
	put common/tok/vocab_store.h '/* vocab_store.h -- private. */' '#include "tok/vocab.h"'
	put common/tok/vocab.c '/* vocab.c -- see vocab.h. */' '#include "tok/vocab_store.h"'
	quiet cycles.sh
	put common/tok/lexicon.h '/* lexicon.h -- another. */' '#include "tok/vocab.h"'
	put common/tok/vocab.c '/* vocab.c -- wrong. */' '#include "tok/lexicon.h"'
	caught cycles common/tok/vocab.c:2: 'tok/vocab -> tok/lexicon'
}

@test "a source of 801 lines, a header of 251 and a Makefile of 251 are caught, one less is not" {
	for n in 800 801; do { echo '/* long.c -- long. */'; yes ';' | head -n $((n - 1)); } > "$T/common/base/long_$n.c"; done
	for n in 250 251; do { echo '/* h.h -- long. */'; yes ';' | head -n $((n - 1)); } > "$T/common/base/head_$n.h"; done
	yes '#' | head -n 251 > "$T/Makefile"
	caught sizes common/base/long_801.c:801: 800
	caught sizes common/base/head_251.h:251: 250
	caught sizes Makefile:251: 250
	[ "${#lines[@]}" -eq 3 ]
}

@test "an external symbol without its module's name is caught; statics and main are not" {
	put common/base/arena.c '/* arena.c -- memory. */' 'static int loose(void) { return 0; }' \
		'int grab(void);' 'int grab(void) { return loose(); }' 'int arena_new;' 'int arenas;'
	objects
	caught symbols common/base/arena.c:3: 'external symbol grab'
	caught symbols common/base/arena.c:6: 'external symbol arenas'
	[ "${#lines[@]}" -eq 2 ]
}

@test "a module of two sources shares the name of its header, and only of a header that is there" {
	put common/base/fs.h '/* fs.h -- files. */'
	put common/base/fs_out.c '/* fs_out.c -- files. */' 'int fs_write;'
	put common/base/ab_out.c '/* ab_out.c -- wrong. */' 'int ab_write;'
	objects
	caught symbols common/base/ab_out.c:2: 'external symbol ab_write'
	[ "${#lines[@]}" -eq 1 ]
}

@test "a source without an object is caught, so that the rule cannot pass unseen" {
	objects
	put common/base/late.c '/* late.c -- late. */'
	caught symbols common/base/late.c:1: 'has no object'
}

@test "a header that leans on its includer is caught, and so is one without a guard" {
	put common/base/lean.h '/* lean.h -- wrong. */' '#ifndef L_H' '#define L_H' 'size_t lean(void);' '#endif'
	caught headers common/base/lean.h:4: error
	put common/base/twice.h '/* twice.h -- wrong. */' 'struct twice { int a; };'
	caught headers common/base/twice.h:2: error
}

@test "stdio outside base/out and base/log is caught; snprintf, comments and strings are not" {
	put common/tok/f.c '/* f.c -- fopen() in a comment. */' 'char *s = "printf(";' 'void f(void) { snprintf(0, 0, "x"); }' \
		'void g(void) { fopen("a", "w"); }' 'void h(FILE *f);' 'void i(void) { exit(1); }'
	put common/base/log.c '/* log.c -- may. */' 'void log_x(void) { fprintf(0, "x"); }'
	caught streams common/tok/f.c:4: fopen
	caught streams common/tok/f.c:5: FILE
	caught streams common/tok/f.c:6: exit
	[ "${#lines[@]}" -eq 3 ]
}

@test "what the house style rules out is caught" {
	put common/model/m.c '/* m.c -- wrong. */' '#include "base/err.c"' '#ifdef CUDA' '#endif' 'int n = atoi("1");' \
		'/* TO''DO */' '#include <immintrin.h>'
	put Makefile 'CFLAGS = -f''fast-math'
	put etc_path "cd /wo""rk/main"
	caught forbidden common/model/m.c:2: 'includes a .c file'
	caught forbidden common/model/m.c:3: 'the trainer knows'
	caught forbidden common/model/m.c:5: 'no bound'
	caught forbidden common/model/m.c:6: unfinished
	caught forbidden common/model/m.c:7: 'not behind the macro'
	caught forbidden Makefile:1: 'flag'
	caught forbidden etc_path:1: 'path of one machine'
}

@test "a base name used twice, one in capitals and one that says nothing are caught" {
	put common/tok/err.h '/* err.h -- twice. */'
	put common/tok/Bad.c '/* Bad.c -- case. */'
	put common/tok/util.c '/* util.c -- nothing. */'
	caught names common/tok/err.h:1: 'taken by common/base/err.h'
	caught names common/tok/Bad.c:1: 'lower_snake'
	caught names common/tok/util.c:1: 'says nothing'
}

@test "a shell script with an unquoted variable is caught, with and without a suffix" {
	need shellcheck
	put go '#!/bin/sh' '# go -- wrong.' 'rm -r $1/x'
	put go.sh '#!/bin/sh' '# go.sh -- wrong.' 'if [ $1 == a ]; then echo; fi'
	caught shell go:3: SC2086
	caught shell go.sh:3: SC3014
}

@test "a manual page that mandoc warns about is caught" {
	need mandoc
	put man/moe.7 '.Dd $Mdocdate$' '.Dt MOE 7' '.Os' '.Sh NAME' '.Nm moe' '.Nd text' '.Sh DESCRIPTION' '.Xx'
	caught pages man/moe.7:8: ''
}

@test "a source that does not open with its name, and white space at the end, are caught" {
	put common/tok/silent.c 'int x;'
	put common/tok/space.c '/* space.c -- wrong. */' 'int y; '
	caught heads common/tok/silent.c:1: 'does not open'
	caught heads common/tok/space.c:2: 'white space'
}

@test "a fault without a row, with two, without a test, or with one that is not there is caught" {
	mkdir -p "$T/tests/fault"
	put tests/a.bats '@test "it ends, as it should: 74" {' '}'
	put tests/unit/test_a.c '/* test_a.c -- a. */' 'int main(void) { cmocka_unit_test(all_is_well); }'
	table() {
		for i in $(seq 35); do printf 'F%d\twhat\n\ttests/unit/test_a.c: all_is_well\n' "$i"; done > "$T/tests/fault/TABLE"
	}
	caught faults tests/fault/TABLE:1: 'is missing'
	table
	printf 'F36\tmore\n\ttests/a.bats: it ends, as it should: 74\n' >> "$T/tests/fault/TABLE"
	quiet faults.sh
	sed -i '5,6d' "$T/tests/fault/TABLE"
	caught faults tests/fault/TABLE:1: 'F3 is missing'
	table
	printf 'F7\tagain\n\t- no reason\n' >> "$T/tests/fault/TABLE"
	caught faults tests/fault/TABLE:71: 'F7 stands here twice'
	table
	printf 'F36\tmore\n\ttests/unit/test_a.c: all_is_bad\nF37\tnone\n\tF38 x\nnothing\n' >> "$T/tests/fault/TABLE"
	caught faults tests/fault/TABLE:72: 'no such test: tests/unit/test_a.c: all_is_bad'
	caught faults tests/fault/TABLE:75: 'neither a row nor a test'
	printf 'F40\tnone\n' >> "$T/tests/fault/TABLE"
	caught faults tests/fault/TABLE:76: 'F40 names no test and gives no reason'
}
