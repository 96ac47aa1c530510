#!/bin/sh
# manual pages pass mandoc -Tlint
. "$LINT/lib"
if ! command -v mandoc > /dev/null 2>&1; then
	echo "mandoc is not installed"
	exit 77
fi
tree | grep -E '^man/.*\.[1-8]$' | tr '\n' '\0' | xargs -0 -r mandoc -Tlint -W warning 2>&1 | sed 's/^mandoc: //' | verdict
