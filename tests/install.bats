#!/usr/bin/env bats
# install.bats -- install puts everything below DESTDIR and prefix, uninstall takes away exactly that.

load lib

setup() {
	T=$BATS_TEST_TMPDIR/tree D=$BATS_TEST_TMPDIR/dest
	mkdir -p "$T"/{common/base,src/moe-two,man,etc/machines}
	cp "$ROOT/Makefile" "$ROOT/VERSION" "$T"
	cp "$ROOT/etc/probe" "$ROOT/etc/completion.awk" "$T/etc"
	cp "$ROOT"/common/base/version.? "$T/common/base"
	echo 'int main(void) { return 0; }' | tee "$T/src/moe-one.c" > "$T/src/moe-two/two_main.c"
	touch "$T"/man/{moe.7,moe-one.1,moe-formats.5} "$T"/etc/{small.yaml,machines/laptop.yaml}
}

make_t() { make -s --no-print-directory -C "$T" "$@"; }
files() { (cd "$1" && find . -type f | sort); }

@test "install lays out programs, pages, completions and configurations" {
	make_t install DESTDIR="$D" prefix=/opt/moe
	[ "$(files "$D/opt/moe")" = "./bin/moe-one
./bin/moe-two
./share/bash-completion/completions/moe-one
./share/bash-completion/completions/moe-two
./share/fish/vendor_completions.d/moe-one.fish
./share/fish/vendor_completions.d/moe-two.fish
./share/man/man1/moe-one.1
./share/man/man5/moe-formats.5
./share/man/man7/moe.7
./share/moe-tools/machines/laptop.yaml
./share/moe-tools/small.yaml
./share/zsh/site-functions/_moe-one
./share/zsh/site-functions/_moe-two" ]
	[ -x "$D/opt/moe/bin/moe-one" ]
	[ ! -x "$D/opt/moe/share/moe-tools/small.yaml" ]
	[ "$(files "$D" | grep -vc '^./opt/moe/')" -eq 0 ]
	"$D/opt/moe/bin/moe-one"
}

@test "uninstall removes exactly what install put there and keeps foreign files" {
	mkdir -p "$D/usr/local/bin" "$D/usr/local/share/man/man1"
	touch "$D/usr/local/bin/other" "$D/usr/local/share/man/man1/other.1"
	before=$(files "$D")
	make_t install DESTDIR="$D"
	[ "$(files "$D")" != "$before" ]
	make_t uninstall DESTDIR="$D"
	[ "$(files "$D")" = "$before" ]
	[ ! -e "$D/usr/local/share/moe-tools" ]
	# A second time there is nothing to do, and that is no error.
	make_t uninstall DESTDIR="$D"
}

@test "install of the real tree and uninstall leave nothing behind" {
	eval "make -s --no-print-directory -C '$ROOT' $MOE_VARS install DESTDIR='$D'"
	[ -n "$(files "$D")" ] || [ -z "$(ls "$ROOT/src")" ]
	eval "make -s --no-print-directory -C '$ROOT' $MOE_VARS uninstall DESTDIR='$D'"
	[ -z "$(files "$D")" ]
}

@test "another compiler or flag builds beside, not over, what is there" {
	make_t
	a=$(make_t where)
	make_t CFLAGS=-O0
	b=$(make_t where CFLAGS=-O0)
	[ "$a" != "$b" ]
	eval "$a"
	[ -f "$MOE_BUILD/libmoe.a" ]
	# bin/ follows the last call, although its own file is the newer one.
	one=$(cksum < "$MOE_BUILD/bin/moe-one")
	make_t
	[ "$(cksum < "$T/bin/moe-one")" = "$one" ]
}

@test "a source that is removed leaves the archive" {
	echo 'int gone(void); int gone(void) { return 0; }' > "$T/common/base/gone.c"
	make_t
	eval "$(make_t where)"
	ar t "$MOE_BUILD/libmoe.a" | grep -qx gone.o
	rm "$T/common/base/gone.c"
	make_t
	[ "$(ar t "$MOE_BUILD/libmoe.a")" = version.o ]
}

@test "a build that has nothing to do does nothing" {
	make_t all
	run make_t all V=1
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

@test "a library that does not link ends the build with its package" {
	run make_t CBLAS_LIBS=-lno_such_blas
	[ "$status" -ne 0 ]
	[[ $output == *'libopenblas-openmp-dev'* ]]
}
