#!/usr/bin/env bats
# options.bats -- each program's option tables, its help, its manual page and
# the examples in it say the same and work.
#
# Works on whatever programs and pages there are.  The examples of a page run
# in an empty folder of their own; tests/examples/moe-X, a shell script, may
# put their inputs there first.

load lib

programs() {
	local path
	for path in "$MOE_BIN"/moe-*; do
		if [ -x "$path" ]; then echo "${path##*/}"; fi
	done
}

need_programs() { [ -n "$(programs)" ] || skip "no program is built yet"; }
need_pages() { compgen -G "$ROOT/man/moe-*.1" > /dev/null || skip "no manual page is written yet"; }

# commands PROG: the subcommands, in the order of the table.
commands() { "$1" --print-options | awk -F'\t' '!/^#/ && $3 == "" { print $1 }'; }

# disagreements TABLE PAGE: what only one of them has.
disagreements() {
	local cmds
	cmds=$(awk -F'\t' '!/^#/ && $3 == "" { printf "%s ", $1 }' "$1")
	awk -F'\t' '!/^#/ && $3 != "" { print $1 "\t" $2 "\t" $3 "\t" $4 }' "$1" | sort > "$BATS_TEST_TMPDIR/in_table"
	awk -v cmds="$cmds" -f "$ROOT/tests/page_options.awk" "$2" | sort > "$BATS_TEST_TMPDIR/in_page"
	comm -3 --output-delimiter='>' "$BATS_TEST_TMPDIR/in_table" "$BATS_TEST_TMPDIR/in_page" |
		awk -F'\t' '{
			where = sub(/^>/, "") ? "only in the page" : "only in the table"
			printf "%s: %s%s--%s%s\n", where, $1 " ", $2 == "" ? "" : "-" $2 ", ", $3, $4 == "" ? "" : "=" $4
		}' | sort
}

