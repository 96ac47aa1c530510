#!/bin/sh
# every header compiles alone, and twice
. "$LINT/lib"
core_files | grep '\.h$' > "$LINT_TMP/headers"
while read -r h; do
	printf '#include "%s"\n#include "%s"\n' "$h" "$h" |
		${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wundef -Wstrict-prototypes -Werror -Wno-unused-function \
			-fopenmp -I. -Icommon -fsyntax-only -x c - 2>&1 | grep -E ':[0-9]+:[0-9]+: (fatal )?error' | head -n 3
done < "$LINT_TMP/headers" | sed 's/^<stdin>/header/' | verdict
