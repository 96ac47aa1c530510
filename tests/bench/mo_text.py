#!/usr/bin/env python3
"""mo_text.py LANG DIR... -- the translations in DIR/**/LANG/LC_MESSAGES/*.mo, each once, a line each.

For languages that nothing longer is at hand of.  Marks of menu keys and of formatting are left out, and so is what
was not translated.
"""
import glob
import os
import re
import struct
import sys


def translations(path):
    with open(path, "rb") as f:
        d = f.read()
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(d[:4])
    if order is None:
        sys.exit(f"mo_text: {path} is no .mo file")
    n, here, there = struct.unpack_from(order + "III", d, 8)
    for i in range(n):
        (n1, at1), (n2, at2) = struct.unpack_from(order + "II", d, here + 8 * i), struct.unpack_from(order + "II", d, there + 8 * i)
        source = d[at1:at1 + n1].split(b"\4")[-1].split(b"\0")
        if source == [b""]:
            continue                    # the header
        for s in d[at2:at2 + n2].split(b"\0"):
            if s not in source:
                yield re.sub(r"<[^>]*>|[~_]", "", s.decode("utf-8", "replace")).replace("\n", " ").strip()


seen = {}
for d in sys.argv[2:]:
    for path in sorted(glob.glob(os.path.join(d, "**", sys.argv[1], "LC_MESSAGES", "*.mo"), recursive=True)):
        for line in translations(path):
            if len(line) > 2:
                seen[line] = True
sys.stdout.reconfigure(encoding="utf-8")
print("\n".join(seen))