# run_examples PAGE DIR: every block of its EXAMPLES in DIR; says what failed.
run_examples() {
	local script reason bad=0
	mkdir -p "$2" "$BATS_TEST_TMPDIR/blocks"
	rm -f "$BATS_TEST_TMPDIR/blocks"/*
	awk -v dir="$BATS_TEST_TMPDIR/blocks" -f "$ROOT/tests/page_examples.awk" "$1" > "$BATS_TEST_TMPDIR/list"
	while IFS=$'\t' read -r script reason; do
		[ -z "$reason" ] || continue
		(cd "$2" && timeout 120 sh -eu "$script") < /dev/null > "$BATS_TEST_TMPDIR/said" 2>&1 || {
			echo "$1: this example ends with status $?:"
			cat "$script"
			echo "and says:"
			tail -n 20 "$BATS_TEST_TMPDIR/said"
			bad=1
		}
	done < "$BATS_TEST_TMPDIR/list"
	return $bad
}

@test "every program has a page and every page a program" {
	need_programs
	need_pages
	bad=
	for prog in $(programs); do
		[ -f "$ROOT/man/$prog.1" ] || { echo "$prog has no page" && bad=1; }
	done
	for page in "$ROOT"/man/moe-*.1; do
		[ -x "$MOE_BIN/$(basename "$page" .1)" ] || { echo "$page describes no program" && bad=1; }
	done
	[ -z "$bad" ]
}

@test "the option tables and the pages agree, both ways" {
	need_programs
	need_pages
	for prog in $(programs); do
		[ -f "$ROOT/man/$prog.1" ] || continue
		"$prog" --print-options > "$BATS_TEST_TMPDIR/table"
		disagreements "$BATS_TEST_TMPDIR/table" "$ROOT/man/$prog.1" | sed "s/^/$prog: /" >> "$BATS_TEST_TMPDIR/all"
	done
	cat "$BATS_TEST_TMPDIR/all"
	[ ! -s "$BATS_TEST_TMPDIR/all" ]
}

@test "every example of every page runs" {
	need_programs
	need_pages
	bad=
	for page in "$ROOT"/man/*.[1-8]; do
		prog=$(basename "$page" | sed 's/\.[1-8]$//')
		dir=$BATS_TEST_TMPDIR/run.$prog
		mkdir "$dir"
		if [ -f "$ROOT/tests/examples/$prog" ]; then
			(cd "$dir" && export ROOT && sh -eu "$ROOT/tests/examples/$prog") > "$BATS_TEST_TMPDIR/said" 2>&1 || {
				echo "tests/examples/$prog fails:" && cat "$BATS_TEST_TMPDIR/said"
				bad=1
				continue
			}
		fi
		run_examples "$page" "$dir" || bad=1
	done
	[ -z "$bad" ]
}

@test "help of every subcommand begins with examples and is made for one screen" {
	need_programs
	bad=
	for prog in $(programs); do
		for cmd in $(commands "$prog"); do
			"$prog" "$cmd" --help > "$BATS_TEST_TMPDIR/help" 2> "$BATS_TEST_TMPDIR/err"
			[ ! -s "$BATS_TEST_TMPDIR/err" ]
			if [ "$(head -n 1 "$BATS_TEST_TMPDIR/help")" != Examples: ]; then
				echo "$prog $cmd --help does not begin with examples"
				bad=1
			fi
			# What cannot fit at least spends one line on the common options.
			if [ "$(wc -l < "$BATS_TEST_TMPDIR/help")" -gt 24 ] && ! grep -q -e '-h -V -q -v' "$BATS_TEST_TMPDIR/help"; then
				echo "$prog $cmd --help wastes lines"
				bad=1
			fi
		done
		"$prog" --help > "$BATS_TEST_TMPDIR/help"
		[ "$(wc -l < "$BATS_TEST_TMPDIR/help")" -le 24 ] || [ "$(commands "$prog" | wc -l)" -eq 1 ]
	done
	[ -z "$bad" ]
}

@test "help lines are short, lower case and without a full stop" {
	need_programs
	for prog in $(programs); do
		"$prog" --print-options | awk -F'\t' -v prog="$prog" '
			/^#/ { next }
			$6 == "" { print prog " " $1 " --" $3 ": no help" }
			$6 ~ /\.$/ { print prog " " $1 " --" $3 ": ends with a full stop: " $6 }
			$6 ~ /^[A-Z][a-z]/ { print prog " " $1 " --" $3 ": begins with a capital: " $6 }
			length($6) > 72 { print prog " " $1 " --" $3 ": longer than 72: " $6 }' >> "$BATS_TEST_TMPDIR/all"
	done
	cat "$BATS_TEST_TMPDIR/all"
	[ ! -s "$BATS_TEST_TMPDIR/all" ]
}

@test "the common options mean the same everywhere" {
	need_programs
	for prog in $(programs); do
		"$prog" --print-options | awk -F'\t' -v prog="$prog" '
			BEGIN { want["h"] = "help"; want["V"] = "version"; want["q"] = "quiet"; want["v"] = "verbose"; want["o"] = "output"; want["f"] = "force"; want["j"] = "threads" }
			/^#/ || $3 == "" { next }
			$2 in want && want[$2] != $3 { print prog " " $1 ": -" $2 " is --" $3 ", expected --" want[$2] }
			{ for (l in want) if (want[l] == $3 && $2 != l) print prog " " $1 ": --" $3 " is not -" l }
			seen[$1, $3]++ || ($2 != "" && seen[$1, "-" $2]++) { print prog " " $1 ": --" $3 " or -" $2 " stands twice" }' >> "$BATS_TEST_TMPDIR/all"
	done
	cat "$BATS_TEST_TMPDIR/all"
	[ ! -s "$BATS_TEST_TMPDIR/all" ]
}

@test "version, bad usage and a full stdout have the same status everywhere" {
	need_programs
	for prog in $(programs); do
		passes "$prog" --version
		[ "${lines[0]}" = "$prog $(cat "$ROOT/VERSION")" ]
		[ -n "${lines[1]}" ]
		for cmd in $(commands "$prog"); do
			fails_with 2 "$prog" "$cmd" --no-such-option
			says "$prog: unknown option --no-such-option (try '$prog"
		done
		status=0
		"$prog" --help > /dev/full 2> "$BATS_TEST_TMPDIR/err" || status=$?
		[ "$status" -eq 74 ]
		[ "$(cat "$BATS_TEST_TMPDIR/err")" = "$prog: standard output: No space left on device" ]
		status=0
		"$prog" --help >&- 2> "$BATS_TEST_TMPDIR/err" || status=$?
		[ "$status" -eq 74 ]
	done
}

sample_page() {
	cat <<- 'EOF'
		.Sh DESCRIPTION
		.Bl -tag
		.It Fl q , Fl -quiet
		.El
		.Ss run
		.Bl -tag
		.It Fl d Cm cpu | ref , Fl \-device Ns = Ns Cm cpu | ref
		.It Fl o Ar FILE , Fl -output Ns = Ns Ar FILE
		.El
		.Ss ls
		.Bl -tag
		.It Fl -json
		.El
		.Sh EXAMPLES
		Two files:
		.Dl echo one > a
		.Dl cat a
		And:
		.Bd -literal -offset indent
		$ printf \(aq%s\en\(aq \e
		  two > b
		printed text
		$ test -s a && cat b
		.Ed
		.\" not run: it needs two nodes
		.Dl false
	EOF
}

sample_table() {
	printf '%s\t%s\t%s\t%s\t%s\t%s\n' '#command' letter name argument default help \
		run '' '' '' '' '' run q quiet '' '' '' run d device 'cpu|ref' cpu '' run o output FILE '' '' \
		ls '' '' '' '' '' ls q quiet '' '' '' ls '' json '' '' ''
}

@test "a page that agrees passes, and each kind of difference is seen" {
	cd "$BATS_TEST_TMPDIR"
	sample_table > table
	sample_page > page
	[ -z "$(disagreements table page)" ]
	sed 's/Fl -json/Fl -jsn/' page > p1
	[ "$(disagreements table p1)" = "only in the page: ls --jsn
only in the table: ls --json" ]
	grep -v quiet page > p2
	[ "$(disagreements table p2 | wc -l)" -eq 2 ]
	sed 's/cpu | ref$/cpu | gpu/' page > p3
	[ "$(disagreements table p3)" = "only in the page: run -d, --device=cpu|gpu
only in the table: run -d, --device=cpu|ref" ]
	sed 's/Fl o Ar/Fl O Ar/' page > p4
	[ "$(disagreements table p4 | wc -l)" -eq 2 ]
	sed 's/^\.Ss ls/.Ss others/' page > p5
	[ "$(disagreements table p5)" = "only in the page: run --json" ]
}

@test "examples of a page run in order, and one that fails is shown" {
	sample_page > "$BATS_TEST_TMPDIR/page"
	run_examples "$BATS_TEST_TMPDIR/page" "$BATS_TEST_TMPDIR/dir"
	[ "$(cat "$BATS_TEST_TMPDIR/dir/a" "$BATS_TEST_TMPDIR/dir/b")" = "one
two" ]
	sed '/not run/d' "$BATS_TEST_TMPDIR/page" > "$BATS_TEST_TMPDIR/page2"
	run run_examples "$BATS_TEST_TMPDIR/page2" "$BATS_TEST_TMPDIR/dir2"
	[ "$status" -eq 1 ]
	says "this example ends with status 1:
false"
}
