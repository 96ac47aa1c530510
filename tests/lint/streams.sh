#!/bin/sh
# the library prints nothing, exits nowhere, and writes files through base/fs only
#
# stdout belongs to base/out, stderr to base/log.  Programs use the same two.
# base/err and base/arena speak once, when our own invariant is broken or no
# memory is left, and then end the program; train/stop leaves at the second
# interrupt, inside its signal handler.
. "$LINT/lib"
# shellcheck disable=SC2046
code $(core_files | grep -vE '^common/base/(out|log|err|arena)\.[ch]$') | awk '
	function has(re) { return $0 ~ "(^|[^a-zA-Z0-9_])" re }
	{
		loc = $1
		sub(/:$/, "", loc)
		at = substr($0, length($1) + 1)
		$0 = at
	}
	has("(fopen|fdopen|freopen|fwrite|fputs|fputc|putc|fprintf|vfprintf|printf|vprintf|puts|putchar|perror|tmpfile|popen|open_memstream)[ \t]*\\(") || has("FILE[ \t]*\\*") {
		print loc ": a stdio stream outside base/out and base/log:" at
	}
	has("(exit|_exit|_Exit|abort|quick_exit)[ \t]*\\(") && loc ~ /^common\/(dev|tok|data|model|shard|optim|ckpt|sim|train)\// &&
		loc !~ /^common\/train\/stop\.c:/ {
		print loc ": the library never exits:" at
	}' | verdict
