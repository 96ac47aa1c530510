#!/bin/sh
# shell scripts pass shellcheck
. "$LINT/lib"
if ! command -v shellcheck > /dev/null 2>&1; then
	echo "shellcheck is not installed"
	exit 77
fi
# What is sourced is looked at as a file of its own.  bats fills variables
# that nothing seems to set, runs each test in a process of its own, and stops a
# test at the first command that fails.
sh_files > "$LINT_TMP/sh"
{
	grep -vE '\.bats$|^tests/lib.bash$' "$LINT_TMP/sh" | tr '\n' '\0' | xargs -0 -r shellcheck -f gcc -S info -e SC1090,SC1091,SC2016
	grep -E '\.bats$|^tests/lib.bash$' "$LINT_TMP/sh" | tr '\n' '\0' |
		xargs -0 -r shellcheck -f gcc -S warning -e SC1090,SC1091,SC2030,SC2031,SC2034,SC2154,SC2164,SC2238
} 2>&1 | verdict
