/* version.c -- see version.h.
 *
 * The generated header lies in the build folder, so that only this object is
 * rebuilt when the number or a library changes. */
#include "base/version.h"

#include "version_build.h"

const char moe_version[] = BUILD_VERSION;
const char moe_parts[] = BUILD_PARTS;
