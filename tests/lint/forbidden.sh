#!/bin/sh
# nothing that the house style rules out
#
# The patterns are written so that they do not match themselves.
. "$LINT/lib"
{
	tree | grep -vE '\.(safetensors|bin|idx)$' > "$LINT_TMP/all"
	each() { tr '\n' '\0' < "$1" | xargs -0 grep -nEI "$2" /dev/null | cut -c1-200 | sed "s/\$/   <- $3/"; }

	grep -vE '^(LICENSE|.*\.json)$' "$LINT_TMP/all" > "$LINT_TMP/text"
	each "$LINT_TMP/text" '(^|[^A-Za-z0-9_.])/((w)ork|(r)oot|(h)ome/[a-z]+|(t)mp/(v)env)(/|[^A-Za-z0-9_-]|$)' 'path of one machine'
	each "$LINT_TMP/text" '(-f)fast-math|(-O)fast\>|(-m)arch=native' 'flag that the style rules out' |
		grep -vE '^(HACKING.md|tests/lint)' | grep -viE '(never|no|not|without|forbid)[^:]*((-f)fast-math|(-O)fast|(-m)arch=native)'

	grep -E '^(src|common|tests)/.*\.([ch]|inc)$' "$LINT_TMP/all" > "$LINT_TMP/c"
	each "$LINT_TMP/c" '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<][^">]*\.c[">]' 'includes a .c file'
	each "$LINT_TMP/c" '\<((T)ODO|(F)IXME|X(X)X)\>' 'unfinished'

	# shellcheck disable=SC2046
	code $(cat "$LINT_TMP/c") > "$LINT_TMP/code"
	grep -vE '^tests/' "$LINT_TMP/code" | grep -E '[^A-Za-z0-9_](alloca|gets|strcat|vsprintf|strtok|atoi|atol|atof)[[:space:]]*\(' |
		sed 's/$/   <- no bound or no error/'
	grep -E ': .*[^A-Za-z0-9_](posix_fallocate)[[:space:]]*\(' "$LINT_TMP/code" | sed 's/$/   <- writes zeros where the file system cannot/'
	grep -E '^common/(train|model)/' "$LINT_TMP/code" |
		grep -E 'cuda|nccl|MPI_|#[[:space:]]*(if|ifdef)\>|#[[:space:]]*ifndef[[:space:]]+[A-Z0-9_]*[^H]$' |
		sed 's/$/   <- the trainer knows no device and no condition/'

	# Intrinsics of one processor stand behind its macro, or the others do not compile.
	tr '\n' '\0' < "$LINT_TMP/c" | xargs -0 awk '
		FNR == 1 { guarded = 0 }
		/__x86_64__|__SSE|__AVX|__aarch64__|__ARM/ { guarded = 1 }
		/#[ \t]*include[ \t]*<(immintrin|x86intrin|emmintrin|cpuid|arm_neon|arm_sve)\.h>/ && !guarded {
			print FILENAME ":" FNR ": " $0 "   <- not behind the macro of its processor"
		}' /dev/null
} | verdict
