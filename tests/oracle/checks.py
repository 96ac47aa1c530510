"""checks.py -- what the comparisons share: where things lie, how a check answers, and how all of them are run.

A check is a function of a temporary folder that returns when all is well and raises Differs or Skip otherwise.
Promises: a line per check, `ok`, `not ok` with the first difference, or `skip` with the reason; a last line
`N passed, N failed, N skipped`; status 0 only if nothing failed and something passed.  NEED=programs turns the skips
for programs that are not built into failures.

Refuses: the network, and writing anywhere but in the temporary folder of a check.
"""
import os
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
_DATA = os.path.join(TREE, "..", "shared", "data")
UDHR = os.environ.get("ORACLE_UDHR", os.path.join(_DATA, "udhr"))                      # LANG.txt, a text each
TOKENIZERS = os.environ.get("ORACLE_TOKENIZERS", os.path.join(_DATA, "tokenizers"))    # NAME.tokenizer.json.zst


class Skip(Exception):
    """The check cannot be made here; the message says why."""


class Differs(Exception):
    """The answer is no; the message names the first difference."""


def unless(condition, message):
    if not condition:
        raise Differs(message)


def same(what, want, got):
    """Lists are equal; else where they part."""
    want, got = list(want), list(got)
    if want != got:
        at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
        raise Differs(f"{what}: item {at} of {len(want)}: {want[at:at + 4]}, ours {got[at:at + 4]}")


def program(name):
    path = os.path.join(TREE, "bin", name)
    if not os.access(path, os.X_OK):
        raise Skip(f"bin/{name} is not built")
    return path


def run(checks, names):
    """checks: pairs of name and function; names: only those whose names contain one.  Returns the status to leave with."""
    passed = failed = skipped = 0
    for name, check in checks:
        if names and not any(n in name for n in names):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            try:
                check(tmp)
                passed += 1
                print(f"ok {name}", flush=True)
            except Skip as e:
                need = "programs" in os.environ.get("NEED", "").split(",") and "not built" in str(e)
                failed, skipped = failed + need, skipped + (not need)
                print(f"{'not ok' if need else 'skip'} {name}: {e}", flush=True)
            except Exception as e:      # what a package of others raises is its answer
                failed += 1
                print(f"not ok {name}: {type(e).__name__ + ': ' if not isinstance(e, Differs) else ''}{e}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if passed and not failed else 1
