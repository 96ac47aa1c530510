#!/usr/bin/env bats
# completion.bats -- bash, zsh and fish offer what the option tables hold, no more and no less.

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

made_from() { awk -v prog="$1" -v shell="${2-bash}" -f "$ROOT/etc/completion.awk"; }

sample() {
	printf '%s\t%s\t%s\t%s\t%s\t%s\n' \
		'#command' letter name argument default help \
		run '' '' '[options] FILE' '' 'do it' \
		run q quiet '' '' "don't [say]: much" \
		run d device 'cpu|ref' cpu 'where' \
		run o output FILE '' 'to' \
		ls '' '' '[options]' '' 'list' \
		ls '' json '' '' 'as JSON'
}

setup_sample() { source <(sample | made_from moe-x); }

# Words fish offers at the end of a command line, sorted, on one line.
fish_offers() {
	HOME=$BATS_TEST_TMPDIR fish --no-config -c "cd '$BATS_TEST_TMPDIR'; source '$1'; complete -C '$2'" |
		cut -f 1 | sort | tr '\n' ' ' | sed 's/ $//'
}

# What zsh would hand to _arguments for the words, the last being typed.
zsh_specs() {
	local file=$1
	shift
	# shellcheck disable=SC2016
	zsh -f -c '
		_arguments() { print -rl -- "${(@)@:3}" }
		_describe() { print -rl -- "${(@P)2}" }
		_files() { print -r -- files }
		file=$1; shift
		words=("$@"); CURRENT=$#
		source $file' zsh "$file" "$@"
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

@test "fish offers subcommands, options and the words of a choice" {
	need fish
	sample | made_from moe-x fish > "$BATS_TEST_TMPDIR/x.fish"
	touch "$BATS_TEST_TMPDIR/file"
	fish_offers "$BATS_TEST_TMPDIR/x.fish" 'moe-x '
	[ "$(fish_offers "$BATS_TEST_TMPDIR/x.fish" 'moe-x l')" = ls ]
	[ "$(fish_offers "$BATS_TEST_TMPDIR/x.fish" 'moe-x ls --')" = --json ]
	[ "$(fish_offers "$BATS_TEST_TMPDIR/x.fish" 'moe-x run --')" = '--device --output --quiet' ]
	[ "$(fish_offers "$BATS_TEST_TMPDIR/x.fish" 'moe-x --q')" = --quiet ]
	[ "$(fish_offers "$BATS_TEST_TMPDIR/x.fish" 'moe-x run --device ')" = 'cpu ref' ]
	[ "$(fish_offers "$BATS_TEST_TMPDIR/x.fish" 'moe-x run -o f')" = file ]
}

@test "zsh offers subcommands, options and the words of a choice" {
	need zsh
	sample | made_from moe-x zsh > "$BATS_TEST_TMPDIR/_moe-x"
	[ "$(zsh_specs "$BATS_TEST_TMPDIR/_moe-x" moe-x '')" = "run:do it
ls:list
files" ]
	[ "$(zsh_specs "$BATS_TEST_TMPDIR/_moe-x" moe-x ls -)" = "*--json[as JSON]
*:file:_files" ]
	[ "$(zsh_specs "$BATS_TEST_TMPDIR/_moe-x" moe-x run -)" = "*--quiet[don't \\[say\\]\\: much]
*-q[don't \\[say\\]\\: much]
*--device=[where]:device:(cpu ref)
*-d+[where]:device:(cpu ref)
*--output=[to]:FILE:_files
*-o+[to]:FILE:_files
*:file:_files" ]
	[ "$(zsh_specs "$BATS_TEST_TMPDIR/_moe-x" moe-x -)" = "$(zsh_specs "$BATS_TEST_TMPDIR/_moe-x" moe-x run -)" ]
}

@test "a shell without completion is refused" {
	run made_from moe-x csh < /dev/null
	[ "$status" -eq 2 ]
}
