#!/usr/bin/env bats
# completion.bats -- bash offers what the option tables hold, no more and no less.

load lib

# offers PROG WORD...: what completion makes of the words, the last of them
# being typed; sorted, on one line.
offers() {
	local fn=_${1//-/_}
	COMP_WORDS=("$@")
	COMP_CWORD=$(($# - 1))
	COMPREPLY=()
	"$fn"
	printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ' | sed 's/ $//'
}

made_from() { awk -v prog="$1" -f "$ROOT/etc/completion.awk"; }

setup_sample() {
	source <(printf '%s\t%s\t%s\t%s\t%s\t%s\n' \
		'#command' letter name argument default help \
		run '' '' '[options] FILE' '' 'do it' \
		run q quiet '' '' 'say less' \
		run d device 'cpu|ref' cpu 'where' \
		run o output FILE '' 'to' \
		ls '' '' '[options]' '' 'list' \
		ls '' json '' '' 'as JSON' | made_from moe-x)
}

@test "subcommands are offered first, then the options of the subcommand that was named" {
	setup_sample
	[ "$(offers moe-x '')" = 'ls run' ]
	[ "$(offers moe-x r)" = run ]
	[ "$(offers moe-x ls -)" = --json ]
	[ "$(offers moe-x run --)" = '--device --output --quiet' ]
}

@test "without a subcommand the options of the default one are offered" {
	setup_sample
	[ "$(offers moe-x --q)" = --quiet ]
}

@test "a choice offers its words, a file is left to the shell" {
	setup_sample
	[ "$(offers moe-x run -d '')" = 'cpu ref' ]
	[ "$(offers moe-x run --device c)" = cpu ]
	[ -z "$(offers moe-x run -o '')" ]
	[ -z "$(offers moe-x run a)" ]
}

@test "every option of every program built here is offered" {
	found=
	for path in "$MOE_BIN"/moe-*; do
		[ -x "$path" ] || continue
		found=yes
		prog=${path##*/}
		"$path" --print-options > "$BATS_TEST_TMPDIR/table"
		source <(made_from "$prog" < "$BATS_TEST_TMPDIR/table")
		while read -r cmd; do
			want=$(awk -F'\t' -v c="$cmd" '$1 == c && $3 != "" { print "--" $3 }' "$BATS_TEST_TMPDIR/table" | sort | tr '\n' ' ')
			[ "$(offers "$prog" "$cmd" --) " = "$want" ]
		done < <(awk -F'\t' '!/^#/ && $3 == "" { print $1 }' "$BATS_TEST_TMPDIR/table")
	done
	[ -n "$found" ] || skip "no program is built yet"
}
