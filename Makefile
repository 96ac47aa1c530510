# Makefile -- builds, tests and installs moe-tools.
#
# Everything is found by wildcards, so that adding a source, a program or a
# test never means editing this file:
#   common/**/*.c           -> libmoe.a
#   src/moe-X.c, src/moe-X/*.c -> bin/moe-X
#   tests/unit/test_X.c     -> one cmocka program each; other tests/unit/*.c are linked into all of them
#   tests/fuzz/fuzz_X.c     -> one program each, with the driver tests/fuzz/fuzz.c, or explore.c and libFuzzer; other tests/fuzz/*.c are linked into all
#   tests/conform/*.c, tests/comm/*.c -> one program each;  tests/mistake/*.c -> a moe-train with mistakes;  tests/fault/X.c -> one preload library each
# Objects lie in $(O)/<key of compiler and flags>/, so another CC, SAN or
# CFLAGS never mixes with what is there and never needs a "make clean".
#
# It refuses to download anything and to guess: a library that does not
# compile and link (etc/probe) ends the build with the name of its package; MPI
# alone may be absent (MPI=auto, the default), or is asked for or left out (yes, no).

.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
MAKEFLAGS += --no-builtin-rules

O       = build
V       =
SAN     =
WERROR  =
MPI     = auto
prefix  = /usr/local
bindir  = $(prefix)/bin
datadir = $(prefix)/share
mandir  = $(datadir)/man
AR      = ar
NM      = nm
CFLAGS  = $(if $(SAN),-O1,-O2) -g
export NM CC

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

# Contraction is off so that ref, the tests and every layout round alike; the
# cpu kernels may contract, since conform compares them within a derived
# tolerance.  errno of libm is never read.
warnings := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Werror=implicit-function-declaration
std_flags := -std=c11 -D_GNU_SOURCE -fopenmp -fno-math-errno -ffp-contract=off $(warnings) \
             $(if $(WERROR),-Werror) \
             $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer $(if $(findstring thread,$(SAN)),,-fno-sanitize-recover=all))
cpu_flags := -ffp-contract=fast

cc_version := $(shell $(CC) --version 2>/dev/null | head -n 1)
key := $(notdir $(firstword $(CC)))$(if $(SAN),-san)-$(shell \
         printf '%s\n' '$(CC) $(cc_version) $(std_flags) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(LDLIBS) $(CBLAS_LIBS) MPI=$(MPI)' \
           $(if $(filter auto,$(MPI)),"$$(command -v mpicc)") | cksum | cut -d' ' -f1)
B   := $(O)/$(key)
BIN := $(if $(filter build,$(O)),bin,$(O)/bin)
compdb := $(if $(filter build,$(O)),,$(O)/)compile_commands.json

no_build := where clean uninstall demo check check-long check-oracle fuzz
ifneq ($(filter-out $(no_build),$(or $(MAKECMDGOALS),all)),)
include $(B)/config.mk
endif

