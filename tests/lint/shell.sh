#!/bin/sh
# shell scripts pass shellcheck
. "$LINT/lib"
if ! command -v shellcheck > /dev/null 2>&1; then
	echo "shellcheck is not installed"
	exit 77
fi
sh_files | tr '\n' '\0' | xargs -0 -r shellcheck -f gcc -S info -e SC1090,SC1091 -s sh 2>&1 < /dev/null |
	grep -v 'In POSIX sh, .* is undefined.*bats' | verdict