# ---- what is there
find_c     = $(sort $(shell find $(1) -name '*.c' 2>/dev/null))
# One of the two, so that no source has a condition.
off_src   := $(if $(filter mpi=%,$(PARTS)),common/comm/comm_mpi_absent.c,$(call find_c,common/comm/mpi))
lib_src   := $(filter-out $(off_src),$(call find_c,common))
prog_src  := $(call find_c,src)
unit_src  := $(sort $(wildcard tests/unit/test_*.c))
help_src  := $(filter-out $(unit_src),$(sort $(wildcard tests/unit/*.c)))
conf_src  := $(sort $(wildcard tests/conform/*.c))
comm_src  := $(sort $(wildcard tests/comm/*.c))
mistake_src := $(sort $(wildcard tests/mistake/*.c))
fuzz_src  := $(sort $(wildcard tests/fuzz/fuzz_*.c))
fuzz_main := tests/fuzz/fuzz.c
fuzz_help := $(filter-out $(fuzz_src) $(fuzz_main) tests/fuzz/explore.c,$(sort $(wildcard tests/fuzz/*.c)))
fault_src := $(sort $(wildcard tests/fault/*.c))

obj        = $(patsubst %.c,$(B)/obj/%.o,$(1))
progs     := $(sort $(foreach s,$(prog_src:src/%=%),$(basename $(firstword $(subst /, ,$(s))))))
prog_obj   = $(call obj,$(filter src/$(1).c src/$(1)/%,$(prog_src)))
lib       := $(B)/libmoe.a
units     := $(unit_src:tests/unit/%.c=$(B)/unit/%)
fuzzers   := $(fuzz_src:tests/fuzz/%.c=$(B)/fuzz/%)
explorers := $(fuzz_src:tests/fuzz/fuzz_%.c=$(B)/explore/%)
conform   := $(if $(conf_src),$(B)/conform) $(if $(comm_src),$(B)/comm)
mistakes  := $(if $(mistake_src),$(B)/mistake/moe-train)
faults    := $(fault_src:tests/fault/%.c=$(B)/fault/%.so)
all_src   := $(lib_src) $(prog_src) $(unit_src) $(help_src) $(conf_src) $(comm_src) $(mistake_src) $(fuzz_src) $(fuzz_main) $(fuzz_help) tests/fuzz/explore.c

.PHONY: all bin unit-build fuzz fuzz-build unit check check-long check-oracle lint config where demo completions install uninstall clean FORCE

all: $(lib) bin $(compdb)
unit-build: $(units) $(fuzzers) $(conform) $(mistakes) $(faults)
fuzz-build: $(explorers)

# ---- compile
extra =
opt_flags = $(CFLAGS)
all_cflags = $(std_flags) -Icommon $(extra) $(LIB_CFLAGS) $(CPPFLAGS) $(opt_flags)
$(call obj,$(filter common/comm/mpi/%,$(lib_src))): extra = $(MPI_CFLAGS)
$(call obj,$(filter common/dev/cpu/%,$(lib_src))): opt_flags = $(CFLAGS:-O2=-O3) $(cpu_flags)
$(call obj,common/base/version.c): extra = -I$(B)/gen
$(call obj,common/base/version.c): $(B)/gen/version_build.h
$(call obj,$(unit_src) $(help_src) $(conf_src) $(comm_src) $(fuzz_src) $(fuzz_main) $(fuzz_help) tests/fuzz/explore.c): extra = -Itests

# Beside each object lies its line of compile_commands.json.
$(call obj,$(all_src)): $(B)/obj/%.o: %.c $(B)/config.mk
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(all_cflags) -MMD -MP -c -o $@ $<
	@printf '{"directory":"%s","file":"%s","command":"%s"},\n' '$(CURDIR)' '$<' '$(CC) $(all_cflags) -c -o $@ $<' > $(@:.o=.json)

# ---- archive and link
# The list of objects is a prerequisite of what is made from it, so that a
# removed source leaves the archive too.
$(B)/lib.list: FORCE
	@mkdir -p $(@D); echo '$(off_src)' > $(@D)/off.list
	@echo '$(lib_src)' | cmp -s - $@ || echo '$(lib_src)' > $@

$(lib): $(call obj,$(lib_src)) $(B)/lib.list
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

link = $(Q)mkdir -p $(@D) && $(CC) $(std_flags) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(lib)
libs = $(LIBS) $(LDLIBS) -lm -lpthread

define program
$(B)/bin/$(1): $(call prog_obj,$(1)) $(lib)
	$$(call say,LD,$(1))
	$$(link) $$(libs)
endef
$(foreach p,$(progs),$(eval $(call program,$(p))))

$(units): $(B)/unit/%: $(B)/obj/tests/unit/%.o $(call obj,$(help_src)) $(lib)
	$(call say,LD,$@)
	$(link) -lcmocka $(libs)

$(fuzzers): $(B)/fuzz/%: $(B)/obj/tests/fuzz/%.o $(call obj,$(fuzz_main) $(fuzz_help)) $(lib)
	$(call say,LD,$@)
	$(link) $(libs)

$(explorers): $(B)/explore/%: $(B)/obj/tests/fuzz/fuzz_%.o $(call obj,tests/fuzz/explore.c $(fuzz_help)) $(lib)
	$(call say,LD,$@)
	$(link) -fsanitize=fuzzer $(libs)

$(B)/conform: $(call obj,$(conf_src)) $(lib)
$(B)/comm: $(call obj,$(comm_src)) $(lib)
$(conform):
	$(call say,LD,$@)
	$(link) $(libs)

# moe-train with mistakes in it: the linker puts them between files of the library.
wrapped = trainer_gradients trainer_init trainer_close comm_all_reduce dev_open optim_step
$(mistakes): $(call obj,$(mistake_src)) $(call prog_obj,moe-train) $(lib)
	$(call say,LD,$@)
	$(link) $(wrapped:%=-Wl,--wrap=%) $(libs)

# Preload libraries hold no product code and take no sanitizer: they are
# loaded into a program that already has one.
$(faults): $(B)/fault/%.so: tests/fault/%.c $(wildcard tests/fault/*.h)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(warnings) $(if $(WERROR),-Werror) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -o $@ $< -ldl -lpthread

# bin/ always holds the build that was asked for last; rename keeps a running
# program intact.
bin: $(progs:%=$(B)/bin/%)
	@mkdir -p $(BIN)
	@for p in $(progs); do cmp -s $(B)/bin/$$p $(BIN)/$$p || \
	  { cp $(B)/bin/$$p $(BIN)/.$$p.$$$$ && mv -f $(BIN)/.$$p.$$$$ $(BIN)/$$p; } || exit 1; done

$(compdb): $(call obj,$(lib_src) $(prog_src))
	@{ echo '['; cat /dev/null $(^:.o=.json) | sed '$$s/,$$//'; echo ']'; } > $@.tmp && mv -f $@.tmp $@

# ---- what the machine offers
$(B)/config.mk: etc/probe
	@mkdir -p $(@D)
	@CC='$(CC)' CPPFLAGS='$(CPPFLAGS)' CFLAGS='$(std_flags) $(CFLAGS)' LDFLAGS='$(LDFLAGS)' \
	  CBLAS_LIBS='$(CBLAS_LIBS)' MPI='$(MPI)' sh etc/probe $(@D)/probe > $@.tmp && mv -f $@.tmp $@

$(B)/gen/version_build.h: VERSION $(B)/config.mk
	@mkdir -p $(@D)
	@printf '#define BUILD_VERSION "%s"\n#define BUILD_PARTS "%s"\n' \
	  "$$(cat VERSION)" '$(PARTS)$(if $(SAN), sanitizers=$(SAN))' > $@

config: $(B)/config.mk
	@cat $<

# For the scripts: where this build lies, as shell assignments.
where:
	@echo "MOE_BIN='$(abspath $(BIN))' MOE_BUILD='$(abspath $(B))' MOE_SAN='$(SAN)' MOE_VARS=\"$(MAKEOVERRIDES)\""

# ---- tests
unit: all unit-build
	+@sh tests/check --no-setup unit fuzz conform comm
lint: $(call obj,$(lib_src) $(prog_src))
	@NM='$(NM)' MOE_BUILD='$(B)' sh tests/lint/run
check:
	+@sh tests/check
check-long:
	+@sh tests/check --long
check-oracle:
	+@sh tests/oracle/check
fuzz:
	+@FUZZ_S='$(FUZZ_S)' sh tests/fuzz/run $(T)
demo:
	+@sh etc/demo

# ---- install: one list of source:destination, walked by both directions
etc_files := $(sort $(wildcard etc/*.yaml etc/machines/*.yaml etc/slurm/*.sbatch etc/plots/*.gp))
man_files := $(sort $(wildcard man/*.1 man/*.5 man/*.7))
# bash, zsh and fish each name and place the file of a program in their own way.
comp_names = $(1).bash _$(1).zsh $(1).fish
comp_files = $(foreach p,$(progs),$(addprefix $(B)/completions/,$(call comp_names,$(p))))
comp_pairs = $(B)/completions/$(1).bash:$(datadir)/bash-completion/completions/$(1) \
             $(B)/completions/_$(1).zsh:$(datadir)/zsh/site-functions/_$(1) \
             $(B)/completions/$(1).fish:$(datadir)/fish/vendor_completions.d/$(1).fish
pairs = $(foreach p,$(progs),$(BIN)/$(p):$(bindir)/$(p)) \
        $(foreach f,$(man_files),$(f):$(mandir)/man$(subst .,,$(suffix $(f)))/$(notdir $(f))) \
        $(foreach p,$(progs),$(call comp_pairs,$(p))) \
        $(foreach f,$(etc_files),$(f):$(datadir)/moe-tools/$(f:etc/%=%))

# Made by the programs themselves, so that they cannot be out of date.
completions: $(comp_files)
define completion
$(addprefix $(B)/completions/,$(call comp_names,$(1))): $(B)/bin/$(1) etc/completion.awk
	@mkdir -p $$(@D)
	@$$< --print-options > $$@.tmp && \
	  awk -v prog=$(1) -v shell=$$(subst .,,$$(suffix $$@)) -f etc/completion.awk $$@.tmp > $$@ && rm $$@.tmp
endef
$(foreach p,$(progs),$(eval $(call completion,$(p))))

install: all completions
	@for p in $(pairs); do s=$${p%%:*} d=$(DESTDIR)$${p#*:}; mkdir -p "$${d%/*}" || exit 1; \
	  if [ -x "$$s" ]; then m=755; else m=644; fi; install -m $$m "$$s" "$$d" || exit 1; done
uninstall:
	@for p in $(pairs); do rm -f "$(DESTDIR)$${p#*:}" || exit 1; done
	@if [ -d '$(DESTDIR)$(datadir)/moe-tools' ]; then find '$(DESTDIR)$(datadir)/moe-tools' -depth -type d -empty -delete; fi

clean:
	rm -rf $(O) $(BIN) $(compdb)

FORCE:
-include $(patsubst %.c,$(B)/obj/%.d,$(all_src))
